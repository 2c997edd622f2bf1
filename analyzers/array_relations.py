"""Exact relations between two arrays of one shape: transposed, turned round, in another order, permuted.

They are looked for twice: between the values, and between the levels, since integers that were moved about
after quantization keep the scales of the places they were moved to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Indices = NDArray[np.int64]

# A relation is exact if what it leaves unexplained is rounding. One percent of the energy (20 dB) is what
# four bits leave, and chance does not come near it from eight elements on.
UNEXPLAINED = 0.01
FEWEST_ELEMENTS = 8
_PROBES = 4096  # places that a relation is tried on first
_LIKE = 0.97  # cosine of two channels that hold the same weights
_UNLIKE = 0.05  # how far the second best must be behind
_WIDEST = 4096  # channels that are compared with each other
_LONGEST = 1 << 16  # elements that are searched for a shift
_COMPARED = 256  # weights of a channel that tell it from others
_TRIED = 16  # channels that are looked for first
_MOST_SHIFTED_OUT = 0.2  # share of a buffer that may lie beyond its end


@dataclass(frozen=True, slots=True)
class Relation:
    """How the candidate's array follows from the reference's.

    Attributes:
        kind: "order": elements are at other places; "channels": whole channels are; "shift": all are moved
            along the buffer.
        words: What it is, to follow "the weight is".
        unexplained: Share of the candidate's energy that the relation leaves.
        axis: For "channels": the axis.
        order: For "channels": the reference's channel that each of the candidate's holds.
        is_in_levels: It holds between levels, not between values.
    """

    kind: str
    words: str
    unexplained: float
    axis: int | None = None
    order: tuple[int, ...] = ()
    is_in_levels: bool = False


def find_relation(
    reference: Values, candidate: Values, levels: tuple[Values, Values] | None, names: Sequence[str]
) -> Relation | None:
    """Return the exact relation between two arrays that are not equal, or None.

    Args:
        reference: What it should be.
        candidate: What it is; the same shape.
        levels: The same in steps of the candidate's scale; None where it has none.
        names: Names of the axes, for words.
    """
    if reference.size < FEWEST_ELEMENTS:
        return None
    domains = [(reference, candidate, False)]
    if levels is not None:
        domains.append((*levels, True))
    for ours, theirs, is_in_levels in domains:
        if not np.all(np.isfinite(theirs)) or not np.any(theirs):
            continue
        found = _order(ours, theirs, names) or _channels(ours, theirs, names) or _shift(ours, theirs)
        if found is not None:
            return Relation(found.kind, found.words, found.unexplained, found.axis, found.order, is_in_levels)
    return None


def unexplained(expected: Values, candidate: Values) -> float:
    """Return the share of the candidate's energy that an expectation leaves."""
    energy = float((candidate**2).sum())
    left = float(((candidate - expected) ** 2).sum())
    return left / energy if energy > 0 else math.inf


def _order(reference: Values, candidate: Values, names: Sequence[str]) -> Relation | None:
    """Try all orders of axes, turned or not, and buffers that are read in another order."""
    random = np.random.default_rng(0)
    probes = random.choice(reference.size, min(_PROBES, reference.size), replace=False)
    have = candidate.reshape(-1)[probes]
    best: tuple[float, str] = (math.inf, "")
    flat = reference.reshape(-1)
    for words, places in _orders(reference.shape, probes, names):
        left = unexplained(flat[places], have)
        if left < best[0]:
            best = (left, words)
    if best[0] > UNEXPLAINED or unexplained(flat[probes], have) < 4 * best[0]:
        return None
    return Relation("order", best[1], best[0])


def _orders(shape: tuple[int, ...], probes: Indices, names: Sequence[str]) -> Iterator[tuple[str, Indices]]:
    """Yield each order in words, with the reference's flat place that belongs to each probed place."""
    rank = len(shape)
    at = np.stack(np.unravel_index(probes, shape))
    for perm in permutations(range(rank)):
        is_plain = perm == tuple(range(rank))
        moved = tuple(shape[axis] for axis in perm)
        if moved == shape:
            back = np.argsort(perm)
            for flips in _flips(shape, perm):
                if is_plain and not flips:
                    continue
                index = [
                    shape[axis] - 1 - at[back[axis]] if axis in flips else at[back[axis]]
                    for axis in range(rank)
                ]
                yield _words(perm, flips, names), np.ravel_multi_index(tuple(index), shape)
        if is_plain or _squeezed(perm, shape) == _squeezed(tuple(range(rank)), shape):
            continue
        order = ", ".join(names[axis] for axis in perm)
        inside = np.stack(np.unravel_index(probes, moved))
        index = [inside[perm.index(axis)] for axis in range(rank)]
        yield (
            f"laid out in the order ({order}) but read as ({', '.join(names)})",
            np.ravel_multi_index(tuple(index), shape),
        )
        inside = np.stack([at[axis] for axis in perm])
        yield (
            f"read as if it were laid out in the order ({order})",
            np.ravel_multi_index(tuple(inside), moved),
        )


def _flips(shape: tuple[int, ...], perm: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the sets of axes worth turning round: none, each one, and the kernel as a whole."""
    long = [axis for axis, size in enumerate(shape) if size > 1]
    found: list[tuple[int, ...]] = [()]
    if perm == tuple(range(len(shape))):
        found += [(axis,) for axis in long]
    kernel = tuple(axis for axis in long if axis >= 2)
    return found + ([kernel] if len(kernel) > 1 else [])


def _squeezed(perm: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in perm if shape[axis] > 1)


def _words(perm: tuple[int, ...], flips: tuple[int, ...], names: Sequence[str]) -> str:
    swapped = [axis for axis, other in enumerate(perm) if axis != other]
    parts: list[str] = []
    if len(swapped) == 2:
        parts.append(f"transposed: {names[swapped[0]]} and {names[swapped[1]]} are swapped")
    elif swapped:
        parts.append(f"transposed by ({', '.join(names[axis] for axis in perm)})")
    if flips:
        parts.append(f"turned round along {' and '.join(names[axis] for axis in flips)}")
    return ", ".join(parts)


def _channels(reference: Values, candidate: Values, names: Sequence[str]) -> Relation | None:
    """Look for whole channels at other places, along any of the first two axes."""
    for axis in range(min(2, reference.ndim)):
        if not 2 < reference.shape[axis] <= _WIDEST or reference.size < 4 * reference.shape[axis]:
            continue
        order = same_channels(_rows(reference, axis), _rows(candidate, axis))
        if order is None or order == tuple(range(len(order))):
            continue
        left = unexplained(np.take(reference, order, axis), candidate)
        if left <= UNEXPLAINED:
            count = sum(i != j for i, j in enumerate(order))
            words = f"permuted along {names[axis]}: {count} of {len(order)} are at other places"
            return Relation("channels", words, left, axis, order)
    return None


def _rows(array: Values, axis: int) -> Values:
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def same_channels(reference: Values, candidate: Values) -> tuple[int, ...] | None:
    """Return which of the reference's rows each row of the candidate points the same way as, if clear."""
    count, size = reference.shape
    columns = np.arange(size) if size <= _COMPARED else np.linspace(0, size - 1, _COMPARED).astype(np.int64)
    ours, theirs = (_directions(r[:, columns]) for r in (reference, candidate))
    if count > _TRIED:
        tried = theirs[np.linspace(0, count - 1, _TRIED).astype(np.int64)] @ ours.T
        if float(np.median(tried.max(axis=1))) < _LIKE:
            return None
    likeness = theirs @ ours.T
    order = likeness.argmax(axis=1)
    if len(set(order.tolist())) < len(order) or float(likeness.max(axis=1).min(initial=1.0)) < _LIKE:
        return None
    runner_up = np.partition(likeness, -2, axis=1)[:, -2] if likeness.shape[1] > 1 else np.zeros(len(order))
    if np.any(likeness.max(axis=1) - runner_up < _UNLIKE * (1 - _LIKE)):
        return None
    return tuple(int(i) for i in order)


def _directions(rows: Values) -> Values:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300))


def _shift(reference: Values, candidate: Values) -> Relation | None:
    """Look for the whole buffer moved by some elements, by the correlation of a stretch of it."""
    ours, theirs = reference.reshape(-1), candidate.reshape(-1)
    by = _lag(ours, theirs)
    if by == 0:
        return None
    left = unexplained(np.roll(ours, by), theirs)
    # A buffer that is read too early or late has something else at one end.
    lost = 2 * abs(by) / ours.size
    if left > UNEXPLAINED + min(lost, _MOST_SHIFTED_OUT):
        return None
    return Relation("shift", f"moved by {by} elements along its buffer", left)


def _lag(ours: Values, theirs: Values) -> int:
    """Return by how many elements a buffer looks moved, by a stretch of it; 0 if it does not."""
    if ours.size > _LONGEST:
        middle = slice((ours.size - _LONGEST) // 2, (ours.size + _LONGEST) // 2)
        ours, theirs = ours[middle], theirs[middle]
    spectrum = np.fft.rfft(theirs) * np.conj(np.fft.rfft(ours))
    lag = int(np.fft.irfft(spectrum, ours.size).argmax())
    by = lag if lag <= ours.size // 2 else lag - ours.size
    is_likely = unexplained(np.roll(ours, by), theirs) <= UNEXPLAINED + _MOST_SHIFTED_OUT
    return by if is_likely else 0
