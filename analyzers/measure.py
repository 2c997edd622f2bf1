"""One pass over a tensor pair, block by block while the block is in cache.

The tensor is seen as ``(outer, channels, inner)``; every block leaves one ``Moments`` per channel. Whole
tensors and slices along the channel axis are pooled from these, so they cost nothing extra.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType

import numpy as np
from numpy.typing import NDArray

from analyzers import moments
from analyzers.levels import Levels, dequantize, read_levels
from analyzers.moments import Moments, Values
from analyzers.records import Array, Quantization, Slice

BLOCK_VALUES = 1 << 17  # the float64 buffers of a block stay in the cache; smaller ones cost more calls
MAX_CHANNELS = 1 << 14  # beyond it the axis holds positions, not channels, and a record would not be small
_LONG_ROW = 64  # shorter rows are reduced across, as columns
_RUN = 1 << 13  # BLAS shares longer vectors among threads, and then sums depend on their number
_CENTRE_BELOW = 1e-4  # centre again where the spread is under this share of the energy

_threads = threading.local()

_Mask = NDArray[np.bool_]
_Block = tuple[slice, slice, slice]


@dataclass(frozen=True, slots=True, eq=False)
class PairMoments:
    """What one pass over a tensor pair leaves.

    Attributes:
        whole: The whole tensor.
        channels: One group per index of axis 1; None where the tensor has no such axis.
        slices: One record per slice asked for, in the order given.
    """

    whole: Moments
    channels: Moments | None
    slices: tuple[Moments, ...]


def measure(
    reference: Array,
    candidate: Array,
    *,
    quantization: Quantization | None = None,
    permutation: Sequence[int] | None = None,
    slices: Sequence[Slice] = (),
    has_channels: bool = True,
) -> PairMoments:
    """Return the moments of a tensor pair.

    Args:
        reference: Any shape and numeric type.
        candidate: The same value; integer codes where ``quantization`` is given.
        quantization: How to turn the codes into real values.
        permutation: Transpose the candidate by this first.
        slices: Parts that are wanted apart; what lies beyond the tensor comes out empty.
        has_channels: Keep the channels apart, where there are some.

    Raises:
        ValueError: The shapes differ.
    """
    levels = None if quantization is None else read_levels(quantization, candidate.shape)
    if permutation is not None:
        candidate = candidate.transpose(permutation)
        levels = None if levels is None else levels.transposed(permutation)
    if reference.shape != candidate.shape:
        raise ValueError(f"a pair has shapes {reference.shape} and {candidate.shape}")
    has_channels = has_channels and reference.ndim >= 2 and 0 < reference.shape[1] <= MAX_CHANNELS
    groups = _measure_groups(reference, candidate, levels, has_channels=has_channels)
    return PairMoments(
        whole=moments.pool(groups),
        channels=groups if has_channels else None,
        slices=tuple(
            moments.pool(groups[part.start : part.stop])
            if has_channels and part.axis == 1
            else _measure_slice(reference, candidate, levels, part)
            for part in slices
        ),
    )


def merge(left: PairMoments, right: PairMoments) -> PairMoments:
    """Return the moments of both; channels are dropped where their number changes from sample to sample."""
    channels = None
    if left.channels is not None and right.channels is not None:
        is_same = left.channels.table.shape == right.channels.table.shape
        channels = moments.merge(left.channels, right.channels) if is_same else None
    return PairMoments(
        whole=moments.merge(left.whole, right.whole),
        channels=channels,
        slices=tuple(moments.merge(a, b) for a, b in zip(left.slices, right.slices, strict=True)),
    )


def _measure_slice(reference: Array, candidate: Array, levels: Levels | None, part: Slice) -> Moments:
    if part.axis >= reference.ndim:
        return moments.empty()
    index = tuple(
        slice(part.start, part.stop) if d == part.axis else slice(None) for d in range(reference.ndim)
    )
    inner = None if levels is None else levels.at(index)
    return moments.pool(_measure_groups(reference[index], candidate[index], inner, has_channels=False))


def _measure_groups(
    reference: Array, candidate: Array, levels: Levels | None, *, has_channels: bool
) -> Moments:
    """Return one group per channel, or a single one."""
    shape = reference.shape
    view = (shape[0], shape[1], math.prod(shape[2:])) if has_channels else (1, 1, math.prod(shape))
    total = moments.empty((view[1],))
    if reference.size == 0:
        return total
    reference, candidate = reference.reshape(view), candidate.reshape(view)
    levels = None if levels is None else levels.reshaped(shape, view)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for block in _blocks(*view):
            inner = None if levels is None else levels.at(block)
            part = _measure_block(reference[block], candidate[block], inner)
            if block[0].start or block[2].start:  # these channels were met before
                part = moments.merge(total[block[1]], part)
            total.table[:, block[1]] = part.table
    return total


def _blocks(outer: int, channels: int, inner: int) -> Iterator[_Block]:
    everything = slice(None)
    together = BLOCK_VALUES // (channels * inner)
    if together:
        for i in range(0, outer, together):
            yield slice(i, i + together), everything, everything
        return
    rows = max(BLOCK_VALUES // inner, 1)
    values = min(inner, BLOCK_VALUES)
    for i in range(outer):
        for c in range(0, channels, rows):
            for k in range(0, inner, values):
                yield slice(i, i + 1), slice(c, c + rows), slice(k, k + values)


def _measure_block(reference: Array, candidate: Array, levels: Levels | None) -> Moments:
    """Return one group per channel of a block ``(outer, channels, inner)``."""
    layout = _Layout.of(*reference.shape)
    table = np.zeros((moments.FIELDS, layout.channels))
    table[moments.SIZE] = table[moments.COUNT] = layout.length
    sides = layout.stacked(reference, candidate if levels is None else dequantize(candidate, levels))
    sums = layout.total(sides)
    finite = None
    if not math.isfinite(sums.sum()):
        finite = _set_apart(table, layout, sides)
        sums = layout.total(sides)
    _write_extremes(table, layout, sides, finite)
    _write_limits(table, layout, sides[0], candidate, levels, finite)
    _write_spreads(table, layout, sides, sums, finite)
    noise = np.subtract(sides[0], sides[1], out=sides[1])
    _write_noise(table, layout, noise, levels, reference.shape)
    return Moments(table)


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a block ``(outer, channels, inner)`` lies in a float64 buffer so that reductions are fast.

    Rows ``(channels, length)`` with ``axis`` -1 where there are enough values per channel, else columns
    ``(length, channels)`` with ``axis`` -2. The two sides are stacked in front, so that one call serves both.
    """

    channels: int
    length: int
    axis: int

    @staticmethod
    def of(outer: int, channels: int, inner: int) -> _Layout:
        length = outer * inner
        is_long = length >= min(_LONG_ROW, channels) and not (inner == 1 and channels >= _LONG_ROW)
        return _Layout(channels, length, -1 if is_long else -2)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of one side."""
        return (self.channels, self.length) if self.axis == -1 else (self.length, self.channels)

    def moved(self, block: Array) -> Array:
        """Return the block with its axes in the order of this layout."""
        return block.transpose((1, 0, 2) if self.axis == -1 else (0, 2, 1))

    def stacked(self, reference: Array, candidate: Array) -> Values:
        """Return float64 copies of the two sides, in memory that the next block will reuse."""
        buffer = _memory()[:2, : self.channels * self.length]
        for side, block in zip(buffer, (reference, candidate), strict=True):
            moved = self.moved(block)
            side.reshape(moved.shape)[...] = moved
        return buffer.reshape((2, *self.shape))

    def per_channel(self, values: Values) -> Values:
        """Return ``(..., channels)`` (or one value for all) so that it broadcasts."""
        return values[..., np.newaxis] if self.axis == -1 else values[..., np.newaxis, :]

    def spread(self, values: Values, block: tuple[int, ...]) -> Values:
        """Return values that broadcast against the block so that they broadcast against this layout."""
        if values.shape[0] == values.shape[2] == 1:
            return self.per_channel(values.reshape(-1))
        return np.asarray(self.moved(np.broadcast_to(values, block)).reshape(self.shape))

    def total(self, values: Values) -> Values:
        """Return the sum per channel."""
        return np.asarray(np.add.reduce(values, axis=self.axis))

    def dot(self, left: Values, right: Values) -> Values:
        """Return the inner product per channel."""
        if self.axis == -1 and self.length <= _RUN:
            return _row_dots(left, right)
        if self.axis == -1:
            whole = self.length - self.length % _RUN
            rest = _row_dots(left[..., whole:], right[..., whole:])
            runs = (*left.shape[:-1], -1, _RUN)
            parts = _row_dots(left[..., :whole].reshape(runs), right[..., :whole].reshape(runs))
            return np.asarray(parts.sum(axis=-1) + rest)
        product = _memory()[2:].reshape(-1)[: left.size].reshape(left.shape)
        np.multiply(left, right, out=product)
        return self.total(product)

    def count(self, mask: _Mask) -> Values:
        """Return how often the mask is true, per channel."""
        return np.asarray(mask.sum(axis=self.axis, dtype=np.uint32), dtype=np.float64)

    def only(self, channels: _Mask) -> tuple[EllipsisType | slice | _Mask, ...]:
        """Return the index of some channels."""
        return (..., channels, slice(None)) if self.axis == -1 else (..., channels)


def _row_dots(left: Values, right: Values) -> Values:
    return np.asarray(np.matmul(left[..., np.newaxis, :], right[..., :, np.newaxis])[..., 0, 0])


def _memory() -> Values:
    """Return this thread's working memory ``(4, BLOCK_VALUES)``; fresh pages would cost more than sums."""
    memory: Values | None = getattr(_threads, "memory", None)
    if memory is None:
        memory = _threads.memory = np.empty((4, BLOCK_VALUES))
    return memory


def _set_apart(table: Values, layout: _Layout, sides: Values) -> _Mask:
    """Count what is not finite, set it to zero on both sides, and return where both are finite."""
    nan, inf = np.isnan(sides), np.isinf(sides)
    finite = ~(nan[0] | nan[1] | inf[0] | inf[1])
    table[moments.COUNT] = layout.count(finite)
    table[[moments.REFERENCE_NAN, moments.CANDIDATE_NAN]] = layout.count(nan)
    table[moments.BOTH_NAN] = layout.count(nan[0] & nan[1])
    table[[moments.REFERENCE_INF, moments.CANDIDATE_INF]] = layout.count(inf)
    table[moments.BOTH_INF] = layout.count(inf[0] & (sides[0] == sides[1]))
    sides[:, ~finite] = 0.0
    return np.asarray(finite)


def _write_extremes(table: Values, layout: _Layout, sides: Values, finite: _Mask | None) -> None:
    low = sides if finite is None else np.where(finite, sides, np.inf)
    high = sides if finite is None else np.where(finite, sides, -np.inf)
    np.minimum.reduce(low, axis=layout.axis, out=table[moments.MINIMA])
    np.maximum.reduce(high, axis=layout.axis, out=table[moments.MAXIMA])


def _write_limits(
    table: Values,
    layout: _Layout,
    reference: Values,
    codes: Array,
    levels: Levels | None,
    finite: _Mask | None,
) -> None:
    if levels is None or levels.limits is None:
        table[moments.AT_LIMIT] = table[moments.OUTSIDE] = np.nan
        return
    low, high = levels.limits
    if codes.min() <= low or codes.max() >= high:
        table[moments.AT_LIMIT] = ((codes == low) | (codes == high)).sum(axis=(0, 2), dtype=np.uint32)
    bounds = levels.bounds()
    lowest, highest = table[moments.REFERENCE_MIN].min(), table[moments.REFERENCE_MAX].max()
    if lowest >= bounds[0].max() and highest <= bounds[1].min():
        return
    minima, maxima = layout.per_channel(table[[moments.REFERENCE_MIN, moments.REFERENCE_MAX]])
    bottom, top = (
        np.broadcast_to(bound, np.broadcast_shapes(bound.shape, minima.shape))
        for bound in (layout.spread(bound, codes.shape) for bound in bounds)
    )
    exceeds = np.asarray(((minima < bottom) | (maxima > top)).any(axis=layout.axis))
    if exceeds.any():
        some = layout.only(exceeds)
        beyond = (reference[some] < bottom[some]) | (reference[some] > top[some])
        table[moments.OUTSIDE, exceeds] = layout.count(beyond if finite is None else beyond & finite[some])


def _write_spreads(table: Values, layout: _Layout, sides: Values, sums: Values, finite: _Mask | None) -> None:
    means = sums / np.maximum(table[moments.COUNT], 1.0)
    energies = layout.dot(sides, sides)
    table[moments.MEANS] = means
    np.subtract(energies, sums * means, out=table[moments.SPREADS])
    table[moments.CO_SPREAD] = layout.dot(sides[0], sides[1]) - sums[0] * means[1]
    cancelled = np.any(table[moments.SPREADS] < _CENTRE_BELOW * energies, axis=0)
    if layout.length > 1 and cancelled.any():
        some = layout.only(cancelled)
        mask = None if finite is None else finite[some]
        table[:, cancelled] = _centred(table[:, cancelled], layout, sides[some], mask)


def _centred(table: Values, layout: _Layout, sides: Values, finite: _Mask | None) -> Values:
    """Return the table with means, spreads and co-moment from values that are centred first."""
    minima, means = table[moments.MINIMA], table[moments.MEANS]
    means = np.where(minima == table[moments.MAXIMA], minima, means)  # exact for constants
    centred = sides - layout.per_channel(means)
    if finite is not None:
        centred *= finite
    rest = layout.total(centred)
    shift = rest / np.maximum(table[moments.COUNT], 1.0)
    table[moments.MEANS] = means + shift
    table[moments.SPREADS] = np.maximum(layout.dot(centred, centred) - rest * shift, 0.0)
    table[moments.CO_SPREAD] = layout.dot(centred[0], centred[1]) - rest[0] * shift[1]
    return table


def _write_noise(
    table: Values, layout: _Layout, noise: Values, levels: Levels | None, block: tuple[int, ...]
) -> None:
    table[moments.NOISE] = layout.dot(noise, noise)
    above, below = np.maximum.reduce(noise, axis=layout.axis), np.minimum.reduce(noise, axis=layout.axis)
    np.maximum(above, -below, out=table[moments.MAX_ERROR])
    if levels is None:
        table[moments.SCALED_NOISE] = np.nan
        return
    scale = layout.spread(np.where(levels.scale > 0, levels.scale, np.nan).astype(np.float64), block)
    if scale.size in (1, layout.channels):
        table[moments.SCALED_NOISE] = table[moments.NOISE] / scale.reshape(-1) ** 2
    else:
        scaled = noise / scale
        table[moments.SCALED_NOISE] = layout.dot(scaled, scaled)
