from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.errors import InputError
from analyzers.fallback.answer import Setting
from analyzers.fallback.search import ranked, search
from analyzers.records import Fidelity, Layer, Ranking, SearchOptions, SearchResult, Trial
from analyzers.steps import Step, Steps, finish

Value = Callable[[frozenset[str]], float]
SAMPLES = 128


def layers_of(size: int) -> list[Layer]:
    """A chain of convolutions."""
    return [
        Layer(f"l{i}", "Conv", (f"l{i}", f"l{i}/relu"), (f"t{i}",), (f"t{i + 1}",), False, True)
        for i in range(size)
    ]


class FakeScore:
    def __init__(
        self, value: Value, overflow: frozenset[str] = frozenset(), *, samples: int = SAMPLES
    ) -> None:
        self.value = value
        self.samples = samples
        self.overflow = overflow
        self.asked: list[frozenset[str]] = []

    def __call__(self, fallback: frozenset[str], *, stage: str = "") -> Trial:
        self.asked.append(fallback)
        over = tuple(sorted(fallback & self.overflow))
        return Trial(tuple(sorted(fallback)), self.value(fallback), self.samples, 0.5, stage, over)


def run(
    value: Value | FakeScore,
    order: Sequence[str],
    *,
    size: int,
    target: float = 0.9,
    reference_score: float = 1.0,
    floor: float | None = 0.05,
    unit: str = "",
    gains: Sequence[float] | None = None,
    samples: int = SAMPLES,
    **options: object,
) -> tuple[SearchResult, FakeScore]:
    score = value if isinstance(value, FakeScore) else FakeScore(value, samples=samples)
    wanted = SearchOptions(**({"target": target} | options))  # type: ignore[arg-type]
    setting = Setting(reference_score, floor, Fidelity(0.1, 0.1, 0.0), 2.0, samples, "ap", unit)
    result = finish(search(layers_of(size), score, ranked(order, gains), options=wanted, setting=setting))
    assert len(score.asked) == len(set(score.asked)), "a set was scored twice"
    return result, score


def check_claims(result: SearchResult, value: Value, forced: frozenset[str] = frozenset()) -> None:
    """Whatever the search says must be true of the score function."""
    chosen = frozenset(result.fallback)
    if math.isnan(result.score):
        assert not result.reached
        return
    assert result.reached == (value(chosen) >= result.target)
    if result.reached:
        assert result.score == value(chosen)
    if result.minimal:
        for member in chosen - forced:
            assert value(chosen - {member}) < result.target
        assert len(result.proof) == len(chosen - forced)
        for trial in result.proof:
            assert len(chosen - frozenset(trial.fallback)) == 1
            assert trial.score < result.target


def names(size: int) -> list[str]:
    return [f"l{i}" for i in range(size)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.data())
def test_needed_layers_are_found_wherever_the_ranking_puts_them(size: int, data: st.DataObject) -> None:
    needed = data.draw(st.frozensets(st.sampled_from(names(size)), min_size=1, max_size=5))
    order = data.draw(st.permutations(names(size)))

    def value(fallback: frozenset[str]) -> float:
        return 0.95 if needed <= fallback else 0.3

    result, _ = run(value, order, size=size)
    assert result.reached
    assert result.minimal
    assert set(result.fallback) == needed
    check_claims(result, value)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 10), st.integers(0, 2**32 - 1), st.data())
def test_claims_hold_for_arbitrary_scores_that_cancel_interact_and_jump(
    size: int, seed: int, data: st.DataObject
) -> None:
    everything = frozenset(names(size))

    def value(fallback: frozenset[str]) -> float:
        if fallback == everything:
            return 1.0
        return random.Random(f"{seed} {sorted(fallback)}").random()

    order = data.draw(st.permutations(names(size)))
    result, score = run(value, order, size=size, target=0.8)
    assert result.reached
    assert result.minimal
    check_claims(result, value)
    assert result.evaluations == 2.0 + len(score.asked)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.data())
def test_constraints_and_budget_are_respected_by_every_trial(size: int, data: st.DataObject) -> None:
    needed = data.draw(st.frozensets(st.sampled_from(names(size)), min_size=1, max_size=4))
    kept = data.draw(st.frozensets(st.sampled_from(names(size)), max_size=3))
    forced = data.draw(st.frozensets(st.sampled_from(names(size)), max_size=3)) - kept
    budget = data.draw(st.floats(1.0, 40.0))

    def value(fallback: frozenset[str]) -> float:
        return 0.95 if needed <= fallback else 0.3 + 0.01 * len(needed & fallback)

    result, score = run(
        value,
        names(size),
        size=size,
        keep_int8=tuple(sorted(kept)),
        force_fallback=tuple(sorted(forced)),
        budget=budget,
    )
    check_claims(result, value, forced)
    assert result.evaluations <= budget or not score.asked
    assert all(not (fallback & kept) for fallback in score.asked)
    assert all(forced <= fallback for fallback in score.asked if fallback)
    if needed & kept:
        assert not result.reached
    elif budget > 2 + 3 * size:
        assert result.reached
        assert set(result.fallback) == needed | forced


def test_the_best_two_layers_take_few_trials() -> None:
    def value(fallback: frozenset[str]) -> float:
        return 0.33 if {"l40", "l44"} <= fallback else 0.14

    order = ["l40", "l44", *[n for n in names(100) if n not in ("l40", "l44")]]
    gains = [0.4, 0.3, 0.1] + [0.002] * 97
    result, score = run(value, order, size=100, target=0.325, gains=gains)
    assert result.fallback == ("l40", "l44")
    # Candidate, all-fallback, two prefixes, one removal, and a look for one layer that would do alone.
    assert len(score.asked) <= 6


def test_a_near_miss_is_tried_with_one_more_layer_before_it_is_doubled() -> None:
    def value(fallback: frozenset[str]) -> float:
        if not {"l40", "l44"} <= fallback:
            return 0.14
        return 0.33 if "l7" in fallback else 0.322

    order = ["l40", "l44", "l1", "l7", *[n for n in names(100) if n not in ("l40", "l44", "l1", "l7")]]
    gains = [0.4, 0.3, 0.1, 0.05] + [0.001] * 96
    result, score = run(value, order, size=100, target=0.325, gains=gains)
    assert result.fallback == ("l7", "l40", "l44")
    assert result.minimal
    assert len(score.asked) <= 10


def test_a_smaller_set_that_the_ranking_hid_is_found_by_refinement() -> None:
    """The prefix needs both of the first two; the third alone would do."""

    def value(fallback: frozenset[str]) -> float:
        return 0.95 if {"l1", "l2"} <= fallback or "l3" in fallback else 0.2

    result, _ = run(value, ["l1", "l2", "l3", "l0", "l4"], size=5, gains=[0.5, 0.4, 0.3, 0.0, 0.0], samples=8)
    assert result.fallback == ("l3",)
    assert result.minimal


def test_two_layers_of_which_one_alone_does_nothing_are_found() -> None:
    def value(fallback: frozenset[str]) -> float:
        return 0.95 if {"l2", "l7"} <= fallback else 0.0

    result, _ = run(value, names(10), size=10)
    assert result.fallback == ("l2", "l7")
    assert result.minimal


def test_errors_that_cancel_are_reported_and_the_answer_still_holds() -> None:
    """Lifting l1 without l5 hurts; the prefix of four misses although the prefix of two reaches."""

    def value(fallback: frozenset[str]) -> float:
        good = 0.95 if "l0" in fallback else 0.4
        return good - (0.3 if ("l3" in fallback) != ("l5" in fallback) else 0.0)

    result, _ = run(value, ["l3", "l0", "l5", "l1", "l2", "l4"], size=6, samples=8)
    assert result.reached
    check_claims(result, value)
    assert result.fallback == ("l0",)
    assert "non_monotone" in {w.code for w in result.warnings}


def test_a_candidate_that_passes_needs_no_layer() -> None:
    result, score = run(lambda fallback: 0.95, names(5), size=5)
    assert result.reached
    assert result.minimal
    assert result.fallback == ()
    assert result.front[0].layers == 0
    assert score.asked == [frozenset()]


@pytest.mark.parametrize(
    ("reference_score", "floor", "words"),
    [
        (0.01, 0.05, "preprocessing and decoder"),
        (0.5, 0.05, "less than the target"),
        (math.nan, None, "less"),
    ],
)
def test_a_reference_that_scores_too_little_stops_before_any_trial(
    reference_score: float, floor: float | None, words: str
) -> None:
    result, score = run(lambda fallback: 1.0, names(3), size=3, reference_score=reference_score, floor=floor)
    assert not result.reached
    assert words in result.reason
    assert score.asked == []


def test_bounds_that_miss_are_named_and_nothing_is_ranked() -> None:
    ranked_layers: list[tuple[str, ...]] = []

    def rank(free: tuple[str, ...]) -> Steps[Ranking]:
        ranked_layers.append(free)
        yield from ()
        return Ranking(free, (1.0,) * len(free), 1.0)

    score = FakeScore(lambda fallback: 0.5 + 0.01 * len(fallback))
    setting = Setting(1.0, 0.05, Fidelity(0.5, 0.5, 0.0), 0.0, SAMPLES, "ap")
    result = finish(search(layers_of(4), score, rank, options=SearchOptions(max_drop=0.1), setting=setting))
    assert not result.reached
    assert "Not reached by these bounds" in result.reason
    assert result.fallback == ("l0", "l1", "l2", "l3")
    assert result.score == pytest.approx(0.54)
    assert ranked_layers == []


def test_layers_that_overflow_leave_the_set_and_are_reported() -> None:
    score = FakeScore(lambda fallback: 0.95 if "l2" in fallback else 0.2, frozenset({"l4"}))
    result, _ = run(score, ["l4", "l2", "l0", "l1", "l3"], size=5)
    assert result.reached
    assert result.fallback == ("l2",)
    assert [(w.code, w.where) for w in result.warnings] == [("fp16_overflow", "l4")]
    assert sum("l4" in fallback for fallback in score.asked) == 1


def test_a_forced_layer_that_overflows_is_named_as_the_reason() -> None:
    score = FakeScore(lambda fallback: 0.95 if "l2" in fallback else 0.2, frozenset({"l4"}))
    result, _ = run(score, names(5), size=5, force_fallback=("l4",))
    assert not result.reached
    assert "l4" in result.reason


def test_a_limit_on_layers_gives_the_best_set_within_it() -> None:
    def value(fallback: frozenset[str]) -> float:
        return 0.3 + 0.2 * len(fallback & {"l1", "l3", "l5"})

    result, _ = run(value, ["l1", "l3", "l5", "l0", "l2", "l4"], size=6, max_layers=2)
    assert not result.reached
    assert result.fallback == ("l1", "l3")
    assert "at most 2" in result.reason
    assert "3" in result.reason


def test_a_spent_budget_says_what_is_unproven() -> None:
    needed = frozenset(names(40)[::3])

    def value(fallback: frozenset[str]) -> float:
        return 0.95 if needed <= fallback else 0.3

    result, score = run(value, names(40), size=40, budget=16)
    assert result.reached
    assert not result.minimal
    assert len(score.asked) == 14
    assert "member_not_proven" in {w.code for w in result.warnings}


def test_layers_that_are_not_quantized_or_take_their_producers_precision_never_join() -> None:
    layers = [
        Layer("conv", "Conv", ("conv",), ("x",), ("a",), False, True),
        Layer("pool", "MaxPool", ("pool",), ("a",), ("b",), True, True),
        Layer("float", "Exp", ("float",), ("b",), ("c",), False, False),
        Layer("last", "Conv", ("last",), ("c",), ("d",), False, True),
    ]
    score = FakeScore(lambda fallback: 0.95 if len(fallback) == 2 else 0.2)
    setting = Setting(1.0, 0.05, Fidelity(0.2, 0.2, 0.0), 0.0, SAMPLES, "ap")
    result = finish(
        search(layers, score, ranked(["conv", "last"]), options=SearchOptions(target=0.9), setting=setting)
    )
    assert result.fallback == ("conv", "last")
    assert result.fallback_nodes == ("conv", "last")
    assert frozenset().union(*score.asked) == {"conv", "last"}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"target": None}, "target_missing"),
        ({"max_drop": 0.1}, "target_ambiguous"),
        ({"keep_int8": ("nothing*",)}, "unknown_layer"),
        ({"keep_int8": ("l1",), "force_fallback": ("l1/relu",)}, "contradicting_constraints"),
        ({"max_layers": 1, "force_fallback": ("l[01]",)}, "contradicting_constraints"),
        ({"budget": 0.0}, "option_out_of_range"),
        ({"holdout": 1.0}, "option_out_of_range"),
    ],
)
def test_impossible_wishes_are_input_errors(options: dict[str, object], code: str) -> None:
    with pytest.raises(InputError) as caught:
        run(lambda fallback: 1.0, names(3), size=3, **options)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_a_largest_drop_in_decibels_is_an_input_error() -> None:
    with pytest.raises(InputError) as caught:
        run(lambda fallback: 1.0, names(3), size=3, unit="dB", target=None, max_drop=3.0)  # type: ignore[arg-type]
    assert caught.value.code == "max_drop_without_task"


def test_every_trial_is_yielded_with_its_stage_and_the_result_repeats_exactly() -> None:
    def value(fallback: frozenset[str]) -> float:
        return 0.95 if {"l1", "l4"} <= fallback else 0.2

    def once() -> tuple[SearchResult, list[Step]]:
        seen: list[Step] = []
        setting = Setting(1.0, 0.05, Fidelity(0.2, 0.2, 0.0), 0.0, SAMPLES, "ap")
        steps = search(
            layers_of(8),
            FakeScore(value),
            ranked(names(8)),
            options=SearchOptions(target=0.9),
            setting=setting,
        )
        return finish(steps, seen.append), seen

    result, seen = once()
    assert [s.record for s in seen if isinstance(s.record, Trial)] == list(result.trials)
    assert [t.stage for t in result.trials[:3]] == ["candidate", "all-fallback", "gallop"]
    assert once()[0] == result


def test_the_front_holds_the_best_score_for_each_number_of_layers() -> None:
    def value(fallback: frozenset[str]) -> float:
        return 0.2 + 0.1 * len(fallback & {"l1", "l3", "l5"}) + (0.4 if {"l1", "l3"} <= fallback else 0)

    result, _ = run(value, ["l1", "l3", "l5", "l0", "l2", "l4"], size=6, target=0.75)
    sizes = [point.layers for point in result.front]
    scores = [point.score for point in result.front]
    assert sizes == sorted(set(sizes))
    assert scores == sorted(set(scores))
    assert {p.layers: p.islands for p in result.front}[2] == 2
