"""Score against cost: every trial of a search, the best so far, and the levels it is seen against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd

from analyzers.records import Trial
from analyzers.serialize import DB_LIMIT
from workbench.charts import ACCENT, QUIET, WARM, layered
from workbench.grades import BROKEN
from workbench.tables import summary_of, trial_table

_OUTCOMES = {
    "reaches": (ACCENT, "circle"),
    "misses": (WARM, "diamond"),
    "overflows": (BROKEN.color, "triangle"),
    "scored": (ACCENT, "circle"),
}
_FEWEST_LAYERS = 4


@dataclass(frozen=True, slots=True)
class Levels:
    """Scores that a search is seen against; ``nan`` while unknown."""

    reference: float = math.nan
    candidate: float = math.nan
    all_fallback: float = math.nan
    target: float = math.nan


def search_chart(
    trials: Sequence[Trial],
    levels: Levels,
    *,
    chosen: Sequence[str] | None = None,
    unit: str = "",
    metric: str = "score",
) -> alt.LayerChart:
    """Return score against cost.

    Args:
        trials: Scored plans so far; plans with all layers are lines, not points.
        levels: Reference, candidate, all in fallback, target.
        chosen: The answer, to be marked.
        unit: Unit of the score.
        metric: Name of the score.
    """
    shown = [t for t in trials if not t.stage.startswith("all-fallback")]
    table = trial_table(shown, None if math.isnan(levels.target) else levels.target)
    table["members"] = [summary_of(t.fallback, shown=8) or "none" for t in shown]
    table["outcome"] = [v or "scored" for v in table["verdict"]]
    widest = max([_FEWEST_LAYERS, *(int(n) for n in table["layers"])])
    x = alt.X(
        "layers:Q",
        title="Layers in fallback precision",
        scale=alt.Scale(domain=[-0.3, widest + 0.5], nice=False),
        axis=alt.Axis(tickMinStep=1, format="d", grid=False),
    )
    title = f"{metric} ({unit})" if unit else metric.upper() if metric == "ap" else metric
    y = alt.Y("score:Q", title=title, scale=alt.Scale(zero=False, padding=14))
    parts = [_levels(levels, y, unit), _best_so_far(table, x, y, widest), _points(table, x, y)]
    if chosen is not None:
        parts.append(_chosen_mark(shown, chosen, x, y))
    return layered(*parts).properties(height=340)


def _levels(levels: Levels, y: alt.Y, unit: str) -> alt.Chart | alt.LayerChart:
    """Draw a line per level; an exact result has a place on no scale."""
    named = (
        ("reference", levels.reference, "right", QUIET),
        ("target", levels.target, "left", WARM),
        ("all in fallback", levels.all_fallback, "left", QUIET),
        ("candidate", levels.candidate, "right", QUIET),
    )
    rows = [(f"{n} {v:.4g}", v, side, color) for n, v, side, color in named if _has_place(v, unit)]
    frame = pd.DataFrame(rows, columns=["label", "score", "side", "color"])
    base = alt.Chart(frame).encode(y=y, color=alt.Color("color:N", scale=None))
    rule = base.mark_rule(strokeWidth=1.2, strokeDash=[4, 3], opacity=0.9)
    left = base.transform_filter(alt.FieldEqualPredicate(field="side", equal="left"))
    right = base.transform_filter(alt.FieldEqualPredicate(field="side", equal="right"))
    return layered(
        rule,
        left.mark_text(align="left", dx=4, dy=-6, fontSize=11).encode(text="label:N", x=alt.value(0)),
        right.mark_text(align="right", dx=-4, dy=-6, fontSize=11).encode(
            text="label:N", x=alt.value("width")
        ),
    )


def _has_place(score: float, unit: str) -> bool:
    return math.isfinite(score) and not (unit == "dB" and abs(score) >= DB_LIMIT)


def _best_so_far(table: pd.DataFrame, x: alt.X, y: alt.Y, widest: int) -> alt.Chart:
    """Draw the best score that any tried set of at most so many layers has."""
    rows: list[tuple[float, float]] = []
    best = -math.inf
    sound = table[(table["verdict"] != "overflows") & table["score"].notna()].sort_values("layers")
    for layers, score in zip(sound["layers"], sound["score"], strict=True):
        if score > best:
            best = float(score)
            rows = [r for r in rows if r[0] < layers]
            rows.append((float(layers), best))
    if rows:
        rows.append((widest + 0.5, best))
    mark: alt.Chart = alt.Chart(pd.DataFrame(rows, columns=["layers", "score"])).mark_line(
        interpolate="step-after", color=ACCENT, strokeWidth=2, opacity=0.65
    )
    return mark.encode(x=x, y=y)


def _points(table: pd.DataFrame, x: alt.X, y: alt.Y) -> alt.Chart:
    words = list(_OUTCOMES)
    colors, shapes = [c for c, _ in _OUTCOMES.values()], [s for _, s in _OUTCOMES.values()]
    mark: alt.Chart = alt.Chart(table).mark_point(filled=True, size=70, opacity=0.9)
    return mark.encode(
        x=x,
        y=y,
        color=alt.Color("outcome:N", scale=alt.Scale(domain=words, range=colors), legend=None),
        shape=alt.Shape("outcome:N", scale=alt.Scale(domain=words, range=shapes), legend=None),
        tooltip=[
            alt.Tooltip("trial:Q", title="trial"),
            alt.Tooltip("layers:Q", title="layers"),
            alt.Tooltip("score:Q", title="score", format=".4f"),
            alt.Tooltip("outcome:N", title="outcome"),
            alt.Tooltip("stage:N", title="stage"),
            alt.Tooltip("members:N", title="set"),
        ],
    )


def _chosen_mark(trials: Sequence[Trial], chosen: Sequence[str], x: alt.X, y: alt.Y) -> alt.Chart:
    rows = [(len(t.fallback), t.score) for t in trials if set(t.fallback) == set(chosen)][-1:]
    mark: alt.Chart = alt.Chart(pd.DataFrame(rows, columns=["layers", "score"])).mark_point(
        size=260, strokeWidth=2.4, color=ACCENT, filled=False
    )
    return mark.encode(x=x, y=y)
