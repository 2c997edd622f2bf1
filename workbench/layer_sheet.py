"""All that is known of one operator, with what it means in words."""

from __future__ import annotations

import math
from html import escape

import streamlit as st

from analyzers.records import Comparison, LayerRecord, SliceError
from workbench import widgets
from workbench.commands.words import cosine, number
from workbench.grades import Grade, grade_of_cosine
from workbench.tables import db_words, part_name, sides_table
from workbench.widgets import plain

_FLAG_WORDS = {
    "fallback_candidate": "first fallback candidate",
    "low_sqnr": "noise above the threshold in dB",
    "slice_lost": "one of its parts is lost",
    "nan": "NaN on one side",
    "inf": "infinite values on one side",
    "unpaired": "no twin in the candidate",
    "inner": "inside a fused layer, no tensor of its own there",
    "constant": "constant",
    "clipping": "values at the ends of the integer range",
}
_IDEAL_ROUNDING = 0.289


def layer_sheet(result: Comparison, node: str) -> None:
    """Draw the sheet of a node; without one, say how to get there."""
    found = next((r for r in result.layers if r.node == node), None)
    with st.container(border=True):
        if found is None:
            widgets.empty_state(
                "ads_click", "No operator is selected", "Click a point in the plot or a row of the table."
            )
            st.space("small")
            return
        _head(found)
        st.markdown(explain(found, result.threshold))
        _agreement(found)
        _sides(found)
        _worst(found)
        _names(found)


def explain(record: LayerRecord, threshold: float) -> str:
    """Return in words whether the error is the operator's own or comes with its inputs."""
    if record.candidate_tensor is None:
        return "It has no twin in the candidate, so nothing is compared here."
    if math.isnan(record.cosine):
        return "The measure is undefined here: a side is constant, empty or not finite."
    alone = record.isolated
    if alone is not None and alone.cosine < threshold:
        return (
            f"**The error is its own.** Fed with the reference's values it still only reaches "
            f"cosine {cosine(alone.cosine)}."
        )
    side = "above" if record.cosine >= threshold else "below"
    if side == "above" or alone is None or math.isnan(alone.cosine):
        return f"Cosine {cosine(record.cosine)}: {side} the threshold of {threshold:g}."
    return (
        f"**The error comes with its inputs.** Fed with the reference's values it reaches "
        f"cosine {cosine(alone.cosine)}; look further up."
    )


def _head(record: LayerRecord) -> None:
    grade = grade_of_cosine(record.cosine)
    st.html(
        "<div style='display:flex;gap:8px;align-items:center'>"
        f"{_grade_chip(grade)}<span style='opacity:0.7'>{escape(record.op_type)}</span></div>"
    )
    st.code(record.node, language=None, wrap_lines=True)
    words = [_FLAG_WORDS.get(flag, flag) for flag in record.flags]
    if record.layer != record.node:
        words.insert(0, f"part of layer {record.layer}")
    if words:
        st.caption(plain(", ".join(words)))


def _grade_chip(grade: Grade) -> str:
    return (
        f"<span style='background:{grade.color};color:{grade.ink};border-radius:5px;padding:2px 9px;"
        f"font-weight:600'>{grade.word}</span>"
    )


def _agreement(record: LayerRecord) -> None:
    alone = record.isolated
    rows = [
        ("", "accumulated", "alone"),
        ("Cosine", cosine(record.cosine), "n/a" if alone is None else cosine(alone.cosine)),
        (
            "SQNR",
            f"{db_words(record.sqnr_db)}",
            "n/a" if alone is None else f"{db_words(alone.sqnr_db)}",
        ),
    ]
    widgets.grid(rows)
    widgets.grid(
        [
            ("Norm ratio", number(record.norm_ratio, 4), "1 is best"),
            ("RMSE / scale", number(record.rmse_scale, 3), f"{_IDEAL_ROUNDING} is ideal rounding"),
            ("Max error", _value(record.max_error), ""),
            ("Clipped", _share(record.clipped_fraction), "of the reference's values, beyond the range"),
        ]
    )


def _sides(record: LayerRecord) -> None:
    table = sides_table(record)
    rows = [("", "reference", "candidate")]
    for name, reference, candidate in table.itertuples(index=False):
        rows.append((str(name), _value(reference), _value(candidate)))
    widgets.grid(rows)


def _value(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) and not math.isnan(value) else "n/a"


def _share(fraction: float) -> str:
    return "n/a" if math.isnan(fraction) else f"{fraction:.2%}"


def _worst(record: LayerRecord) -> None:
    rows: list[tuple[str, str, str]] = []
    if record.worst_slice is not None:
        rows.append(("Worst part", part_name(record.worst_slice), _similarity(record.worst_slice)))
    if record.worst_channel is not None:
        rows.append(("Worst channel", part_name(record.worst_channel), _similarity(record.worst_channel)))
    sample = record.worst_sample
    if sample is not None:
        words = f"{db_words(sample.sqnr_db)}, cosine {cosine(sample.cosine)}"
        rows.append(("Worst sample", sample.sample, words))
        rows.append(("95 % of samples", f"≥ {db_words(record.p95_sqnr_db)}", ""))
    if rows:
        widgets.grid(rows)


def _similarity(part: SliceError) -> str:
    return f"{db_words(part.sqnr_db)}, cosine {cosine(part.cosine)}"


def _names(record: LayerRecord) -> None:
    rows = [("Reference tensor", record.reference_tensor, "")]
    if record.candidate_tensor is not None:
        rows.append(("Candidate tensor", record.candidate_tensor, ""))
        rows.append(("Paired by", record.evidence, ""))
    widgets.grid(rows, columns="7.2rem 1fr 0")
