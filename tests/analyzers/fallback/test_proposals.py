from __future__ import annotations

from itertools import combinations, islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from analyzers.fallback.proposals import best_sums


@given(st.lists(st.floats(-1, 5), min_size=1, max_size=8), st.integers(1, 4))
def test_all_sets_of_a_size_come_once_by_falling_sum(gains: list[float], size: int) -> None:
    ordered = sorted(gains, reverse=True)
    found = list(best_sums(ordered, size))
    assert sorted(found) == list(combinations(range(len(gains)), size))
    sums = [sum(max(0.0, ordered[i]) for i in chosen) for chosen in found]
    assert all(a >= b - 1e-9 for a, b in pairwise(sums))


def test_the_first_few_of_very_many_sets_come_at_once() -> None:
    first = list(islice(best_sums([1.0 / (i + 1) for i in range(500)], 20), 3))
    assert first[0] == tuple(range(20))
