"""Small forms of the Project page: what a search must reach, and how a candidate is made."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from analyzers.records import CalibrationMethod, QuantFormat, QuantizeOptions
from workbench import context
from workbench.projects import Goal, GoalKind, Project

_GOALS: dict[GoalKind, str] = {"drop": "Largest drop", "target": "Lowest score"}
_METHODS: dict[CalibrationMethod, str] = {
    "minmax": "MinMax",
    "entropy": "Entropy",
    "percentile": "Percentile",
}
_FORMATS: dict[QuantFormat, str] = {"qdq": "QDQ", "qoperator": "QOperator"}


def goal_form(opened: Project) -> None:
    """Ask what a search must reach; SQNR has no drop, since the reference's own is infinite."""
    kinds: list[GoalKind] = ["target"] if opened.metric else ["drop", "target"]
    current = opened.goal.kind if opened.goal.kind in kinds else kinds[0]
    with st.container(border=True, horizontal=True, vertical_alignment="bottom"):
        kind = st.segmented_control(
            "Accept",
            kinds,
            default=current,
            required=True,
            format_func=lambda k: _GOALS[k],
            key=f"project.goal.kind.{opened.id}.{len(kinds)}",
        )
        is_db = bool(opened.metric)
        value = st.number_input(
            "dB" if is_db else "Score, 0 to 1",
            value=_start_value(opened, kind or current, is_db=is_db),
            min_value=-200.0 if is_db else 0.0,
            max_value=200.0 if is_db else 1.0,
            step=1.0 if is_db else 0.005,
            format="%.1f" if is_db else "%.3f",
            key=f"project.goal.value.{opened.id}.{kind}.{is_db}",
            width=180,
        )
        st.caption(_meaning(kind or current, value, is_db=is_db), width="stretch")
    goal = Goal(kind or current, float(value))
    if goal != opened.goal:
        context.keep(replace(opened, goal=goal))
        st.rerun()


def _start_value(opened: Project, kind: GoalKind, *, is_db: bool) -> float:
    if opened.goal.kind == kind and (is_db or 0 <= opened.goal.value <= 1):
        return opened.goal.value
    if is_db:
        return 20.0
    return 0.01 if kind == "drop" else 0.3


def _meaning(kind: GoalKind, value: float, *, is_db: bool) -> str:
    if is_db:
        return f"The outputs must have at least {value:g} dB signal to quantization noise."
    if kind == "drop":
        points = "1 point" if value == 0.01 else f"{value * 100:g} points"
        return f"The score may lie at most {value:g} ({points}) below the reference's."
    return f"The score must be at least {value:g}."


def quantize_form(opened: Project) -> None:
    """Ask how the candidate is made from the calibration set."""
    now = opened.quantize
    with st.expander("How it is quantized", icon=":material/tune:"):
        method = st.segmented_control(
            "Ranges of activations",
            list(_METHODS),
            default=now.method,
            required=True,
            format_func=lambda m: _METHODS[m],
            key=f"project.method.{opened.id}",
        )
        percentile = now.percentile
        if method == "percentile":
            percentile = st.number_input(
                "Percentile",
                min_value=50.0,
                max_value=100.0,
                value=now.percentile,
                format="%.3f",
                key=f"project.percentile.{opened.id}",
            )
        per_channel = st.toggle(
            "A weight scale per channel", value=now.per_channel, key=f"project.per_channel.{opened.id}"
        )
        symmetric = st.toggle(
            "Symmetric activations", value=now.symmetric, key=f"project.symmetric.{opened.id}"
        )
        form = st.segmented_control(
            "Form",
            list(_FORMATS),
            default=now.format,
            required=True,
            format_func=lambda f: _FORMATS[f],
            key=f"project.format.{opened.id}",
        )
    chosen = QuantizeOptions(
        method=method or now.method,
        per_channel=per_channel,
        symmetric=symmetric,
        format=form or now.format,
        percentile=float(percentile),
    )
    if chosen != now:
        context.keep(replace(opened, quantize=chosen))
        st.rerun()
