"""One finding of a diagnosis: what is wrong, where, the numbers, what a fix gives back, what to do."""

from __future__ import annotations

import math
from html import escape

import streamlit as st

from analyzers.records import INPUT_LAYER, Finding, Gain, Score, Severity
from workbench import state, widgets
from workbench.charts import ACCENT, QUIET, WARM
from workbench.diagnosis_words import cause_words, fact_rows, gain_value, is_decibels, metric_words
from workbench.run_page import PAGES
from workbench.tables import short_name
from workbench.widgets import plain

_SEVERITIES: dict[Severity, tuple[str, widgets.Color]] = {
    "error": (":material/error:", "red"),
    "warning": (":material/warning:", "orange"),
    "info": (":material/info:", "blue"),
}
_SHOWN_LAYERS = 6
# Beyond it nobody sees a difference; what is exact would else dwarf the rest.
_MOST_DB = 60.0


def finding_card(finding: Finding, *, place: int, threshold_db: float, reference: Score | None) -> None:
    """Draw a finding.

    Args:
        finding: What was found.
        place: Its rank; the first gives back most.
        threshold_db: Below it an output is bad; marked in gains that are decibels.
        reference: Score of the reference; marked in gains that are scores.
    """
    with st.container(border=True):
        icon, color = _SEVERITIES[finding.severity]
        with st.container(horizontal=True, vertical_alignment="center"):
            st.badge(finding.severity, icon=icon, color=color)
            st.markdown(f"**{cause_words(finding.cause)}**", width="stretch")
            st.caption(plain(finding.cause), width="content")
        st.markdown(plain(finding.message))
        if finding.layers:
            _layers(finding.layers, place)
        left, right = st.columns([3, 2], gap="medium")
        with left:
            st.markdown(f"**What to do:** {plain(finding.fix)}")
            facts = fact_rows(finding)
            if facts:
                widgets.grid([(n, v, "") for n, v in facts], columns="11rem 1fr 0")
        with right:
            if finding.gain is None:
                st.caption("What the fix gives back cannot be simulated.")
            else:
                st.html(gain_bars(finding.gain, threshold_db=threshold_db, reference=reference))
                st.caption(plain(f"{finding.gain.how}, {finding.gain.samples} samples"))
        if finding.also:
            st.caption(
                f"It would also fit: {plain(', '.join(cause_words(c).lower() for c in finding.also))}."
            )


def _layers(names: tuple[str, ...], place: int) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        for name in names[:_SHOWN_LAYERS]:
            if name == INPUT_LAYER:
                st.markdown(plain(name), width="content")
            elif st.button(
                plain(short_name(name)),
                icon=":material/stacked_line_chart:",
                help="Show it on page Layers",
                key=f"diagnosis.go.{place}.{name}",
            ):
                state.select_layer(name)
                st.switch_page(PAGES["compare"])
        if len(names) > _SHOWN_LAYERS:
            st.caption(f"and {len(names) - _SHOWN_LAYERS} more", width="content")


def gain_bars(gain: Gain, *, threshold_db: float, reference: Score | None) -> str:
    """Return HTML with a bar before and a bar after the fix, each with its value in words."""
    if is_decibels(gain):
        mark, meaning = threshold_db, "threshold"
    else:
        mark, meaning = math.nan if reference is None else reference.value, "reference"
    most = max([_bounded(v, gain) for v in (gain.before, gain.after, mark) if not math.isnan(v)] or [0.0])
    full = most * 1.05 or 1.0
    rows = "".join(
        _bar(name, value, gain, color=color, full=full, mark=mark)
        for name, value, color in (("before", gain.before, QUIET), ("after", gain.after, ACCENT))
    )
    words = f"{meaning} {gain_value(mark, gain.metric)}"
    legend = "" if math.isnan(mark) else f", <span style='color:{WARM}'>╎</span> {words}"
    return (
        f"<div role='img' aria-label='{escape(_spoken(gain), quote=True)}' style='font-size:0.86rem'>{rows}"
        f"<div style='opacity:0.65;font-size:0.8rem'>{escape(metric_words(gain.metric))}{legend}</div></div>"
    )


def _bar(name: str, value: float, gain: Gain, *, color: str, full: float, mark: float) -> str:
    share = 0.0 if math.isnan(value) else 100 * _bounded(value, gain) / full
    threshold = (
        ""
        if math.isnan(mark)
        else f"<div style='position:absolute;left:{100 * _bounded(mark, gain) / full:.1f}%;top:0;bottom:0;"
        f"border-left:2px dashed {WARM}'></div>"
    )
    return (
        "<div style='display:grid;grid-template-columns:3.4rem 1fr 4.6rem;gap:8px;align-items:center;"
        f"margin-bottom:4px'><div style='opacity:0.65'>{name}</div>"
        "<div style='position:relative;height:12px;border-radius:6px;background:rgba(128,140,150,0.16)'>"
        f"<div style='width:{share:.1f}%;height:100%;border-radius:6px;background:{color}'></div>"
        f"{threshold}</div><div style='font-variant-numeric:tabular-nums'>"
        f"{escape(gain_value(value, gain.metric))}</div></div>"
    )


def _bounded(value: float, gain: Gain) -> float:
    return min(_MOST_DB if is_decibels(gain) else math.inf, max(0.0, value))


def _spoken(gain: Gain) -> str:
    before, after = gain_value(gain.before, gain.metric), gain_value(gain.after, gain.metric)
    return f"{metric_words(gain.metric)}: {before} before, {after} after"
