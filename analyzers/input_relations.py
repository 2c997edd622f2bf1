"""Find out how what the candidate was fed differs from what the reference was fed.

All arrangements and channel orders are tried, each with and without a scale and an offset. Of those that
explain the candidate's input about equally well the least far-fetched one is believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from analyzers.contracts import SampleSet
from analyzers.input_arrangement import Relation, Values, decibels, explain_arrangement, grid_step
from analyzers.input_explanations import (
    explain_nothing,
    explain_order,
    explain_place,
    explain_saturation,
)
from analyzers.project import Pair
from analyzers.records import Array, Fact, Finding
from analyzers.trace import as_reals

SAME_DB = 40.0  # one part in a hundred: half precision, decoders of compressed pictures
_ROUNDED_SHARE = 0.999  # of the values lie within a step of the grid: the rest is arithmetic
_SATURATED = 0.2  # where more than this lies at the ends of the range, the picture is lost
_SHOWN = 5
_READ_VALUES = 1 << 26  # values of one input that are kept at a time


def relation_findings(pair: Pair, samples: SampleSet, candidate_samples: SampleSet) -> tuple[Finding, ...]:
    """Return one finding per input that differs between the sides; empty where all agree.

    Args:
        pair: Reference and candidate.
        samples: What the reference is fed.
        candidate_samples: What the candidate is fed, under its own names, in the same order.
    """
    found: list[Finding] = []
    for ours, theirs in pair.input_names.items():
        reference, candidate = _read(pair, samples, candidate_samples, ours, theirs)
        relation = find_relation(reference, candidate)
        if relation is not None:
            found.append(_finding(ours, relation, samples.names, len(reference)))
    return tuple(found)


def find_relation(reference: Sequence[Array], candidate: Sequence[Array]) -> Relation | None:
    """Return how the candidate's samples come from the reference's; None where they agree.

    Values that were rounded to a grid agree: that is what quantizing an input does.

    Args:
        reference: One array per sample, any rank and numeric type.
        candidate: The same samples as real values.
    """
    differing = tuple(
        i for i, (r, c) in enumerate(zip(reference, candidate, strict=True)) if not _agree(r, c)
    )
    if not differing:
        return None
    sides = [(_finite(r), _finite(c)) for r, c in zip(reference, candidate, strict=True)]
    ours, theirs = [sides[i][0] for i in differing], [sides[i][1] for i in differing]
    found = (
        explain_arrangement(ours, theirs)
        or explain_order(sides, differing)
        or explain_place(ours, theirs)
        or explain_saturation(ours, theirs)
        or explain_nothing(ours, theirs)
    )
    return replace(found, samples=differing, as_fed_db=_pooled_db(ours, theirs))


def _read(
    pair: Pair, samples: SampleSet, candidate_samples: SampleSet, ours: str, theirs: str
) -> tuple[list[Array], list[Array]]:
    """Return one input of both sides as real values, in the reference's layout, as far as memory allows."""
    own = {spec.name: spec.shape for spec in pair.reference.inputs}.get(ours, ())
    their = {spec.name: spec.shape for spec in pair.candidate.inputs}.get(theirs, ())
    reference: list[Array] = []
    candidate: list[Array] = []
    for index in range(min(len(samples), len(candidate_samples))):
        feeds, given = samples[index].feeds, as_reals(pair, candidate_samples[index].feeds)
        if ours in feeds and theirs in given:
            reference.append(feeds[ours])
            candidate.append(_as_declared(given[theirs], feeds[ours], own, their))
        if sum(array.size for array in reference) > _READ_VALUES:
            break
    return reference, candidate


def _as_declared(
    candidate: Array, reference: Array, ours: Sequence[int | None], theirs: Sequence[int | None]
) -> Array:
    """Bring an input that the candidate itself declares channels last (or first) into the other layout."""
    if candidate.ndim != 4 or candidate.shape == reference.shape or len(ours) != 4:
        return candidate
    for order in ((0, 2, 3, 1), (0, 3, 1, 2)):
        if tuple(ours[axis] for axis in order) == tuple(theirs):
            moved = candidate.transpose(tuple(int(i) for i in np.argsort(order)))
            return moved if moved.shape == reference.shape else candidate
    return candidate


def _finding(name: str, relation: Relation, names: Sequence[str], count: int) -> Finding:
    differing = len(relation.samples)
    evidence: dict[str, Fact] = {
        "input": name,
        "relation": relation.words,
        "fit_db": relation.quality_db,
        "as_fed_db": relation.as_fed_db,
        "samples_differing": differing,
        "samples_compared": count,
        **relation.parameters,
    }
    where = "on every sample"
    if differing < count:
        where = f"on {differing} of {count} samples"
        evidence["differing"] = tuple(names[i] for i in relation.samples[:_SHOWN])
    return Finding(
        cause=relation.cause,
        layers=(),
        severity="error",
        message=f"The inputs of both sides differ before the first layer, {where}. "
        f"Input '{name}' of the candidate: {relation.words}",
        evidence=evidence,
        fix=relation.fix,
        also=relation.also,
    )


def _finite(array: Array) -> Values:
    return np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _agree(reference: Array, candidate: Array) -> bool:
    """Tell whether two samples are the same up to noise or to a coarse rounding."""
    if reference.shape != candidate.shape:
        if _long_axes(reference.shape) != _long_axes(candidate.shape):
            return False
        candidate = candidate.reshape(reference.shape)
    if reference.dtype.kind in "iub" and candidate.dtype.kind in "iub":
        return bool(np.array_equal(reference, candidate))
    ours, theirs = _finite(reference), _finite(candidate)
    if _pooled_db([ours], [theirs]) >= SAME_DB:
        return True
    step = grid_step(theirs)
    if step is None:
        return False
    ends = (theirs == theirs.min()) | (theirs == theirs.max())
    near = np.abs(theirs - ours)[~ends] <= 1.01 * step
    return bool(ends.mean() <= _SATURATED and near.mean() >= _ROUNDED_SHARE)


def _long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n > 1)


def _pooled_db(ours: Sequence[Values], theirs: Sequence[Values]) -> float:
    """Return the SQNR of the candidate's input against the reference's; nan for other shapes."""
    if any(a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
        return math.nan
    noise = sum(float(((a - b) ** 2).sum()) for a, b in zip(ours, theirs, strict=True))
    signal = sum(float((a**2).sum()) for a in ours)
    if noise == 0:
        return decibels(0.0)
    return decibels(noise / signal) if signal > 0 else -decibels(0.0)
