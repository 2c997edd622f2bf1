from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from analyzers.ddmin import minimize
from analyzers.steps import Steps, finish


def remembered(
    test: Callable[[frozenset[str]], bool], asked: set[frozenset[str]]
) -> Callable[[frozenset[str]], Steps[bool]]:
    def is_enough(kept: frozenset[str]) -> Steps[bool]:
        asked.add(kept)
        yield from ()
        return test(kept)

    return is_enough


@given(st.integers(1, 40), st.data())
def test_the_needed_members_are_found_exactly_when_they_are_independent(
    size: int, data: st.DataObject
) -> None:
    items = [f"l{i}" for i in range(size)]
    needed = data.draw(st.sets(st.sampled_from(items), min_size=1, max_size=4))
    for try_parts in (True, False):
        asked: set[frozenset[str]] = set()
        kept = finish(minimize(items, remembered(lambda s: needed <= s, asked), try_parts=try_parts))
        assert set(kept) == needed
        assert frozenset() not in asked


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_the_result_is_enough_and_no_member_can_go_even_for_an_arbitrary_test(size: int, seed: int) -> None:
    items = [f"l{i}" for i in range(size)]

    def test(kept: frozenset[str]) -> bool:
        # An arbitrary, non-monotone but repeatable answer; the whole set is enough.
        return len(kept) == size or hash((seed, tuple(sorted(int(k[1:]) for k in kept)))) % 3 == 0

    asked: set[frozenset[str]] = set()
    kept = finish(minimize(items, remembered(test, asked)))
    assert test(frozenset(kept))
    for member in kept:
        rest = frozenset(kept) - {member}
        assert not rest or (rest in asked and not test(rest))


def test_two_of_a_hundred_take_few_tests() -> None:
    items = [f"l{i}" for i in range(100)]
    asked: set[frozenset[str]] = set()
    kept = finish(minimize(items, remembered(lambda s: {"l17", "l83"} <= s, asked)))
    assert kept == ("l17", "l83")
    assert len(asked) < 50
