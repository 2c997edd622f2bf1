"""The mergeable record that one pass over a tensor pair leaves behind.

Every per-tensor metric is a pure function of it. Records of blocks, samples or workers add up in any
order: counts and sums add, extremes take the extreme, means and centred second moments follow Chan, Golub
and LeVeque (1979), "Updating formulae and a pairwise algorithm for computing sample variances". Raw sums
of squares are never kept: they lose the spread where the mean is much larger than it.

Only positions where both sides are finite enter sums and extremes; the others are counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.records import Stats

Values = NDArray[np.float64]

# Rows of the table. Those of one kind lie together, so that merging takes a handful of array operations.
SIZE, COUNT, REFERENCE_NAN, CANDIDATE_NAN, BOTH_NAN, REFERENCE_INF, CANDIDATE_INF, BOTH_INF = range(8)
NOISE, SCALED_NOISE, AT_LIMIT, OUTSIDE = range(8, 12)
REFERENCE_MEAN, CANDIDATE_MEAN, REFERENCE_SPREAD, CANDIDATE_SPREAD, CO_SPREAD = range(12, 17)
REFERENCE_MIN, CANDIDATE_MIN, REFERENCE_MAX, CANDIDATE_MAX, MAX_ERROR = range(17, 22)
FIELDS = 22

SUMS = slice(SIZE, OUTSIDE + 1)
MEANS = slice(REFERENCE_MEAN, CANDIDATE_MEAN + 1)
SPREADS = slice(REFERENCE_SPREAD, CANDIDATE_SPREAD + 1)
MINIMA = slice(REFERENCE_MIN, CANDIDATE_MIN + 1)
MAXIMA = slice(REFERENCE_MAX, CANDIDATE_MAX + 1)
_MAXIMA = slice(REFERENCE_MAX, MAX_ERROR + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Statistics of a tensor pair, or of each group (channel) of one.

    Attributes:
        table: float64, shape ``(FIELDS,)`` for a whole tensor, ``(FIELDS, groups)`` for groups; the
            properties below give the rows their names and have the shape of the groups.
    """

    table: Values

    @property
    def size(self) -> Values:
        """Positions seen, finite or not."""
        return self._row(SIZE)

    @property
    def count(self) -> Values:
        """Positions where both sides are finite; all sums below are over these."""
        return self._row(COUNT)

    @property
    def one_sided_nan(self) -> Values:
        """NaNs that the other side does not have at the same position."""
        return self._row(REFERENCE_NAN) + self._row(CANDIDATE_NAN) - 2 * self._row(BOTH_NAN)

    @property
    def one_sided_inf(self) -> Values:
        """Infinite values that the other side does not have at the same position, with the same sign."""
        return self._row(REFERENCE_INF) + self._row(CANDIDATE_INF) - 2 * self._row(BOTH_INF)

    @property
    def one_sided(self) -> Values:
        """NaN or infinite values without their like at the same position of the other side."""
        return self.one_sided_nan + self.one_sided_inf

    @property
    def noise(self) -> Values:
        """Sum of squared differences."""
        return self._row(NOISE)

    @property
    def scaled_noise(self) -> Values:
        """Sum of squared differences in steps of the candidate's scale; nan where it has none."""
        return self._row(SCALED_NOISE)

    @property
    def at_limit(self) -> Values:
        """Candidate values at the limits of its integer type; nan where it has none."""
        return self._row(AT_LIMIT)

    @property
    def outside(self) -> Values:
        """Reference values that lie over half a step outside the candidate's range; nan where it has none."""
        return self._row(OUTSIDE)

    @property
    def reference_mean(self) -> Values:
        """Mean of the reference."""
        return self._row(REFERENCE_MEAN)

    @property
    def candidate_mean(self) -> Values:
        """Mean of the candidate."""
        return self._row(CANDIDATE_MEAN)

    @property
    def reference_energy(self) -> Values:
        """Sum of squares of the reference."""
        return self._row(REFERENCE_SPREAD) + self.count * self.reference_mean**2

    @property
    def candidate_energy(self) -> Values:
        """Sum of squares of the candidate."""
        return self._row(CANDIDATE_SPREAD) + self.count * self.candidate_mean**2

    @property
    def inner_product(self) -> Values:
        """Sum of products of the two sides."""
        return self._row(CO_SPREAD) + self.count * self.reference_mean * self.candidate_mean

    @property
    def max_error(self) -> Values:
        """Largest absolute difference."""
        return self._row(MAX_ERROR)

    @property
    def is_constant(self) -> NDArray[np.bool_]:
        """Both sides hold one value only."""
        t = self.table
        return np.asarray(
            (self.count > 0) & (t[REFERENCE_MIN] == t[REFERENCE_MAX]) & (t[CANDIDATE_MIN] == t[CANDIDATE_MAX])
        )

    def _row(self, index: int) -> Values:
        return np.asarray(self.table[index])

    def __getitem__(self, groups: int | slice) -> Moments:
        """Return the moments of some groups."""
        return Moments(self.table[:, groups])


def empty(groups: tuple[int, ...] = ()) -> Moments:
    """Return the moments of nothing: the neutral element of ``merge``."""
    table = np.zeros((FIELDS, *groups))
    table[MINIMA] = np.inf
    table[_MAXIMA] = -np.inf
    table[MAX_ERROR] = 0.0
    return Moments(table)


def merge(left: Moments, right: Moments) -> Moments:
    """Return the moments of both; associative and commutative up to rounding."""
    a, b = left.table, right.table
    table = np.empty_like(a)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add(a[SUMS], b[SUMS], out=table[SUMS])
        share = b[COUNT] / np.maximum(table[COUNT], 1.0)
        delta = b[MEANS] - a[MEANS]
        weighted = delta * (a[COUNT] * share)
        table[MEANS] = a[MEANS] + delta * share
        table[SPREADS] = a[SPREADS] + b[SPREADS] + delta * weighted
        table[CO_SPREAD] = a[CO_SPREAD] + b[CO_SPREAD] + delta[0] * weighted[1]
        np.minimum(a[MINIMA], b[MINIMA], out=table[MINIMA])
        np.maximum(a[_MAXIMA], b[_MAXIMA], out=table[_MAXIMA])
    return Moments(table)


def pool(groups: Moments) -> Moments:
    """Return the moments of all groups taken together."""
    parts = groups.table
    if parts.shape[1] < 2:
        return Moments(parts[:, 0].copy()) if parts.shape[1] else empty()
    table = np.empty(FIELDS)
    with np.errstate(over="ignore", invalid="ignore"):
        table[SUMS] = parts[SUMS].sum(axis=1)
        weights = parts[COUNT]
        table[MEANS] = parts[MEANS] @ weights / max(table[COUNT], 1.0)
        delta = parts[MEANS] - table[MEANS, np.newaxis]
        weighted = delta * weights
        table[SPREADS] = parts[SPREADS].sum(axis=1) + (delta * weighted).sum(axis=1)
        table[CO_SPREAD] = parts[CO_SPREAD].sum() + delta[0] @ weighted[1]
        table[MINIMA] = parts[MINIMA].min(axis=1)
        table[_MAXIMA] = parts[_MAXIMA].max(axis=1)
    return Moments(table)


def reference_stats(whole: Moments) -> Stats:
    """Return minimum, maximum, mean and standard deviation of the reference side."""
    return _stats(whole, REFERENCE_MIN, REFERENCE_MAX, REFERENCE_MEAN, REFERENCE_SPREAD)


def candidate_stats(whole: Moments) -> Stats:
    """Return minimum, maximum, mean and standard deviation of the candidate side."""
    return _stats(whole, CANDIDATE_MIN, CANDIDATE_MAX, CANDIDATE_MEAN, CANDIDATE_SPREAD)


def _stats(whole: Moments, low: int, high: int, mean: int, spread: int) -> Stats:
    count = float(whole.count)
    if count == 0:
        return Stats(min=np.nan, max=np.nan, mean=np.nan, std=np.nan)
    t = whole.table
    return Stats(
        min=float(t[low]), max=float(t[high]), mean=float(t[mean]), std=float(np.sqrt(t[spread] / count))
    )
