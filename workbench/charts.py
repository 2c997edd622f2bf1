"""Records to figures, without Streamlit: agreement along the depth, and the strip of a bisection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import altair as alt
import pandas as pd

from analyzers.records import BisectStep, LayerRecord
from workbench.grades import (
    BROKEN,
    GRADES,
    NINES_LIMIT,
    NOT_COMPARED,
    grade_of_cosine,
    grade_of_sqnr,
    nines,
    sqnr_of_cosine,
)
from workbench.tables import db_words, interval_table, layer_table

Measure = Literal["cosine", "sqnr"]
MEASURES: tuple[Measure, ...] = ("cosine", "sqnr")
DEPTH_SELECTION = "pick"

QUIET = "#8b929a"
ACCENT = "#2171b5"
WARM = "#e6761c"

_SQNR_LIMITS_DB = (-10.0, 60.0)
# The y axis of cosines is in nines; its labels say which cosine that is.
_NINES_LABELS = (
    "datum.value == 0 ? '0' : datum.value == 1 ? '0.9' : format(1 - pow(10, -datum.value), '.6~f')"
)


def layered(*parts: alt.Chart | alt.LayerChart) -> alt.LayerChart:
    """Return charts on top of each other, the last in front."""
    return cast("alt.LayerChart", alt.layer(*parts))


def depth_chart(
    layers: Sequence[LayerRecord], *, measure: Measure, threshold: float, selected: str = ""
) -> alt.LayerChart:
    """Return agreement along the depth of the network: higher is better, a fall is where it tears.

    Args:
        layers: Rows of a comparison, in topological order.
        measure: What is plotted.
        threshold: Cosine below which a layer is a first fallback candidate.
        selected: Node to mark.

    Returns:
        A figure with the point selection ``DEPTH_SELECTION`` over the field ``node``.
    """
    table = _depth_table(layers, measure)
    known = table[table["value"].notna()]
    x = _depth_x(len(table))
    parts: list[alt.Chart | alt.LayerChart] = [
        _line(known, x, measure),
        _threshold_rule(threshold, measure),
        _isolated_marks(table, x, measure),
        _missing_marks(table[table["value"].isna() & ~table["is_inner"]], x, measure),
        _accumulated_points(known, x, measure),
    ]
    if selected and selected in set(table["node"]):
        parts.append(_selection_mark(table[table["node"] == selected], x, measure))
    return layered(*parts).properties(height=300)


def _depth_table(layers: Sequence[LayerRecord], measure: Measure) -> pd.DataFrame:
    table = layer_table(layers)
    # Nothing is missing there: the candidate has no such tensor.
    table["is_inner"] = ["inner" in layer.flags for layer in layers]
    if measure == "cosine":
        table["value"] = table["nines"]
        table["alone"] = table["isolated_nines"].astype(float)
        table["step"] = [grade_of_cosine(c).word for c in table["cosine"]]
    else:
        low, high = _SQNR_LIMITS_DB
        table["value"] = table["sqnr_db"].clip(low, high)
        table["alone"] = table["isolated_sqnr_db"].astype(float).clip(low, high)
        table["step"] = [grade_of_sqnr(s).word for s in table["sqnr_db"]]
    return table


def _depth_x(length: int) -> alt.X:
    return alt.X(
        "index:Q",
        title="Depth (operators in topological order)",
        scale=alt.Scale(domain=[-1, max(1, length)], nice=False),
        axis=alt.Axis(grid=False, tickMinStep=1, format="d"),
    )


def _depth_y(field: str, measure: Measure) -> alt.Y:
    if measure == "cosine":
        axis = alt.Axis(values=list(range(int(NINES_LIMIT) + 1)), labelExpr=_NINES_LABELS)
        return alt.Y(f"{field}:Q", title="Cosine", scale=alt.Scale(domain=[0, NINES_LIMIT]), axis=axis)
    return alt.Y(f"{field}:Q", title="SQNR (dB)", scale=alt.Scale(domain=list(_SQNR_LIMITS_DB)))


def _line(known: pd.DataFrame, x: alt.X, measure: Measure) -> alt.Chart:
    line: alt.Chart = alt.Chart(known).mark_line(color=QUIET, opacity=0.45, strokeWidth=1)
    return line.encode(x=x, y=_depth_y("value", measure))


def _threshold_rule(threshold: float, measure: Measure) -> alt.Chart:
    level = nines(threshold) if measure == "cosine" else _threshold_db(threshold)
    base = alt.Chart(pd.DataFrame({"value": [level]})).encode(y=_depth_y("value", measure))
    rule: alt.Chart = base.mark_rule(color=WARM, strokeDash=[5, 4], strokeWidth=1.4)
    return rule


def _threshold_db(cosine: float) -> float:
    low, high = _SQNR_LIMITS_DB
    return min(high, max(low, sqnr_of_cosine(cosine))) if 0 < cosine < 1 else (high if cosine >= 1 else low)


def _isolated_marks(table: pd.DataFrame, x: alt.X, measure: Measure) -> alt.Chart:
    mark: alt.Chart = alt.Chart(table[table["alone"].notna()]).mark_tick(
        color=QUIET, thickness=2, size=9, opacity=0.9
    )
    return mark.encode(x=x, y=_depth_y("alone", measure), tooltip=_depth_tooltip())


def _missing_marks(table: pd.DataFrame, x: alt.X, measure: Measure) -> alt.Chart:
    floor = 0.0 if measure == "cosine" else _SQNR_LIMITS_DB[0]
    mark: alt.Chart = alt.Chart(table.assign(value=floor)).mark_point(
        shape="cross", angle=45, size=34, color=NOT_COMPARED.color, strokeWidth=1.4
    )
    return mark.encode(x=x, y=_depth_y("value", measure), tooltip=_depth_tooltip())


def _accumulated_points(known: pd.DataFrame, x: alt.X, measure: Measure) -> alt.Chart:
    pick = alt.selection_point(name=DEPTH_SELECTION, fields=["node"], on="click", clear=False)
    scale = alt.Scale(domain=[g.word for g in GRADES], range=[g.color for g in GRADES])
    points: alt.Chart = alt.Chart(known).mark_circle(size=64, opacity=1, stroke="white", strokeWidth=0.4)
    points = points.encode(
        x=x,
        y=_depth_y("value", measure),
        color=alt.Color("step:N", scale=scale, legend=None),
        tooltip=_depth_tooltip(),
    )
    return points.add_params(pick)


def _selection_mark(row: pd.DataFrame, x: alt.X, measure: Measure) -> alt.LayerChart:
    base = alt.Chart(row).encode(x=x)
    rule = base.mark_rule(color=ACCENT, strokeWidth=1.2, opacity=0.7)
    ring = base.mark_point(size=190, color=ACCENT, strokeWidth=2.2, filled=False)
    return layered(rule, ring.encode(y=_depth_y("value", measure)))


def _depth_tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("node:N", title="operator"),
        alt.Tooltip("op:N", title="type"),
        alt.Tooltip("cosine:Q", title="cosine", format=".6f"),
        alt.Tooltip("sqnr_db:Q", title="SQNR (dB)", format=".1f"),
        alt.Tooltip("isolated_cosine:Q", title="alone: cosine", format=".6f"),
        alt.Tooltip("isolated_sqnr_db:Q", title="alone: SQNR (dB)", format=".1f"),
    ]


def bisect_chart(steps: Sequence[BisectStep], *, length: int, threshold_db: float) -> alt.LayerChart:
    """Return the strip in which the search closes in: a row per run, the cuts that were still possible.

    Args:
        steps: The runs so far.
        length: Layers of the chain.
        threshold_db: Below it a hybrid is bad.
    """
    table = interval_table(steps, length, threshold_db)
    table["row"] = [f"{n}. {db_words(db)}" for n, db in zip(table["step"], table["sqnr_db"], strict=True)]
    # Ends that touch leave a bar that can still be seen.
    narrow = table["start"] + length / 250
    table["right"] = table["stop"].where(table["stop"] > narrow, narrow)
    table["zero"], table["end"] = 0, length
    base = alt.Chart(table).encode(
        y=alt.Y(
            "row:N",
            title=None,
            sort=None,
            axis=alt.Axis(ticks=False, domain=False, grid=False, labelOverlap=False),
        )
    )
    track = base.mark_bar(height=10, color=QUIET, opacity=0.16, cornerRadius=5)
    bar = base.mark_bar(height=10, color=ACCENT, opacity=0.5, cornerRadius=5)
    return layered(
        track.encode(x=_cut("zero", length), x2="end:Q"),
        bar.encode(x=_cut("start", length), x2="right:Q"),
        _probes(base, length),
    ).properties(height=max(60, 24 * len(table) + 24))


def _cut(field: str, length: int) -> alt.X:
    return alt.X(
        f"{field}:Q",
        title="Cut: how many layers are computed as in the candidate",
        scale=alt.Scale(domain=[0, max(1, length)], nice=False),
        axis=alt.Axis(grid=False, tickMinStep=1, format="d"),
    )


def _probes(base: alt.Chart, length: int) -> alt.Chart:
    words, colors = ["good", "bad"], [ACCENT, BROKEN.color]
    mark: alt.Chart = base.mark_point(filled=True, size=110, opacity=1)
    return mark.encode(
        x=_cut("cut", length),
        color=alt.Color("verdict:N", scale=alt.Scale(domain=words, range=colors), legend=None),
        shape=alt.Shape("verdict:N", scale=alt.Scale(domain=words, range=["circle", "diamond"]), legend=None),
        tooltip=[
            alt.Tooltip("step:Q", title="run"),
            alt.Tooltip("layer:N", title="last candidate layer"),
            alt.Tooltip("cut:Q", title="cut"),
            alt.Tooltip("sqnr_db:Q", title="output SQNR (dB)", format=".1f"),
            alt.Tooltip("verdict:N", title="verdict"),
        ],
    )
