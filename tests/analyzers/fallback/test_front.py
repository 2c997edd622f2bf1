from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.fallback.front import front_of, knee_of
from analyzers.records import FrontPoint, Trial


def trial(name: str, cost: float, score: float, *, samples: int = 8, layers: int = 1) -> Trial:
    return Trial((name,), score, samples, 0.0, layers=layers, cost=cost)


def points(*curve: tuple[float, float]) -> tuple[FrontPoint, ...]:
    return tuple(FrontPoint((f"p{i}",), score, 1, 1, cost=cost) for i, (cost, score) in enumerate(curve))


def test_the_front_drops_what_something_cheaper_beats_whatever_its_size() -> None:
    trials = [
        trial("dear", 0.9, 0.5),
        trial("start", 0.0, 0.1, layers=0),
        trial("large but cheap", 0.2, 0.4, layers=3),
        trial("small but dear", 0.3, 0.4, layers=1),
        trial("worse", 0.5, 0.3),
    ]
    assert [p.fallback[0] for p in front_of(trials)] == ["start", "large but cheap", "dear"]


def test_among_equals_the_smaller_set_stays_then_the_earlier() -> None:
    trials = [trial("two", 0.2, 0.4, layers=2), trial("one", 0.2, 0.4), trial("later", 0.2, 0.4)]
    assert [p.fallback[0] for p in front_of(trials)] == ["one"]


def test_trials_that_ended_early_say_on_how_many_samples() -> None:
    front = front_of([trial("start", 0.0, 0.1), trial("early", 0.1, 0.2, samples=4)])
    assert [(p.fallback[0], p.samples) for p in front] == [("start", 8), ("early", 4)]


def test_trials_that_overflow_or_have_no_score_are_no_points() -> None:
    trials = [
        trial("nan", 0.0, math.nan),
        Trial(("over",), 0.9, 8, 0.0, overflow=("over",), cost=0.0),
        trial("sound", 0.1, 0.2),
    ]
    assert [p.fallback[0] for p in front_of(trials)] == ["sound"]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=20))
def test_no_trial_beats_a_point_of_the_front(pairs: list[tuple[float, float]]) -> None:
    trials = [trial(str(i), cost, score) for i, (cost, score) in enumerate(pairs)]
    front = front_of(trials)
    for point in front:
        assert not any(t.cost <= point.cost and t.score > point.score for t in trials)
        assert not any(t.cost < point.cost and t.score >= point.score for t in trials)
    assert bool(front) == bool(pairs)


@pytest.mark.parametrize(
    ("curve", "knee"),
    [
        (((0.0, 0.14), (0.16, 0.32), (0.2, 0.33), (1.0, 0.341)), 2),
        (((0.0, 0.14), (0.16, 0.32), (0.3, 0.33), (1.0, 0.341)), 1),
        (((0.0, 0.0), (0.5, 0.9), (1.0, 1.0)), 1),
        (((0.0, 0.0), (0.1, 0.05), (0.2, 0.9), (1.0, 1.0)), 2),
        (((0.0, -10.0), (0.3, 30.0), (1.0, math.inf)), None),
        (((0.0, -math.inf), (0.3, 30.0), (1.0, 40.0)), 1),
        (((0.0, 0.0), (0.5, 0.1), (1.0, 1.0)), None),
        (((0.0, 0.0), (1.0, 1.0)), None),
        (((0.0, 0.0),), None),
        ((), None),
    ],
)
def test_the_knee_lies_farthest_above_the_line_between_the_ends(
    curve: tuple[tuple[float, float], ...], knee: int | None
) -> None:
    front = points(*curve)
    assert knee_of(front) == (None if knee is None else front[knee])
