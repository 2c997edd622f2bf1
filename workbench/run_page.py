"""The frame of a page that shows a run: which run, its state, its progress, its failure, its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

import streamlit as st

from analyzers.errors import InputError
from workbench import context, state, widgets
from workbench.command_line import command_line
from workbench.job_records import Event, JobError, JobStatus
from workbench.projects import Kind, Project, missing_for
from workbench.runs import is_stale, request_for, runs_of, start_run

Show: TypeAlias = Callable[[Project, JobStatus], None]
ShowPartial: TypeAlias = Callable[[Project, JobStatus, tuple[Event, ...]], None]

POLL_SECONDS = 1.0
_SHOWN_LINES = 4
PROJECT_PAGE = "app_pages/project.py"
PAGES: dict[Kind, str] = {
    "compare": "app_pages/layers.py",
    "diagnose": "app_pages/diagnosis.py",
    "bisect": "app_pages/bisect.py",
    "search": "app_pages/fallback.py",
}
_VERBS: dict[Kind, str] = {
    "compare": "Compare",
    "diagnose": "Diagnose",
    "bisect": "Bisect",
    "search": "Search",
}


def run_page(
    kind: Kind, *, title: str, lead: str, show: Show, show_partial: ShowPartial | None = None
) -> None:
    """Draw a page about the runs of one kind.

    Args:
        kind: Which runs.
        title: Title of the page.
        lead: What the page answers, one sentence.
        show: Draws the answer of a run that is done.
        show_partial: Draws what is known of a run that is not, from its events.
    """
    opened = context.project()
    status = None if opened is None else context.shown_run(opened, kind)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        with st.container(width="stretch", gap="xxsmall"):
            widgets.page_head(title, lead)
        if opened is not None and status is not None:
            _run_bar(opened, kind, status)
    if opened is None:
        state.show_address()
        no_project()
        return
    state.show_address(
        project=opened.id, job=status.id if status else "", layer=state.session().layer if status else ""
    )
    if status is None:
        _no_run(opened, kind)
        return
    if status.state == "done" and is_stale(context.jobs(), opened, status.id):
        st.warning(
            "The inputs of the project have changed since this run. Run it again to see what they give.",
            icon=":material/update:",
        )
    if status.is_live:
        follow(opened, status, show_partial)
        return
    if status.state == "done":
        _answer(opened, status, show)
    else:
        _ended_early(opened, status, show_partial)
    widgets.command(command_line(request_for(opened, kind, context.jobs())))


def no_project() -> None:
    """Say that nothing is open, with the ways to change that."""
    with st.container(border=True, horizontal_alignment="center"):
        widgets.empty_state(
            "folder_open",
            "No project is open",
            "Open the demo, a project, or start a new one with your two models and some pictures.",
        )
        if st.button("Go to Project", type="primary", icon=":material/arrow_forward:"):
            st.switch_page(PROJECT_PAGE)
        st.space("small")


def start_button(opened: Project, kind: Kind, *, label: str, is_primary: bool = True, key: str = "") -> None:
    """Offer to start a job; where that cannot be, say what is missing."""
    missing = missing_for(opened, kind)
    clicked = st.button(
        label,
        type="primary" if is_primary else "secondary",
        icon=":material/play_arrow:",
        disabled=bool(missing),
        help=f"Needs {', '.join(missing)}" if missing else None,
        key=key or f"{kind}.start",
    )
    if clicked:
        start(opened, kind)


def start(opened: Project, kind: Kind) -> None:
    """Queue a job and go to its page."""
    try:
        _, job_id = start_run(context.jobs(), opened, kind)
    except InputError as error:
        widgets.failure(error)
        return
    state.pick_run(kind, job_id)
    st.switch_page(PAGES[kind])


def follow(opened: Project, status: JobStatus, show_partial: ShowPartial | None) -> None:
    """Show a live job, again every second, until it has ended; then draw the whole page anew."""

    @st.fragment(run_every=POLL_SECONDS)
    def live() -> None:
        now = context.jobs().status(status.id)
        if not now.is_live:
            st.rerun()
        events, _ = context.jobs().events(status.id)
        with st.container(border=True):
            bar, button = st.columns([5, 1], vertical_alignment="center")
            with bar:
                with st.container(horizontal=True, vertical_alignment="center"):
                    widgets.state_badge(now, with_kind=False)
                    st.caption(widgets.plain(now.text), width="content")
                widgets.progress_bar(now)
            button.button(
                "Cancel",
                icon=":material/stop:",
                on_click=_cancel,
                args=(status.id,),
                key="run.cancel",
                width="stretch",
            )
            # Steps that bring nothing, such as one sample after the other, are in the bar.
            lines = [e.text for e in events if e.text and e.record_type][-_SHOWN_LINES:]
            if lines:
                st.code("\n".join(lines), language=None, wrap_lines=True)
        if show_partial is not None:
            show_partial(opened, now, events)

    live()


def _cancel(job_id: str) -> None:
    context.jobs().cancel(job_id)


def _no_run(opened: Project, kind: Kind) -> None:
    missing = missing_for(opened, kind)
    with st.container(border=True, horizontal_alignment="center"):
        widgets.empty_state(
            "play_circle",
            f"No {_VERBS[kind].lower()} run yet",
            f"Needs {', '.join(missing)}." if missing else "Everything that it needs is there.",
        )
        if missing:
            if st.button("Go to Project", type="primary", icon=":material/arrow_forward:"):
                st.switch_page(PROJECT_PAGE)
        else:
            start_button(opened, kind, label=_VERBS[kind])
        st.space("small")


def _run_bar(opened: Project, kind: Kind, status: JobStatus) -> None:
    runs = runs_of(context.jobs(), opened, kind)
    with st.container(horizontal=True, vertical_alignment="center", width="content"):
        if not status.is_live:
            widgets.state_badge(status, with_kind=False)
        st.caption(_facts(status), width="content")
        if len(runs) > 1:
            with st.popover("Other runs", icon=":material/history:", type="tertiary"):
                for other in runs:
                    _pick_button(kind, other, is_shown=other.id == status.id)
        if not status.is_live:
            start_button(opened, kind, label="Run again", is_primary=False, key=f"{kind}.again")


def _pick_button(kind: Kind, status: JobStatus, *, is_shown: bool) -> None:
    st.button(
        f"{widgets.ago(time.time() - status.created)}, {widgets.state_word(status)}",
        key=f"{kind}.pick.{status.id}",
        type="tertiary",
        disabled=is_shown,
        on_click=state.pick_run,
        args=(kind, status.id),
    )


def _facts(status: JobStatus) -> str:
    from workbench.commands.words import duration

    when = widgets.ago(time.time() - status.created)
    return when if status.is_live else f"{when} · took {duration(status.seconds)}"


def _answer(opened: Project, status: JobStatus, show: Show) -> None:
    try:
        show(opened, status)
    except InputError as error:
        widgets.failure(error, title="The result of this run cannot be read")


def _ended_early(opened: Project, status: JobStatus, show_partial: ShowPartial | None) -> None:
    jobs = context.jobs()
    if status.state == "cancelled":
        st.info(
            "This run was cancelled. What was finished is kept; *Run again* goes on from there.",
            icon=":material/block:",
        )
    else:
        widgets.failure(status.error or JobError("internal_error", "The job ended without a word"))
        log = jobs.log(status.id)
        if log.strip():
            with st.expander("Log of the worker", icon=":material/description:"):
                st.code(log, language=None, wrap_lines=True)
                st.download_button("Download the log", log, f"{status.id}.txt", on_click="ignore")
    events, _ = jobs.events(status.id)
    if show_partial is not None and events:
        show_partial(opened, status, events)
