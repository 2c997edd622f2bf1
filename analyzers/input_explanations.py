"""Other reasons why two inputs differ: order of the samples, place in the picture, saturation, or none."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analyzers.input_arrangement import MOST_UNEXPLAINED, Relation, Values, decibels
from analyzers.input_layouts import channel_axis
from analyzers.input_shifts import find_fill, find_shift
from analyzers.records import Fact

_FITTED_SAMPLES = 4
_PRINTED = 1 << 12  # values that stand for a sample where samples are told apart
_CUT_OFF = 0.9  # where so much lies at the ends, no relation can be seen any more
_SHUFFLED = 1e-4  # of the spread: sorted values that differ less are the same values
_SHOWN = 5
_SAME_PICTURE = "Decode, resize and pad with the same code on both sides"


def explain_order(sides: Sequence[tuple[Values, Values]], differing: Sequence[int]) -> Relation | None:
    """Find out whether the candidate got the samples in another order, or some of them."""
    if len(differing) < 2 or len({a.size for side in sides for a in side}) > 1:
        return None
    ours, theirs = (np.stack([_print(side[k]) for side in sides]) for k in (0, 1))
    alike = (ours @ theirs.T) ** 2  # share of the candidate's sample that the reference's explains
    source = {j: int(alike[:, j].argmax()) for j in differing}
    source = {j: i for j, i in source.items() if 1 - alike[i, j] <= MOST_UNEXPLAINED and i != j}
    if len(set(source.values())) < len(source) or 2 * len(source) < len(differing):
        return None
    worst = max(1 - float(alike[i, j]) for j, i in source.items())
    moves = {(i - j) % len(sides) for j, i in source.items()}
    how = f"{next(iter(moves))} further on" if len(moves) == 1 and len(source) > 2 else "in another order"
    shown = list(source.items())[:_SHOWN]
    return Relation(
        cause="malformed_inputs",
        words=f"the candidate got the samples {how}: "
        + ", ".join(f"{i} where the reference got {j}" for j, i in shown),
        parameters={"places": tuple(source), "samples_found_there": tuple(source.values())},
        quality_db=decibels(worst),
        fix="Give both sides the same samples in the same order",
    )


def _print(array: Values) -> Values:
    flat = array.reshape(-1)
    flat = flat[:: max(1, flat.size // _PRINTED) | 1]
    centred = flat - flat.mean()
    norm = float(np.linalg.norm(centred))
    result: Values = centred / norm if norm > 0 else np.zeros_like(centred)
    return result


def explain_saturation(ours: Sequence[Values], theirs: Sequence[Values]) -> Relation | None:
    """Find out whether the candidate's input is lost at the ends of what it can hold."""
    at_ends = min(float(((b == b.min()) | (b == b.max())).mean()) for b in theirs)
    own_ends = max(float(((a == a.min()) | (a == a.max())).mean()) for a in ours)
    low, high = min(float(b.min()) for b in theirs), max(float(b.max()) for b in theirs)
    if at_ends < _CUT_OFF or own_ends >= _CUT_OFF / 2:
        return None
    return Relation(
        cause="preprocessing_normalization",
        words=f"{at_ends:.0%} of the values are cut off at {low:.4g} or {high:.4g}, the ends of its range: "
        "values of another scale were written into it",
        parameters={"cut_off_fraction": at_ends, "lowest": low, "highest": high},
        quality_db=math.nan,
        fix="Normalize the candidate's input as the reference's is, then quantize it with its own scale",
    )


def explain_place(ours: Sequence[Values], theirs: Sequence[Values]) -> Relation | None:
    """Find out whether the picture lies elsewhere, or is surrounded by another value."""
    pairs = [(_rows_last(a), _rows_last(b)) for a, b in zip(ours, theirs, strict=True)][:_FITTED_SAMPLES]
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    fill = find_fill(ours, theirs)
    if fill is not None:
        return Relation(
            cause="preprocessing_layout",
            words=f"the border is filled with {fill.theirs:.4g} where the reference has {fill.ours:.4g}",
            parameters={"reference_fill": fill.ours, "candidate_fill": fill.theirs, "share": fill.share},
            quality_db=200.0,
            fix="Pad with the same value on both sides",
        )
    shift = find_shift(ours, theirs)
    if shift is None:
        return None
    down, right = f"{abs(shift.rows)} rows", f"{abs(shift.columns)} columns"
    down += " further down" if shift.rows >= 0 else " further up"
    right += " further right" if shift.columns >= 0 else " further left"
    return Relation(
        cause="preprocessing_layout",
        words=f"the picture lies {down} and {right}: resized or padded differently",
        parameters={"rows": shift.rows, "columns": shift.columns, "overlap": shift.overlap},
        quality_db=decibels(shift.unexplained),
        fix=_SAME_PICTURE,
    )


def _rows_last(array: Values) -> Values:
    """Return the array with its channels in front of rows and columns."""
    axis = channel_axis(array.shape)
    return array if axis is None or array.ndim < 3 else np.moveaxis(array, axis, -3)


def explain_nothing(ours: Sequence[Values], theirs: Sequence[Values]) -> Relation:
    """Say that no relation was found, and whether at least the values are the same."""
    if all(a.size == b.size for a, b in zip(ours, theirs, strict=True)):
        a, b = (np.stack([_sorted_print(x) for x in side]) for side in (ours, theirs))
        rest, energy = float(((a - b) ** 2).sum()), float(((a - a.mean()) ** 2).sum())
        is_shuffled = energy > 0 and rest <= _SHUFFLED * energy
    else:
        is_shuffled = False
    if is_shuffled:
        return Relation(
            cause="preprocessing_layout",
            words="the same values in another order, which is none of the known arrangements",
            parameters={},
            quality_db=decibels(rest / energy),
            fix="Compare how both sides write their input buffers",
        )
    shapes: dict[str, Fact] = {}
    words = "unrelated to the reference's: other samples, or a relation that is none of the known ones"
    if ours[0].shape != theirs[0].shape:
        shapes = {"reference_shape": ours[0].shape, "candidate_shape": theirs[0].shape}
        words = f"of shape {list(theirs[0].shape)} where the reference's has {list(ours[0].shape)}"
    return Relation(
        cause="malformed_inputs",
        words=words,
        parameters=shapes,
        quality_db=math.nan,
        fix="Give both sides the same samples, preprocessed by the same code",
    )


def _sorted_print(array: Values) -> Values:
    return np.quantile(array, np.linspace(0, 1, 257))
