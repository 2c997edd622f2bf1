"""Score against cost: every trial of a search, the best so far, and the levels it is seen against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

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

CostAxis = Literal["cost", "layers"]


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
    knee: Sequence[str] | None = None,
    unit: str = "",
    metric: str = "score",
    by: CostAxis = "layers",
) -> alt.LayerChart:
    """Return score against cost.

    Args:
        trials: Scored plans so far; plans with all layers are lines, not points.
        levels: Reference, candidate, all in fallback, target.
        chosen: The answer, to be marked.
        knee: The knee of the front, to be marked.
        unit: Unit of the score.
        metric: Name of the score.
        by: What counts as cost: extra latency on the target, in percent, or layers.
    """
    shown = [t for t in trials if not t.stage.startswith("all-fallback")]
    table = trial_table(shown, None if math.isnan(levels.target) else levels.target)
    table["members"] = [summary_of(t.fallback, shown=8) or "none" for t in shown]
    table["outcome"] = [v or "scored" for v in table["verdict"]]
    x, end = _x_axis(table, by)
    title = f"{metric} ({unit})" if unit else metric.upper() if metric == "ap" else metric
    y = alt.Y("score:Q", title=title, scale=alt.Scale(zero=False, padding=14))
    parts = [_levels(levels, y, unit), _best_so_far(table, x, y, by, end), _points(table, x, y)]
    if knee is not None:
        parts.append(_knee_mark(table, shown, knee, x, y, by))
    if chosen is not None:
        parts.append(_chosen_mark(table, shown, chosen, x, y, by))
    return layered(*parts).properties(height=340)


def _x_axis(table: pd.DataFrame, by: CostAxis) -> tuple[alt.X, float]:
    """Return the axis of costs and where it ends."""
    largest = max((float(v) for v in table[by] if not math.isnan(v)), default=0.0)
    if by == "layers":
        end = max(_FEWEST_LAYERS, largest) + 0.5
        title, axis = "Layers in fallback precision", alt.Axis(tickMinStep=1, format="d", grid=False)
        start = -0.3
    else:
        end = 1.06 * largest or 1.0
        title, axis = "Extra latency (%), by the cost model of the target", alt.Axis(grid=False)
        start = -0.03 * end
    return alt.X(f"{by}:Q", title=title, scale=alt.Scale(domain=[start, end], nice=False), axis=axis), end


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


def _best_so_far(table: pd.DataFrame, x: alt.X, y: alt.Y, by: CostAxis, end: float) -> alt.Chart:
    """Draw the best score that any tried set of at most this cost has."""
    rows: list[tuple[float, float]] = []
    best = -math.inf
    is_sound = (table["verdict"] != "overflows") & table["score"].notna() & table[by].notna()
    sound = table[is_sound].sort_values(by)
    for cost, score in zip(sound[by], sound["score"], strict=True):
        if score > best:
            best = float(score)
            rows = [r for r in rows if r[0] < cost]
            rows.append((float(cost), best))
    if rows:
        rows.append((end, best))
    mark: alt.Chart = alt.Chart(pd.DataFrame(rows, columns=[by, "score"])).mark_line(
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
            alt.Tooltip("cost:Q", title="extra latency (%)", format=".1f"),
            alt.Tooltip("islands:Q", title="islands"),
            alt.Tooltip("score:Q", title="score", format=".4f"),
            alt.Tooltip("outcome:N", title="outcome"),
            alt.Tooltip("stage:N", title="stage"),
            alt.Tooltip("members:N", title="set"),
        ],
    )


def _chosen_mark(
    table: pd.DataFrame, trials: Sequence[Trial], chosen: Sequence[str], x: alt.X, y: alt.Y, by: CostAxis
) -> alt.Chart:
    mark: alt.Chart = alt.Chart(_place_of(table, trials, chosen, by)).mark_point(
        size=260, strokeWidth=2.4, color=ACCENT, filled=False
    )
    return mark.encode(x=x, y=y)


def _knee_mark(
    table: pd.DataFrame, trials: Sequence[Trial], knee: Sequence[str], x: alt.X, y: alt.Y, by: CostAxis
) -> alt.Chart:
    place = _place_of(table, trials, knee, by).assign(word="knee")
    mark: alt.Chart = alt.Chart(place).mark_text(dy=16, fontSize=11, color=QUIET)
    return mark.encode(x=x, y=y, text="word:N")


def _place_of(
    table: pd.DataFrame, trials: Sequence[Trial], members: Sequence[str], by: CostAxis
) -> pd.DataFrame:
    """Return where a set lies: by the last trial of it."""
    is_it = [set(t.fallback) == set(members) for t in trials]
    return table.loc[is_it, [by, "score"]].tail(1)
