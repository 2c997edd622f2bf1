from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hypothesis import given
from hypothesis import strategies as st

from analyzers.bisection.causal import bisect
from analyzers.records import BisectOptions, BisectResult, BisectStep
from analyzers.steps import Step, finish

Score = Callable[[frozenset[str]], float]


def chain_of(size: int) -> list[str]:
    return [f"l{i}" for i in range(size)]


def additive(noise: Mapping[str, float]) -> Score:
    """Noise powers add up; the signal has power 1."""

    def score(fallback: frozenset[str]) -> float:
        total = sum(power for layer, power in noise.items() if layer not in fallback)
        return math.inf if total == 0 else -10 * math.log10(total)

    return score


def counted(score: Score, asked: list[frozenset[str]]) -> Score:
    def counting(fallback: frozenset[str]) -> float:
        asked.append(fallback)
        return score(fallback)

    return counting


def runs_until_confirmed(result: BisectResult, layer: str) -> int:
    """The number of runs after which cuts and repair of this layer had been seen."""
    repairs = [i for i, s in enumerate(result.steps) if s.direction == "repair" and layer in s.repaired]
    return repairs[0] + 1 if repairs else len(result.steps)


@given(st.integers(1, 300), st.data())
def test_a_planted_culprit_is_confirmed_within_the_promised_runs(size: int, data: st.DataObject) -> None:
    chain = chain_of(size)
    culprit = data.draw(st.sampled_from(chain))
    noise = {layer: data.draw(st.floats(1e-9, 1e-6)) if size < 30 else 1e-7 for layer in chain}
    noise[culprit] = data.draw(st.floats(0.05, 100.0))
    asked: list[frozenset[str]] = []
    result = finish(bisect(chain, counted(additive(noise), asked)))
    assert [c.layer for c in result.culprits] == [culprit]
    assert result.verdict == "culprits"
    assert result.culprits[0].is_confirmed
    assert result.culprits[0].jump_fraction > 0.99
    assert result.culprits[0].reverse_jump_fraction > 0.99
    assert len(asked) == len(set(asked)) == len(result.steps)
    bits = math.ceil(math.log2(size))
    assert len(asked) <= bits + 3
    pair_and_repair = {result.culprits[0].good.cut, result.culprits[0].bad.cut}
    assert len(pair_and_repair) == 2
    if result.culprits[0].good.cut > 0:
        assert runs_until_confirmed(result, culprit) <= bits + 2


@given(st.integers(10, 120), st.data())
def test_several_planted_culprits_are_all_found_and_nothing_else(size: int, data: st.DataObject) -> None:
    chain = chain_of(size)
    culprits = data.draw(st.sets(st.sampled_from(chain), min_size=2, max_size=4))
    noise = dict.fromkeys(chain, 1e-7) | {c: data.draw(st.floats(0.1, 0.2)) for c in culprits}
    result = finish(bisect(chain, additive(noise)))
    assert {c.layer for c in result.culprits} == culprits
    assert all(c.is_confirmed for c in result.culprits)
    assert result.culprits[-1].repaired_sqnr_db > 16.9
    assert result.monotone


def test_a_small_culprit_before_a_dominant_one_hides_neither() -> None:
    noise = dict.fromkeys(chain_of(64), 1e-7) | {"l10": 0.2, "l50": 30.0}
    result = finish(bisect(chain_of(64), additive(noise)))
    assert [c.layer for c in result.culprits] == ["l50", "l10"]


def test_a_rest_that_barely_misses_the_threshold_blames_no_further_layer() -> None:
    """What l50 leaves, 16 dB, would pass in a candidate with a little less of everything."""
    noise = dict.fromkeys(chain_of(64), 1e-4) | {"l10": 0.018, "l50": 30.0}
    result = finish(bisect(chain_of(64), additive(noise)))
    assert [c.layer for c in result.culprits] == ["l50"]
    assert [w.code for w in result.warnings] == ["small_rest"]


@given(st.integers(4, 12), st.floats(0.3, 5.0))
def test_faults_in_most_layers_blame_none(size: int, power: float) -> None:
    noise = dict.fromkeys(chain_of(size)[: size - 1], power)
    result = finish(bisect(chain_of(size), additive(noise)))
    assert result.verdict == "accumulation"
    assert result.culprits == ()


@given(st.integers(20, 150), st.floats(0.03, 50.0))
def test_equal_small_errors_are_accumulation_and_blame_no_layer(size: int, total: float) -> None:
    noise = dict.fromkeys(chain_of(size), total / size)
    result = finish(bisect(chain_of(size), additive(noise)))
    assert result.verdict == "accumulation"
    assert result.culprits == ()


def test_a_culprit_on_a_slope_is_found_and_the_rest_is_called_accumulated() -> None:
    noise = dict.fromkeys(chain_of(50), 0.002) | {"l40": 2.0}
    result = finish(bisect(chain_of(50), additive(noise)))
    assert [c.layer for c in result.culprits] == ["l40"]
    assert result.culprits[0].is_confirmed
    assert [w.code for w in result.warnings] == ["remaining_accumulation"]


def test_layers_that_each_make_most_of_a_loss_that_none_undoes_alone_are_named_but_not_confirmed() -> None:
    """The output saturates: l3 ruins it, l8 ruins what is left, and a slope over all layers does too."""

    def score(fallback: frozenset[str]) -> float:
        power = {"l3": 0.8, "l8": 0.8}
        total = sum(power.get(f"l{i}", 0.015) for i in range(40) if f"l{i}" not in fallback)
        return math.inf if total == 0 else -10 * math.log10(total / (1 + total))

    result = finish(bisect(chain_of(40), score))
    assert result.verdict == "interacting"
    assert [(c.layer, c.is_confirmed) for c in result.culprits] == [("l3", False), ("l8", False)]
    assert [w.code for w in result.warnings] == ["remaining_accumulation"]


def test_a_candidate_above_the_threshold_is_healthy_after_one_run() -> None:
    result = finish(bisect(chain_of(9), additive({"l3": 0.01})))
    assert result.verdict == "healthy"
    assert len(result.steps) == 1
    assert result.candidate_sqnr_db == 20.0


def test_layers_that_kill_the_output_each_on_its_own_are_both_found() -> None:
    def score(fallback: frozenset[str]) -> float:
        return 60.0 if {"l5", "l20"} <= fallback else 0.0

    result = finish(bisect(chain_of(32), score))
    assert [c.layer for c in result.culprits] == ["l5", "l20"]
    assert all(c.is_confirmed for c in result.culprits)
    assert result.verdict == "culprits"


def test_errors_that_cancel_are_reported_and_the_real_culprit_stays() -> None:
    """l10 and l20 undo each other; only l40 hurts the candidate."""

    def score(fallback: frozenset[str]) -> float:
        gain = (4.0 if "l10" not in fallback else 1.0) * (0.25 if "l20" not in fallback else 1.0)
        power = (gain - 1.0) ** 2 + (0.5 if "l40" not in fallback else 0.0)
        return math.inf if power == 0 else -10 * math.log10(power)

    result = finish(bisect(chain_of(60), score))
    assert "l40" in {c.layer for c in result.culprits}
    if {c.layer for c in result.culprits} != {"l40"}:
        assert not result.monotone


def test_a_prefix_that_scores_better_than_a_shorter_one_is_reported_as_not_monotone() -> None:
    def score(fallback: frozenset[str]) -> float:
        in_int8 = {f"l{i}" for i in range(16)} - fallback
        if "l14" in in_int8:
            return 5.0
        return 10.0 if "l6" in in_int8 and "l9" not in in_int8 else 40.0

    result = finish(bisect(chain_of(16), score))
    assert not result.monotone
    assert "non_monotone" in {w.code for w in result.warnings}


def test_many_layers_of_which_each_kills_the_output_are_called_interacting() -> None:
    killers = {f"l{i}" for i in (1, 4, 6, 9, 12, 15, 17, 20, 23, 26)}

    def score(fallback: frozenset[str]) -> float:
        return 60.0 if killers <= fallback else 0.0

    result = finish(bisect(chain_of(28), score, options=BisectOptions(max_culprits=3)))
    assert result.verdict == "interacting"
    assert {c.layer for c in result.culprits} == killers


def test_a_difference_outside_the_layers_blames_none_of_them() -> None:
    result = finish(bisect(chain_of(20), lambda fallback: 3.0))
    assert result.verdict == "outside_layers"
    assert result.culprits == ()
    assert [w.code for w in result.warnings] == ["outside_layers"]


def test_an_undefined_score_is_bad() -> None:
    def score(fallback: frozenset[str]) -> float:
        return 50.0 if "l7" in fallback else math.nan

    result = finish(bisect(chain_of(10), score))
    assert [c.layer for c in result.culprits] == ["l7"]


def test_the_search_stops_at_its_number_of_runs_and_says_so() -> None:
    killers = {f"l{i}" for i in range(0, 40, 2)}

    def score(fallback: frozenset[str]) -> float:
        return 60.0 if killers <= fallback else 0.0

    result = finish(bisect(chain_of(40), score, options=BisectOptions(max_runs=20)))
    assert len(result.steps) == 20
    assert "runs_used_up" in {w.code for w in result.warnings}


def test_every_run_is_yielded_as_a_step_with_its_record() -> None:
    seen: list[Step] = []
    result = finish(bisect(chain_of(12), additive({"l4": 1.0})), seen.append)
    assert [s.record for s in seen] == list(result.steps)
    assert all(isinstance(s.record, BisectStep) for s in seen)
    assert "bad" in seen[0].text


def test_a_single_layer_is_its_own_culprit() -> None:
    result = finish(bisect(["only"], additive({"only": 1.0})))
    assert [c.layer for c in result.culprits] == ["only"]
    assert len(result.steps) <= 3
