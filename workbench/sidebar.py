"""What stands beside every page: the open project and the state of its work."""

from __future__ import annotations

import streamlit as st

from workbench import context, state, widgets
from workbench.job_records import JobStatus
from workbench.projects import Project
from workbench.run_page import PROJECT_PAGE
from workbench.runs import all_runs

_POLL_SECONDS = 1.0


def sidebar() -> None:
    """Draw the open project, its latest run, and the way out of it."""
    opened = context.project()
    if opened is None:
        return
    st.space("small")
    st.markdown(f"**{widgets.plain(opened.name)}**")
    st.caption(_models(opened))
    runs = all_runs(context.jobs(), opened)
    live = tuple(s for s in reversed(runs) if s.is_live)
    if runs:
        _chips(live or runs[:1])
    else:
        st.badge("nothing run yet", icon=":material/radio_button_unchecked:", color="gray")
    if st.button("All projects", type="tertiary", icon=":material/arrow_back:", key="sidebar.close"):
        state.open_project("")
        st.switch_page(PROJECT_PAGE)


def _models(opened: Project) -> str:
    reference = "no reference" if opened.reference is None else widgets.plain(opened.reference.label)
    if opened.is_made_here:
        return f"{reference}, quantized here"
    candidate = "no candidate" if opened.candidate is None else widgets.plain(opened.candidate.label)
    return f"{reference} and {candidate}"


def _chips(shown: tuple[JobStatus, ...]) -> None:
    """Show the state of runs; while they are live again every second."""

    @st.fragment(run_every=_POLL_SECONDS if shown[0].is_live else None)
    def chips() -> None:
        now = tuple(context.jobs().status(s.id) for s in shown)
        if any(before.is_live and not after.is_live for before, after in zip(shown, now, strict=True)):
            st.rerun()
        for status in now:
            widgets.state_badge(status)
            if status.state == "running":
                widgets.progress_bar(status)

    chips()
