"""Bisect: which layers break the output, with the pair of neighbouring runs that proves it."""

from __future__ import annotations

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from analyzers.records import BisectResult, BisectStep, Culprit
from workbench import context, state, widgets
from workbench.charts import bisect_chart
from workbench.job_records import Event, JobStatus
from workbench.projects import Project
from workbench.run_page import PAGES, run_page
from workbench.runs import partial_records, read_bisect_options
from workbench.tables import bisect_table, db_words, short_name, summary_of, to_csv
from workbench.widgets import plain

_VERDICTS = {
    "healthy": (
        "The output is healthy",
        "The candidate stays above the threshold; there is nothing to bisect.",
    ),
    "accumulation": (
        "No single layer is to blame",
        "Small errors add up over many layers. A fallback search can still buy the score back.",
    ),
    "most_layers_needed": (
        "No single layer is to blame",
        "The output recovers only with most of the layers repaired: look at what they share, such as the "
        "calibration set.",
    ),
    "outside_layers": (
        "The fault lies outside the layers",
        "Even with every layer as in the reference the output is off: look at inputs, preprocessing and "
        "what was not paired.",
    ),
}


def page() -> None:
    """Draw the page."""
    run_page(
        "bisect",
        title="Bisect",
        lead="Which layers break the output: hybrids of both models, halved until one layer is left.",
        show=_show,
        show_partial=_show_partial,
    )


def _show(_: Project, status: JobStatus) -> None:
    result = context.answer_of(status, BisectResult)
    headline, detail = _words(result)
    widgets.verdict(headline, detail)
    widgets.metrics(
        [
            ("Candidate", f"{db_words(result.candidate_sqnr_db)}", f"Its output by {result.metric}"),
            ("Threshold", f"{db_words(result.threshold_db)}", "A hybrid below it is bad"),
            ("Hybrids run", f"{len(result.steps)}", f"Over a chain of {len(result.chain)} layers"),
            ("Samples", f"{result.samples}", "Per hybrid"),
        ]
    )
    widgets.notices(result.warnings)
    for culprit in result.culprits:
        _culprit(culprit)
    st.subheader("How it closed in", anchor=False)
    _strip(result.steps, len(result.chain), result.threshold_db)
    _steps(result.steps)


def _show_partial(_: Project, status: JobStatus, events: tuple[Event, ...]) -> None:
    steps = partial_records(events, BisectStep)
    if not steps:
        return
    st.subheader("Closing in", anchor=False)
    threshold = read_bisect_options(context.jobs(), status.id).threshold_db
    _strip(steps, max(step.cut for step in steps), threshold)
    st.dataframe(
        bisect_table(steps).iloc[::-1], hide_index=True, column_config=_columns(), alt="Hybrids, newest first"
    )


def _words(result: BisectResult) -> tuple[str, str]:
    names = [f"**{plain(c.layer)}**" for c in result.culprits]
    codes = {warning.code for warning in result.warnings}
    if result.verdict == "accumulation" and "most_layers_needed" in codes:
        return _VERDICTS["most_layers_needed"]
    if result.verdict in _VERDICTS:
        return _VERDICTS[result.verdict]
    joined = summary_of(names, shown=4)
    if not names:
        return "No layer was found", f"The search ended with the verdict {plain(result.verdict)}."
    if result.verdict == "interacting":
        if result.culprits[-1].repaired_sqnr_db >= result.threshold_db:
            return (
                "Several layers break it together",
                f"Repairing all of these brings the output back: {joined}.",
            )
        return "Several layers break it", f"Each ruins the output, none can be shown to be the one: {joined}."
    if len(names) == 1:
        return "One layer breaks the output", f"It is {joined}."
    return f"{len(names)} layers break the output", f"In the order in which they were found: {joined}."


def _culprit(culprit: Culprit) -> None:
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.badge(
                "confirmed by repair" if culprit.is_confirmed else "not confirmed",
                icon=":material/verified:" if culprit.is_confirmed else ":material/help:",
                color="green" if culprit.is_confirmed else "orange",
            )
            st.markdown(f"**{plain(culprit.layer)}**", width="stretch")
            if st.button(
                "Show in Layers",
                type="tertiary",
                icon=":material/arrow_forward:",
                key=f"bisect.go.{culprit.layer}",
            ):
                state.select_layer(culprit.layer)
                st.switch_page(PAGES["compare"])
        good, bad, repaired = st.columns(3)
        together = culprit.good.direction == "repair"
        with good:
            words = "all of them repaired" if together else _place(culprit.good)
            _proof("Good", culprit.good, words, "blue")
        with bad:
            words = "all repaired but this one" if together else _place(culprit.bad)
            _proof("Bad", culprit.bad, words, "red")
        with repaired:
            st.markdown(f":green[**Repaired**] &nbsp; {db_words(culprit.repaired_sqnr_db)}")
            st.caption("the whole candidate with it as in the reference")
        st.caption(
            f"Its jump is {culprit.jump_fraction:.0%} of the noise from the input side, "
            f"{culprit.reverse_jump_fraction:.0%} from the output side."
        )


def _proof(word: str, step: BisectStep, place: str, color: str) -> None:
    st.markdown(f":{color}[**{word}**] &nbsp; {db_words(step.sqnr_db)}")
    st.caption(place)


def _place(step: BisectStep) -> str:
    return f"candidate up to {plain(short_name(step.layer))}" if step.layer else "candidate for nothing yet"


def _strip(steps: tuple[BisectStep, ...], length: int, threshold_db: float) -> None:
    st.altair_chart(
        bisect_chart(steps, length=length, threshold_db=threshold_db),
        key="bisect.strip",
        alt="For every hybrid, the cuts that were still possible after it",
    )
    st.caption(
        "A row per hybrid, first on top: ● good, ◆ bad; the bar is what was still possible after it. "
        "The interval opens again when another layer is repaired."
    )


def _steps(steps: tuple[BisectStep, ...]) -> None:
    table = bisect_table(steps)
    with st.expander(f"All {len(table)} hybrids", icon=":material/table_rows:"):
        st.dataframe(
            table,
            hide_index=True,
            column_config=_columns(),
            alt="Hybrids in the order in which they were run",
        )
        st.download_button(
            "Download as CSV",
            data=lambda: to_csv(table),
            file_name="bisect.csv",
            mime="text/csv",
            on_click="ignore",
            icon=":material/download:",
            type="tertiary",
        )


def _columns() -> dict[str, ColumnConfig]:
    return {
        "step": st.column_config.NumberColumn("Run", width=60),
        "cut": st.column_config.NumberColumn("Cut", width=60),
        "layer": st.column_config.TextColumn("Last candidate layer"),
        "hybrid": st.column_config.TextColumn("Hybrid"),
        "repaired": st.column_config.TextColumn("Repaired"),
        "sqnr_db": st.column_config.NumberColumn("SQNR dB", format="%.1f"),
        "verdict": st.column_config.TextColumn("Verdict", width=80),
    }


if __name__ == "__main__":
    page()
