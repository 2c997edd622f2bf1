"""Export: the answer of a search in the form that a toolchain reads."""

from __future__ import annotations

from workbench import context, state, widgets
from workbench.run_page import no_project


def page() -> None:
    """Draw the page."""
    widgets.page_head("Export", "The fallback set in the form that your toolchain reads.")
    opened = context.project()
    if opened is None:
        state.show_address()
        no_project()
        return


if __name__ == "__main__":
    page()
