"""Which sets of a given size are worth a trial, most promising first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence


def best_sums(gains: Sequence[float], size: int) -> Iterator[tuple[int, ...]]:
    """Yield index tuples of ``size`` by falling sum of gains, ties in index order.

    Args:
        gains: Falling; negative ones count as 0 (a layer cannot hurt a set in this model).
        size: Members per tuple.
    """
    values = [max(0.0, gain) for gain in gains]
    if size > len(values):
        return
    first = tuple(range(size))
    heap = [(-sum(values[:size]), first)]
    seen = {first}
    while heap:
        _, chosen = heapq.heappop(heap)
        yield chosen
        for following in _moved_on(chosen, len(values)):
            if following not in seen:
                seen.add(following)
                heapq.heappush(heap, (-sum(values[i] for i in following), following))


def _moved_on(chosen: tuple[int, ...], count: int) -> Iterator[tuple[int, ...]]:
    """Yield the tuples in which one index is one place further down."""
    for position, index in enumerate(chosen):
        limit = chosen[position + 1] if position + 1 < len(chosen) else count
        if index + 1 < limit:
            yield (*chosen[:position], index + 1, *chosen[position + 1 :])
