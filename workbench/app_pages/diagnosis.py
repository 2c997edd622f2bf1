"""Diagnosis: what is wrong, why, and what to do; each cause was proved by undoing it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import streamlit as st

from analyzers.records import Checked, Diagnosis, Finding, Verdict
from workbench import context, widgets
from workbench.commands.words import score
from workbench.diagnosis_words import blamed_layers, verdict_words
from workbench.finding_card import finding_card
from workbench.job_records import JobStatus
from workbench.projects import Project
from workbench.run_page import run_page
from workbench.tables import checked_table, db_words, summary_of

_ICONS: dict[Verdict, str] = {
    "healthy": ":material/check_circle:",
    "faulty_layers": ":material/error:",
    "no_single_layer": ":material/blur_on:",
    "inputs_differ": ":material/call_split:",
    "reference_wrong": ":material/report:",
    "candidate_not_comparable": ":material/link_off:",
}


def page() -> None:
    """Draw the page."""
    run_page(
        "diagnose",
        title="Diagnosis",
        lead="What is wrong, why, and what to do; each cause is proved by undoing it.",
        show=_show,
    )


def _show(_: Project, status: JobStatus) -> None:
    result = context.answer_of(status, Diagnosis)
    _banner(result)
    _numbers(result)
    widgets.notices(result.warnings)
    _findings(result)
    _checked(result.checked)
    st.download_button(
        "Download as JSON",
        data=lambda: context.jobs().result_path(status.id).read_bytes(),
        file_name="diagnosis.json",
        mime="application/json",
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
    )


def _banner(result: Diagnosis) -> None:
    headline, detail = verdict_words(result)
    blamed = blamed_layers(result.findings)
    names = f": {summary_of([widgets.plain(n) for n in blamed])}" if blamed else ""
    text = f"**{headline}{names}**  \n{detail}"
    icon = _ICONS[result.verdict]
    match result.verdict:
        case "healthy":
            st.success(text, icon=icon)
        case "faulty_layers" | "reference_wrong":
            st.error(text, icon=icon)
        case _:
            st.warning(text, icon=icon)


def _numbers(result: Diagnosis) -> None:
    samples = f"On {len(result.samples)} samples: {summary_of(result.samples)}"
    items: list[widgets.Metric] = [("Worst output", db_words(result.output_sqnr_db), samples)]
    if not math.isnan(result.repaired_sqnr_db):
        words = "Its SQNR with everything repaired that was found"
        items.append(("All repaired", db_words(result.repaired_sqnr_db), words))
    items.append(("Threshold", db_words(result.threshold_db), "An output below it is bad"))
    for name, given in (("reference", result.reference_score), ("candidate", result.candidate_score)):
        if given is not None:
            label = f"{widgets.metric_name(given.metric)} of the {name}"
            items.append((label, score(given.value, given.unit), ""))
    items.append(("What-if models", f"{result.runs}", f"Run to prove causes, mode {result.mode}"))
    widgets.metrics([(label, value, widgets.plain(text)) for label, value, text in items])


def _findings(result: Diagnosis) -> None:
    placed = list(enumerate(result.findings, start=1))
    blaming = [(place, f) for place, f in placed if f.severity != "info"]
    notes = [(place, f) for place, f in placed if f.severity == "info"]
    if blaming:
        st.subheader("What was found", anchor=False)
        if len(blaming) > 1:
            st.caption("What gives back most comes first.")
        for place, finding in blaming:
            _card(finding, place, result)
    if notes:
        words = "1 thing" if len(notes) == 1 else f"{len(notes)} things"
        label = f"{words} worth knowing that no layer is blamed for"
        with st.expander(label, icon=":material/lightbulb:", expanded=not blaming):
            for place, finding in notes:
                _card(finding, place, result)


def _card(finding: Finding, place: int, result: Diagnosis) -> None:
    finding_card(finding, place=place, threshold_db=result.threshold_db, reference=result.reference_score)


def _checked(checked: Sequence[Checked]) -> None:
    if not checked:
        return
    st.subheader("What was checked", anchor=False)
    fine = sum(c.result == "fine" for c in checked)
    st.caption(
        f"{fine} of {len(checked)} kinds of causes are not there. *Suspected, not proved*: it looked so, but "
        "undoing it does not move the output."
    )
    st.dataframe(
        checked_table(checked),
        hide_index=True,
        column_config={
            "result": st.column_config.TextColumn("Result", width=150),
            "name": st.column_config.TextColumn("Looked for", width=190),
            "looked_at": st.column_config.TextColumn("By comparing", width=560),
            "suspected": st.column_config.TextColumn("Suspected at"),
        },
        alt="What was looked at, what was found first",
    )


if __name__ == "__main__":
    page()
