"""Find out whether two pictures show the same at another place, or differ in what fills the border only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.records import Array

_PEAKS = 8  # places where the correlation is highest that are tried
_LEAST_OVERLAP = 0.4
_MOST_UNEXPLAINED = 0.01
_FLAT = 1e-3  # of the spread: a fill is as constant as this


@dataclass(frozen=True, slots=True)
class Shift:
    """The candidate's picture lies this many pixels further down and right.

    Attributes:
        rows: Rows further down.
        columns: Columns further right.
        unexplained: Energy of the rest over that of the candidate's spread, where the two overlap.
        overlap: Share of the candidate's picture that both have.
    """

    rows: int
    columns: int
    unexplained: float
    overlap: float


@dataclass(frozen=True, slots=True)
class Fill:
    """The two differ only where both are constant.

    Attributes:
        ours: The value there on the reference's side.
        theirs: On the candidate's.
        share: Share of the values that this concerns.
    """

    ours: float
    theirs: float
    share: float


def find_shift(reference: Sequence[Array], candidate: Sequence[Array]) -> Shift | None:
    """Return the shift that fits every sample; None where there is none.

    Args:
        reference: Arrays ``(..., rows, columns)``, finite.
        candidate: The same rank; rows and columns may differ.
    """
    if not reference or any(
        a.ndim != b.ndim or a.ndim < 2 for a, b in zip(reference, candidate, strict=True)
    ):
        return None
    best: Shift | None = None
    for rows, columns in _peaks(reference[0], candidate[0]):
        found = [_at(a, b, rows, columns) for a, b in zip(reference, candidate, strict=True)]
        kept = [shift for shift in found if shift is not None]
        if len(kept) < len(found):
            continue
        worst = max(kept, key=lambda shift: shift.unexplained)
        if worst.unexplained <= _MOST_UNEXPLAINED and (best is None or worst.unexplained < best.unexplained):
            best = worst
    return best


def find_fill(reference: Sequence[Array], candidate: Sequence[Array]) -> Fill | None:
    """Return the fills if these are all that differs between samples of equal shapes; None otherwise."""
    found: list[Fill] = []
    for ours, theirs in zip(reference, candidate, strict=True):
        if ours.shape != theirs.shape:
            return None
        spread = float(max(np.ptp(ours), np.ptp(theirs)))
        differs = np.abs(ours - theirs) > _FLAT * spread
        if not differs.any():
            continue
        a, b = ours[differs], theirs[differs]
        is_flat = max(float(np.ptp(a)), float(np.ptp(b))) <= _FLAT * spread
        if not is_flat or differs.mean() > 1 - _LEAST_OVERLAP or a.size < 2:
            return None
        found.append(Fill(float(a.mean()), float(b.mean()), float(differs.mean())))
    if not found or max(np.ptp([f.ours for f in found]), np.ptp([f.theirs for f in found])) > 1e-6:
        return None
    return found[0]


def _peaks(reference: Array, candidate: Array) -> list[tuple[int, int]]:
    """Return the likeliest shifts by phase correlation (Kuglin and Hines, 1975), the best first."""
    ours, theirs = _picture(reference), _picture(candidate)
    shape = tuple(a + b for a, b in zip(ours.shape, theirs.shape, strict=True))
    a, b = np.fft.rfft2(ours, shape), np.fft.rfft2(theirs, shape)
    cross = b * np.conj(a)
    surface = np.fft.irfft2(cross / np.maximum(np.abs(cross), 1e-12), shape)
    found = []
    for flat in np.argsort(-surface, axis=None)[:_PEAKS]:
        row, column = np.unravel_index(int(flat), shape)
        rows, columns = (
            int(place) if place < extent else int(place) - size
            for place, extent, size in zip((row, column), theirs.shape, shape, strict=True)
        )
        found.append((rows, columns))
    return found


def _picture(array: Array) -> NDArray[np.float64]:
    picture = array.astype(np.float64).reshape(-1, *array.shape[-2:]).mean(axis=0)
    result: NDArray[np.float64] = picture - picture.mean()
    return result


def _at(reference: Array, candidate: Array, rows: int, columns: int) -> Shift | None:
    """Return how well one scale and offset explain the overlap at a shift; None for too little overlap."""
    cut = [
        (slice(max(0, -move), min(a, b - move)), slice(max(0, move), min(b, a + move)))
        for move, a, b in zip((rows, columns), reference.shape[-2:], candidate.shape[-2:], strict=True)
    ]
    ours = reference[..., cut[0][0], cut[1][0]].astype(np.float64)
    theirs = candidate[..., cut[0][1], cut[1][1]].astype(np.float64)
    if ours.shape != theirs.shape or theirs.size < _LEAST_OVERLAP * candidate.size:
        return None
    x, y = ours - ours.mean(), theirs - theirs.mean()
    energy = float((x * x).sum() * (y * y).sum())
    if energy <= 0:
        return None
    unexplained = max(0.0, 1 - float((x * y).sum()) ** 2 / energy)
    return Shift(rows, columns, unexplained, theirs.size / candidate.size)
