"""From what tensors held on the calibration samples to the range that each is quantized over.

Everything here is merged sample by sample, so memory does not grow with the set: extremes in a first
pass; for entropy and percentile, counts over bins that the extremes fix, in a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from analyzers.records import Array, QuantizeOptions

DEFAULT_BINS = {"minmax": 0, "entropy": 128, "percentile": 2048}  # onnxruntime's
ENTROPY_LEVELS = 128
_SMOOTHING = 1e-4

Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Extremes:
    """The smallest and the largest value of a tensor; infinite or ``nan`` where it was."""

    low: float
    high: float

    @property
    def is_finite(self) -> bool:
        """Both ends are finite."""
        return bool(np.isfinite(self.low) and np.isfinite(self.high))

    @property
    def is_zero(self) -> bool:
        """The tensor held nothing but zeros."""
        return self.low == 0 == self.high

    @property
    def limit(self) -> float:
        """The largest magnitude."""
        return max(abs(self.low), abs(self.high))

    def merge(self, other: Extremes) -> Extremes:
        """Return the extremes of both; a ``nan`` stays."""
        return Extremes(
            float(np.minimum(self.low, other.low)),
            float(np.maximum(self.high, other.high)),
        )


def bins_of(options: QuantizeOptions) -> int:
    """Return the number of histogram bins: even, so that zero is an edge."""
    bins = options.bins or DEFAULT_BINS[options.method]
    return bins + bins % 2


def count_values(values: Array, limit: float, bins: int) -> Counts:
    """Count values in equal bins over [-limit, limit]."""
    if limit == 0:
        return np.zeros(bins, np.int64)
    counts, _ = np.histogram(values, bins=bins, range=(-limit, limit))
    return counts.astype(np.int64)


def choose_range(counts: Counts, extremes: Extremes, options: QuantizeOptions) -> Extremes:
    """Return the range to quantize over; it never exceeds the extremes.

    Args:
        counts: How often values fell into each bin over [-limit, limit]; not read by ``minmax``.
        extremes: The tensor's extremes over all samples.
        options: Method, and its parameters.
    """
    if options.method == "minmax" or not extremes.is_finite or extremes.is_zero:
        return extremes
    if options.method == "entropy":
        low, high = entropy_range(counts, extremes.limit)
    else:
        low, high = percentile_range(counts, extremes.limit, options.percentile, symmetric=options.symmetric)
    return Extremes(max(low, extremes.low), min(high, extremes.high))


def percentile_range(
    counts: Counts, limit: float, percentile: float, *, symmetric: bool
) -> tuple[float, float]:
    """Return the range that holds ``percentile`` percent of the values, to the nearest inner bin edge.

    Asymmetric ranges cut half of the rest at each end, symmetric ones cut by magnitude. As onnxruntime's
    calibrator, so that its users find the same scales.
    """
    bins = len(counts)
    edges = _edges(limit, bins)
    if symmetric:
        by_magnitude = counts[bins // 2 :] + counts[: bins // 2][::-1]
        shares = np.cumsum(by_magnitude / counts.sum())
        high = edges[min(bins // 2 + int(np.searchsorted(shares, percentile / 100)), bins)]
        return -float(high), float(high)
    cut = (100 - percentile) / 200
    shares = np.cumsum(counts / counts.sum())
    first, last = np.searchsorted(shares, (cut, 1 - cut))
    return float(edges[first]), float(edges[last])


def _edges(limit: float, bins: int) -> NDArray[np.float32]:
    return np.linspace(-limit, limit, bins + 1, dtype=np.float32)


def entropy_range(counts: Counts, limit: float, levels: int = ENTROPY_LEVELS) -> tuple[float, float]:
    """Return the range, symmetric around zero, whose quantized distribution is nearest to the real one.

    For every candidate range, the values beyond it are counted at its ends (that is what clipping does),
    the values inside are merged into ``levels`` and spread again over the bins that held any, and the two
    distributions are compared by Kullback-Leibler divergence. With no more bins than levels, as
    onnxruntime's default has it, the only candidate is the whole range.

    Source: Migacz, 8-bit inference with TensorRT, GTC 2017; the smoothing of empty bins as in MXNet's and
    onnxruntime's implementations of it.
    """
    bins = len(counts)
    middle = bins // 2
    edges = _edges(limit, bins)
    best, best_divergence = middle, np.inf
    for half in range(levels // 2, middle + 1):
        start, stop = middle - half, min(middle + half + 1, bins)
        inside = counts[start:stop]
        clipped = inside.copy()
        clipped[0] += counts[:start].sum()
        clipped[-1] += counts[stop:].sum()
        divergence = _divergence(clipped, _merge_and_spread(inside, clipped != 0, levels))
        if divergence < best_divergence:
            best, best_divergence = half, divergence
    return float(edges[middle - best]), float(edges[min(middle + best + 1, bins)])


def _merge_and_spread(inside: Counts, is_used: NDArray[np.bool_], levels: int) -> Counts:
    width = len(inside) // levels
    # The last level also takes what the division leaves over, in its sum but not in its bins.
    starts = np.arange(levels) * width
    sums = np.add.reduceat(inside, starts)
    used = np.add.reduceat(is_used[: levels * width].astype(np.int64), starts)
    means = np.divide(sums, used, out=np.zeros(levels), where=used > 0)
    spread = np.zeros(len(inside), np.int64)
    spread[: levels * width] = np.repeat(means, width)
    return spread


def _divergence(real: Counts, quantized: Counts) -> float:
    smooth_real, smooth_quantized = _smooth(real), _smooth(quantized)
    if smooth_real is None or smooth_quantized is None:
        return float(np.inf)
    p, q = smooth_real / smooth_real.sum(), smooth_quantized / smooth_quantized.sum()
    return float(np.sum(p * np.log(p / q)))


def _smooth(counts: Counts) -> NDArray[np.float64] | None:
    """Move a little mass from used bins to empty ones, so that the divergence is finite."""
    empty = int(np.count_nonzero(counts == 0))
    if empty == len(counts):
        return None
    moved = _SMOOTHING * empty / (len(counts) - empty)
    return np.where(counts == 0, _SMOOTHING, counts - moved)
