"""Export: the answer of a search in the form that a toolchain reads."""

from __future__ import annotations

import time
from pathlib import Path

import streamlit as st

from analyzers.deserialize import read_record
from analyzers.errors import InputError
from analyzers.exporters import Exporter, ExportResult
from analyzers.exporting import Requantized
from analyzers.records import SearchResult
from workbench import context, state, widgets
from workbench.command_line import export_line
from workbench.commands.words import score
from workbench.exports import (
    export_request,
    exports_of,
    formats,
    preview,
    requantize_of,
    start_export,
    start_requantize,
)
from workbench.job_records import JobError, JobStatus
from workbench.projects import Project
from workbench.run_page import PAGES, follow, no_project
from workbench.slots import CALIBRATION, slot
from workbench.tables import summary_of


def page() -> None:
    """Draw the page."""
    widgets.page_head(
        "Export", "The fallback set in the form that your toolchain reads, read back to be sure."
    )
    opened = context.project()
    if opened is None:
        state.show_address()
        no_project()
        return
    search = context.shown_run(opened, "search")
    state.show_address(project=opened.id, job=search.id if search else "")
    if search is None or search.state != "done":
        _no_answer(search)
        return
    try:
        result = context.answer_of(search, SearchResult)
    except InputError as error:
        widgets.failure(error, title="The result of this search cannot be read")
        return
    _what(search, result)
    _formats(opened, search)


def _no_answer(search: JobStatus | None) -> None:
    is_live = search is not None and search.is_live
    with st.container(border=True, horizontal_alignment="center"):
        widgets.empty_state(
            "ios_share",
            "The search is still running" if is_live else "There is no fallback set yet",
            "What it finds can be exported as soon as it is done."
            if is_live
            else "A search finds the set; then it can be handed to a toolchain.",
        )
        if st.button("Go to Fallback", type="primary", icon=":material/arrow_forward:"):
            st.switch_page(PAGES["search"])
        st.space("small")


def _what(search: JobStatus, result: SearchResult) -> None:
    count = len(result.fallback)
    words = {0: "No layer", 1: "1 layer"}.get(count, f"{count} layers")
    when = widgets.ago(time.time() - search.created)
    shown = score(result.score, result.unit)
    widgets.verdict(f"{words} in {result.precision.upper()}, {widgets.metric_name(result.metric)} {shown}")
    names = f"{widgets.plain(summary_of(result.fallback, shown=6))} · " if result.fallback else ""
    st.caption(f"{names}search of {when}")
    if not result.reached:
        st.warning("This set does not reach the target of the search.", icon=":material/warning:")


def _formats(opened: Project, search: JobStatus) -> None:
    choices = formats()
    left, right = st.columns([2, 5], gap="large")
    with left:
        chosen = st.radio(
            "Format",
            [e.name for e in choices],
            captions=[e.title for e in choices],
            key="export.format",
            bind="query-params",
        )
    exporter = next(e for e in choices if e.name == chosen)
    with right:
        _export(opened, search, exporter)
        if exporter.name == "ort":
            _requantize(opened, search)


def _export(opened: Project, search: JobStatus, exporter: Exporter) -> None:
    jobs = context.jobs()
    st.subheader(exporter.title, anchor=False)
    st.caption(f"For {exporter.version}")
    status = exports_of(jobs, opened, search.id).get(exporter.name)
    if status is not None and status.is_live:
        follow(opened, status, None)
        return
    if status is not None and status.state == "done":
        try:
            _written(read_record(ExportResult, jobs.result_path(status.id)))
        except InputError as error:
            widgets.failure(error)
    elif status is not None:
        _failed(status)
    label = "Write it" if status is None else "Write it again"
    if st.button(
        label,
        type="primary" if status is None else "secondary",
        icon=":material/ios_share:",
        key="export.write",
    ):
        start_export(jobs, opened, search.id, exporter)
        st.rerun()
    widgets.command(export_line(export_request(opened, jobs, search.id, exporter)))


def _written(result: ExportResult) -> None:
    if result.unmapped:
        names = widgets.plain(summary_of(result.unmapped, shown=6))
        st.warning(f"The format has no name for {names}; they stay INT8.", icon=":material/warning:")
    widgets.notices(result.warnings)
    for number, path in enumerate(result.files):
        _file(path, key=f"export.file.{number}", is_first=number == 0)


def _file(path: Path, *, key: str, is_first: bool) -> None:
    if not path.is_file():
        widgets.failure(JobError("file_absent", "The exported file is gone", str(path), "Write it again"))
        return
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"**{widgets.plain(path.name)}**", width="stretch")
            st.caption(widgets.size_words(path.stat().st_size), width="content")
            st.download_button(
                "Download",
                data=path.read_bytes,
                file_name=path.name,
                icon=":material/download:",
                type="primary" if is_first else "secondary",
                on_click="ignore",
                key=key,
            )
        text = preview(path)
        if text is not None:
            st.code(text[0], language=text[1], height=360 if len(text[0]) > 1200 else "content")


def _failed(status: JobStatus) -> None:
    if status.state == "cancelled":
        st.info("Writing was cancelled.", icon=":material/block:")
    else:
        widgets.failure(status.error or JobError("internal_error", "The job ended without a word"))


def _requantize(opened: Project, search: JobStatus) -> None:
    st.subheader("What the quantizer really gives", anchor=False)
    st.caption(
        "Runs quantize_static with these nodes left in float and scores the new candidate. Ranges are "
        "measured anew, so the score is not exactly the simulated one."
    )
    jobs = context.jobs()
    if opened.calibration is None or opened.calibration.error is not None:
        slot(opened, CALIBRATION)
        return
    status = requantize_of(jobs, opened, search.id)
    if status is not None and status.is_live:
        follow(opened, status, None)
        return
    if status is not None and status.state == "done":
        try:
            _requantized(read_record(Requantized, jobs.result_path(status.id)))
        except InputError as error:
            widgets.failure(error)
    elif status is not None:
        _failed(status)
    if st.button(
        "Quantize and score" if status is None else "Again",
        icon=":material/play_arrow:",
        key="export.requantize",
    ):
        start_requantize(jobs, opened, search.id)
        st.rerun()


def _requantized(result: Requantized) -> None:
    unit = result.score.unit
    widgets.metrics(
        [
            ("Really", score(result.score.value, unit), f"{result.score.metric} of the new candidate"),
            ("Simulated", score(result.simulated_score, unit), "What the search found for this set"),
        ]
    )
    widgets.notices(result.warnings)
    _file(result.candidate, key="export.requantized", is_first=False)


if __name__ == "__main__":
    page()
