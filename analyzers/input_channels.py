"""How the channels of two arrays are related: in which order, by which scale and offset.

Everything is computed from sums over positions, so all orders and kinds of scaling cost one pass. Values at
the ends of the candidate's range are left out where many lie there: they were cut off by a quantizer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Kind = Literal["same", "factor", "common", "channels"]

_COSTS: dict[Kind, float] = {"same": 0.0, "factor": 1.0, "common": 1.05, "channels": 1.3}
_MOST_BRUTE = 4  # channels whose orders are all tried
_MOST_CHANNELS = 512  # beyond it an axis holds positions
_POSITIONS_PER_CHANNEL = 16  # a straight line goes through two points anywhere
_SATURATED_FROM = 0.01  # share of values at an end of the range that a picture does not have by itself
_LEAST_LEFT = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class ChannelFit:
    """``candidate[j] = scale[j] * reference[order[j]] + offset[j]``, and what that leaves unexplained.

    Attributes:
        order: Reference channel of each candidate channel.
        kind: "same": scale 1, offset 0; "factor": one scale; "common": one scale and offset; "channels":
            one of each per channel.
        scale: Per candidate channel.
        offset: Likewise.
        unexplained: Energy of the rest over that of the candidate's spread, 0..1 and more.
        cost: How far-fetched it is.
    """

    order: tuple[int, ...]
    kind: Kind
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    unexplained: float
    cost: float

    @property
    def is_reordered(self) -> bool:
        """The channels are in another order."""
        return self.order != tuple(range(len(self.order)))


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Sums over the positions of candidate channel j that count: ``[i, j]`` with reference channel i."""

    count: Values
    theirs: Values
    theirs_squared: Values
    ours: Values
    ours_squared: Values
    products: Values


def channel_fits(reference: Values, candidate: Values) -> Iterator[ChannelFit]:
    """Yield every order and kind of scaling that is worth a look.

    Args:
        reference: ``(channels, positions)``, finite.
        candidate: The same shape.
    """
    sums = _sums_of(reference, candidate)
    spread = float((sums.theirs_squared - sums.theirs**2 / np.maximum(sums.count, 1)).sum())
    if spread <= 0:
        return
    few = float(sums.count.min()) < _POSITIONS_PER_CHANNEL
    for order in _orders(sums, is_short=few):
        cost = 0.0 if order == tuple(range(len(order))) else 1.0 if order == _reversed(order) else 1.2
        for kind in _COSTS:
            if kind == "channels" and (few or len(order) == 1):
                continue
            scale, offset, rest = _fitted(sums, order, kind)
            yield ChannelFit(
                order=order,
                kind=kind,
                scale=tuple(float(v) for v in scale),
                offset=tuple(float(v) for v in offset),
                unexplained=max(0.0, rest) / spread,
                cost=cost + _COSTS[kind],
            )


def _reversed(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(reversed(range(len(order))))


def _sums_of(reference: Values, candidate: Values) -> _Sums:
    counted = _unsaturated(candidate).astype(np.float64)
    kept = candidate * counted
    return _Sums(
        count=counted.sum(axis=1),
        theirs=kept.sum(axis=1),
        theirs_squared=(kept * candidate).sum(axis=1),
        ours=reference @ counted.T,
        ours_squared=reference**2 @ counted.T,
        products=reference @ kept.T,
    )


def _unsaturated(candidate: Values) -> NDArray[np.bool_]:
    low, high = candidate.min(), candidate.max()
    inside: NDArray[np.bool_] = np.ones(candidate.shape, dtype=np.bool_)
    for end in (low, high):
        at_end = candidate == end
        if at_end.mean() > _SATURATED_FROM:
            inside &= ~at_end
    enough = inside.mean(axis=1) >= _LEAST_LEFT
    inside[~enough] = True
    return inside


def _orders(sums: _Sums, *, is_short: bool) -> list[tuple[int, ...]]:
    """Return the given order, the reversed one, and that in which the channels fit best."""
    channels = len(sums.count)
    given = tuple(range(channels))
    if channels == 1 or channels > _MOST_CHANNELS:
        return [given]
    found = [given, tuple(reversed(given))]
    if channels <= _MOST_BRUTE:
        found += itertools.permutations(given)
    else:
        found += [_best_order(_direct_rests(sums)), *([] if is_short else [_best_order(_line_rests(sums))])]
    return list(dict.fromkeys(found))


def _direct_rests(sums: _Sums) -> Values:
    """Return the energy that differs between reference channel i and candidate channel j."""
    rests: Values = sums.theirs_squared - 2 * sums.products + sums.ours_squared
    return rests


def _line_rests(sums: _Sums) -> Values:
    """Return the share of candidate channel j that no straight line of reference channel i explains."""
    count = np.maximum(sums.count, 1)
    ours = sums.ours_squared - sums.ours**2 / count
    theirs = sums.theirs_squared - sums.theirs**2 / count
    both = sums.products - sums.ours * sums.theirs / count
    with np.errstate(divide="ignore", invalid="ignore"):
        rests: Values = np.nan_to_num(1 - both**2 / (ours * theirs), nan=1.0, posinf=1.0, neginf=1.0)
    return rests


def _best_order(rests: Values) -> tuple[int, ...]:
    """Give every candidate channel a reference channel of its own, the closest pairs first."""
    channels = len(rests)
    order = [-1] * channels
    taken: set[int] = set()
    for flat in np.argsort(rests, axis=None, kind="stable"):
        ours, theirs = divmod(int(flat), channels)
        if order[theirs] < 0 and ours not in taken:
            order[theirs] = ours
            taken.add(ours)
    return tuple(order)


def _fitted(sums: _Sums, order: tuple[int, ...], kind: Kind) -> tuple[Values, Values, float]:
    """Return scale, offset and the unexplained energy of the best fit of this kind."""
    index = (np.array(order), np.arange(len(order)))
    count, y, yy = np.maximum(sums.count, 1), sums.theirs, sums.theirs_squared
    x, xx, xy = sums.ours[index], sums.ours_squared[index], sums.products[index]
    ones = np.ones(len(order))
    if kind == "same":
        scale, offset = ones, 0 * ones
    elif kind == "factor":
        scale, offset = ones * _ratio(xy.sum(), xx.sum()), 0 * ones
    elif kind == "common":
        total = count.sum()
        slope = _ratio(xy.sum() - x.sum() * y.sum() / total, xx.sum() - x.sum() ** 2 / total)
        scale, offset = ones * slope, ones * (y.sum() - slope * x.sum()) / total
    else:
        scale = np.array([_ratio(a, b) for a, b in zip(xy - x * y / count, xx - x**2 / count, strict=True)])
        offset = (y - scale * x) / count
    rests = yy - 2 * (scale * xy + offset * y) + scale**2 * xx + 2 * scale * offset * x + offset**2 * count
    return scale, offset, float(rests.sum())


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator > 0 else 0.0
