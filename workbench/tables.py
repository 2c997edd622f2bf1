"""Records to data frames: what the tables and charts of the pages show, and what downloads hold."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence

import pandas as pd
from pandas.io.formats.style import Styler

from analyzers.records import (
    BisectStep,
    Checked,
    LayerRecord,
    MemberProof,
    SearchResult,
    SliceError,
    Stats,
    Trial,
    Unpaired,
)
from analyzers.serialize import DB_LIMIT
from workbench.grades import GRADES, grade_of_cosine, nines

# What a spreadsheet takes for the beginning of a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_SHOWN_LAYERS = 3
_NAME_LENGTH = 28


def layer_table(layers: Sequence[LayerRecord]) -> pd.DataFrame:
    """Return one row per reference operator, in topological order.

    Columns: ``index`` (depth), ``node``, ``name`` (its end, where it is long), ``layer``, ``op``, ``grade``,
    ``nines``, ``cosine``, ``sqnr_db``, ``isolated_cosine``, ``isolated_nines``, ``isolated_sqnr_db``,
    ``norm_ratio``, ``rmse_scale``, ``max_error``, ``clipped``, ``worst_part``, ``worst_part_db``,
    ``worst_sample``, ``worst_sample_db``, ``is_candidate`` (first fallback candidate), ``flags``.
    """
    rows = [_layer_row(index, layer) for index, layer in enumerate(layers)]
    return pd.DataFrame(rows, columns=list(_layer_columns()))


def _layer_columns() -> tuple[str, ...]:
    return tuple(
        "index node name layer op grade nines cosine sqnr_db isolated_cosine isolated_nines isolated_sqnr_db "
        "norm_ratio rmse_scale max_error clipped worst_part worst_part_db worst_sample worst_sample_db "
        "is_candidate flags".split()
    )


def _layer_row(index: int, layer: LayerRecord) -> dict[str, object]:
    alone, part, sample = layer.isolated, layer.worst_slice, layer.worst_sample
    return {
        "index": index,
        "node": layer.node,
        "name": short_name(layer.node, length=_NAME_LENGTH),
        "layer": layer.layer,
        "op": layer.op_type,
        "grade": grade_of_cosine(layer.cosine).word,
        "nines": nines(layer.cosine),
        "cosine": layer.cosine,
        "sqnr_db": layer.sqnr_db,
        "isolated_cosine": None if alone is None else alone.cosine,
        "isolated_nines": None if alone is None else nines(alone.cosine),
        "isolated_sqnr_db": None if alone is None else alone.sqnr_db,
        "norm_ratio": layer.norm_ratio,
        "rmse_scale": layer.rmse_scale,
        "max_error": layer.max_error,
        "clipped": layer.clipped_fraction,
        "worst_part": "" if part is None else part_name(part),
        "worst_part_db": None if part is None else part.sqnr_db,
        "worst_sample": "" if sample is None else sample.sample,
        "worst_sample_db": None if sample is None else sample.sqnr_db,
        "is_candidate": "fallback_candidate" in layer.flags,
        "flags": ", ".join(f for f in layer.flags if f != "fallback_candidate"),
    }


def row_of(layers: Sequence[LayerRecord], name: str) -> str:
    """Return the node to show for a name: a layer's last operator that is compared, else the node itself.

    A layer bears the name of its first node, and where nodes are fused only the last has a tensor pair.
    """
    compared = [r.node for r in layers if r.layer == name and r.candidate_tensor is not None]
    is_compared = any(r.node == name and r.candidate_tensor is not None for r in layers)
    return compared[-1] if compared and not is_compared else name


def part_name(part: SliceError) -> str:
    """Return what a part of a tensor is called: the branch that fills it, or its indices."""
    if part.name:
        return part.name
    indices = f"{part.start}" if part.stop == part.start + 1 else f"{part.start}:{part.stop}"
    return f"axis {part.axis} [{indices}]"


def worst_first(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return the rows of a layer table, lowest first; undefined ones at the end, ties in depth order."""
    return table.sort_values([by, "index"], na_position="last", kind="stable", ignore_index=True)


def filter_layers(
    table: pd.DataFrame,
    *,
    text: str = "",
    grades: Sequence[str] = (),
    ops: Sequence[str] = (),
    only_candidates: bool = False,
) -> pd.DataFrame:
    """Return the rows that fit all given conditions; an empty condition fits everything.

    Args:
        table: A layer table.
        text: Part of the name of the node or its layer, in any case.
        grades: Words of the scale.
        ops: Operator types.
        only_candidates: First fallback candidates only.
    """
    keep = pd.Series(data=True, index=table.index)
    if text:
        names = table["node"].str.cat(table["layer"], sep="\n")
        keep &= names.str.contains(text, case=False, regex=False)
    if grades:
        keep &= table["grade"].isin(list(grades))
    if ops:
        keep &= table["op"].isin(list(ops))
    if only_candidates:
        keep &= table["is_candidate"]
    return table[keep].reset_index(drop=True)


def painted(table: pd.DataFrame, column: str = "grade") -> Styler:
    """Return a table whose cells of one column, words of the scale, have the scale's colours."""
    return table.style.apply(_paint, subset=[column])


def _paint(cells: pd.Series[str]) -> list[str]:
    by_word = {g.word: f"background-color: {g.color}; color: {g.ink}" for g in GRADES}
    return [by_word.get(word, "") for word in cells]


def sides_table(layer: LayerRecord) -> pd.DataFrame:
    """Return the plain statistics of both sides of a tensor pair, a row per statistic."""
    sides = {"reference": layer.reference, "candidate": layer.candidate}
    return pd.DataFrame(
        [
            {"": name, **{k: None if s is None else _statistic(s, name) for k, s in sides.items()}}
            for name in ("min", "max", "mean", "std")
        ]
    )


def _statistic(stats: Stats, name: str) -> float:
    return {"min": stats.min, "max": stats.max, "mean": stats.mean, "std": stats.std}[name]


def unpaired_table(unpaired: Sequence[Unpaired]) -> pd.DataFrame:
    """Return the reference tensors that have no twin, with reasons."""
    rows = [(u.tensor, u.node, u.reason) for u in unpaired]
    return pd.DataFrame(rows, columns=["tensor", "node", "reason"])


_DIRECTIONS = {
    "candidate-prefix": "candidate up to here, reference after",
    "reference-prefix": "reference up to here, candidate after",
    "repair": "candidate with repaired layers",
}


def bisect_table(steps: Sequence[BisectStep]) -> pd.DataFrame:
    """Return one row per hybrid, in the order in which they were run."""
    rows = [
        (
            number,
            step.cut,
            step.layer or "(before all)",
            _DIRECTIONS.get(step.direction, step.direction),
            summary_of(step.repaired),
            step.sqnr_db,
            "bad" if step.is_bad else "good",
        )
        for number, step in enumerate(steps, start=1)
    ]
    return pd.DataFrame(rows, columns=["step", "cut", "layer", "hybrid", "repaired", "sqnr_db", "verdict"])


_HALF_OF_LOSS_DB = 3.0103


def interval_table(steps: Sequence[BisectStep], length: int, threshold_db: float) -> pd.DataFrame:
    """Return how the search closed in: after each candidate-prefix run, the cuts that were still possible.

    A run at or above the level moves the left end to its cut, one below it the right end. The level is the
    threshold; where the crossing at the threshold was only a slope, the search looks again for the cut with
    half of the loss. The interval opens again there, and whenever another set of layers is repaired.

    Columns: ``step``, ``start``, ``stop``, ``cut``, ``layer``, ``sqnr_db``, ``verdict``, ``round``.
    """
    rows: list[tuple[object, ...]] = []
    # With everything of the chain as in the candidate; a repair is that hybrid too.
    whole_db: dict[tuple[str, ...], float] = {}
    repaired: tuple[str, ...] | None = None
    low, high, search_round, level = 0, length, 0, threshold_db
    for number, step in enumerate(steps, start=1):
        if step.cut == length and step.direction in ("candidate-prefix", "repair"):
            whole_db[step.repaired] = step.sqnr_db
        if step.direction != "candidate-prefix":
            continue
        if step.repaired != repaired:
            repaired, level = step.repaired, threshold_db
            low, high, search_round = 0, length, search_round + 1
        elif 0 < step.cut < length and not low <= step.cut <= high:
            level = whole_db.get(step.repaired, threshold_db) + _HALF_OF_LOSS_DB
            low, high, search_round = 0, length, search_round + 1
        if step.sqnr_db >= level:
            low = max(low, step.cut)
        else:
            high = min(high, step.cut)
        word = "bad" if step.is_bad else "good"
        rows.append((number, low, max(low, high), step.cut, step.layer, step.sqnr_db, word, search_round))
    columns = ["step", "start", "stop", "cut", "layer", "sqnr_db", "verdict", "round"]
    return pd.DataFrame(rows, columns=columns)


def db_words(value: float, digits: int = 1) -> str:
    """Return decibels for people; beyond what JSON holds the two sides are equal."""
    if math.isnan(value):
        return "n/a"
    return "exact" if value >= DB_LIMIT else f"{value:.{digits}f} dB"


def trial_table(trials: Sequence[Trial], target: float | None) -> pd.DataFrame:
    """Return one row per scored plan, in order.

    Columns: ``trial``, ``layers`` (how many), ``fallback`` (their names), ``score``, ``verdict`` ("reaches",
    "misses", "overflows", or "" while the target is unknown), ``stage``, ``samples``, ``seconds``, ``cost``
    (extra latency, percent), ``islands``.
    """
    rows = [
        (
            number,
            len(t.fallback),
            ", ".join(t.fallback),
            t.score,
            _trial_verdict(t, target),
            t.stage,
            t.samples,
            t.seconds,
            100 * t.cost,
            t.islands,
        )
        for number, t in enumerate(trials, start=1)
    ]
    columns = "trial layers fallback score verdict stage samples seconds cost islands".split()
    return pd.DataFrame(rows, columns=columns)


def _trial_verdict(trial: Trial, target: float | None) -> str:
    if trial.overflow:
        return "overflows"
    if target is None:
        return ""
    return "reaches" if trial.score >= target else "misses"


def proof_table(result: SearchResult) -> pd.DataFrame:
    """Return for each member of the answer the score of the set without it, if that was tried."""
    known = {} if result.statistics is None else {m.layer: m for m in result.statistics.members}
    rows = []
    for member in result.fallback:
        rest = set(result.fallback) - {member}
        proof = next((t for t in result.proof if set(t.fallback) == rest), None)
        rows.append(
            (
                member,
                None if proof is None else proof.score,
                None if proof is None else proof.score - result.target,
                "not tried" if proof is None else _proof_verdict(known.get(member)),
            )
        )
    return pd.DataFrame(rows, columns=["layer", "score_without", "misses_by", "verdict"])


def _proof_verdict(member: MemberProof | None) -> str:
    if member is None:
        return "needed"
    word = "proven" if member.is_proven else "needed, undecided"
    return f"{word}: misses on {member.missing_fraction:.0%} of resamples"


def island_table(result: SearchResult) -> pd.DataFrame:
    """Return one row per island of the answer. Columns: ``island``, ``layers`` (how many), ``names``."""
    rows = [(number, len(names), ", ".join(names)) for number, names in enumerate(result.islands, start=1)]
    return pd.DataFrame(rows, columns=["island", "layers", "names"])


def checked_table(checked: Sequence[Checked]) -> pd.DataFrame:
    """Return what a diagnosis looked at, what was found first.

    Columns: ``result``, ``name``, ``looked_at``, ``suspected``.
    """
    rows = [(c.result, c.name.replace("_", " "), c.looked_at, summary_of(c.suspected)) for c in checked]
    order = {"found": 0, "suspected, not proved": 1}
    rows.sort(key=lambda row: (order.get(row[0], 2), row[1]))
    return pd.DataFrame(rows, columns=["result", "name", "looked_at", "suspected"])


def short_name(name: str, *, length: int = 36) -> str:
    """Return the end of a long name, which is where names of layers differ."""
    return name if len(name) <= length else f"…{name[1 - length :]}"


def summary_of(names: Sequence[str], *, shown: int = _SHOWN_LAYERS) -> str:
    """Return the first names and how many more there are."""
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest


def to_csv(table: pd.DataFrame) -> bytes:
    """Return a table as CSV in which no cell can act as a formula in a spreadsheet."""
    safe = table.copy()
    for column in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[column]) and not pd.api.types.is_bool_dtype(safe[column]):
            safe[column] = safe[column].map(_harmless_cell)
    return safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC).encode("utf-8")


def _harmless_cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value
