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
    if runs:
        _chip(next((s for s in reversed(runs) if s.is_live), runs[0]))
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


def _chip(status: JobStatus) -> None:
    """Show the state of a run; while it is live again every second."""

    @st.fragment(run_every=_POLL_SECONDS if status.is_live else None)
    def chip() -> None:
        now = context.jobs().status(status.id)
        if status.is_live and not now.is_live:
            st.rerun()
        widgets.state_badge(now)
        if now.is_live:
            widgets.progress_bar(now)

    chip()
