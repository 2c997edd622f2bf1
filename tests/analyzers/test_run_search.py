from __future__ import annotations

import dataclasses
import math
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from analyzers.errors import InputError
from analyzers.pool import Inline
from analyzers.records import Inputs, Ranking, SearchOptions, SearchResult, Trial
from analyzers.run_search import search_pair, split
from analyzers.serialize import JsonValue, to_json
from analyzers.steps import Step, finish
from analyzers.trial_store import FILE_NAME
from tests.analyzers.planted import plant

NODES = {"dw": ("dw", "clip"), "conv0": ("conv0", "relu0"), "conv1": ("conv1", "relu1"), "head": ("head",)}


def without_seconds(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k != "seconds"}
    if isinstance(value, list):
        return [without_seconds(v) for v in value]
    return value


def run(folder: Path, faulty: list[str], options: SearchOptions, **inputs: object) -> SearchResult:
    folder.mkdir(exist_ok=True)
    pair, given = plant(folder, faulty)
    given = dataclasses.replace(given, **inputs)  # type: ignore[arg-type]
    return finish(search_pair(pair, given, options, executor=Inline()))


@pytest.mark.parametrize("faulty", [["dw"], ["conv1"], ["conv0", "conv1"], ["dw", "head"]])
def test_planted_faults_are_the_fallback_set_and_each_member_is_proven(
    tmp_path: Path, faulty: list[str]
) -> None:
    result = run(tmp_path, faulty, SearchOptions(target=20.0))
    assert result.reached
    assert result.minimal
    assert set(result.fallback) == set(faulty)
    assert len(result.proof) == len(faulty)
    assert all(trial.score < 20.0 for trial in result.proof)
    assert result.ranking[0] in faulty
    assert result.reference_score == math.inf
    assert result.unit == "dB"
    assert result.fidelity.gap == 0.0
    assert result.fidelity.exported_score == pytest.approx(result.score, abs=0.5)
    assert set(result.fallback_nodes) == {node for layer in faulty for node in NODES[layer]}


def test_a_candidate_that_reaches_the_target_needs_no_layer(tmp_path: Path) -> None:
    result = run(tmp_path, [], SearchOptions(target=20.0))
    assert result.reached
    assert result.fallback == ()
    assert result.minimal
    assert [trial.stage for trial in result.trials] == ["candidate"]


def test_a_target_beyond_half_precision_is_not_reached_and_says_by_which_bounds(tmp_path: Path) -> None:
    result = run(tmp_path, ["dw"], SearchOptions(target=190.0))
    assert not result.reached
    assert "Not reached by these bounds" in result.reason
    assert result.ranking == ()


def test_in_float_the_whole_set_is_the_reference(tmp_path: Path) -> None:
    result = run(tmp_path, ["dw"], SearchOptions(target=100.0), precision="fp32")
    assert result.reached
    assert result.all_fallback_score > 100.0
    assert result.precision == "fp32"


@pytest.mark.parametrize("rule", ["per-edge", "hybrid", "nodes-to-exclude"])
def test_every_rule_can_be_searched(tmp_path: Path, rule: str) -> None:
    result = run(tmp_path, ["conv1"], SearchOptions(target=18.0), rule=rule)
    assert result.reached
    assert "conv1" in result.fallback
    assert result.rule == rule


def test_costs_are_those_of_the_target_that_was_asked_for(tmp_path: Path) -> None:
    generic = run(tmp_path / "generic", ["dw", "head"], SearchOptions(target=20.0))
    assert generic.target_profile == "generic"
    assert not {n.code for n in generic.warnings} & {"cost_assumed", "cost_incomplete"}
    assert generic.plan_cost is not None
    assert generic.plan_cost.islands == len(generic.islands) == 2
    # dw: 8 channels of 16x16 from 3x3; head: 10 from 12
    macs = {"conv0": 8 * 256 * 27, "dw": 8 * 256 * 9, "conv1": 12 * 64 * 8, "head": 120}
    assert generic.plan_cost.macs_fraction == pytest.approx((macs["dw"] + 120) / sum(macs.values()))
    assert all(trial.cost >= 0 for trial in generic.trials)
    assert generic.trials[0].cost == 0.0
    profile = tmp_path / "slow.yaml"
    profile.write_text(
        "name: slow\ntitle: Stops for a second\n"
        "speed: {island_seconds: {value: 1, source: a guess}, bytes_per_second: unknown}\n"
    )
    slow = run(tmp_path / "slow", ["dw", "head"], SearchOptions(target=20.0), target_profile=str(profile))
    assert slow.target_profile == "slow"
    assert slow.fallback == generic.fallback
    assert slow.plan_cost is not None
    # Handing the network over takes nearly all the time, and two islands do it twice more.
    assert slow.plan_cost.cost == pytest.approx(2.0, abs=0.01)
    assert generic.plan_cost.cost < slow.plan_cost.cost + 0.05
    assert "speed.bytes_per_second" in {n.where for n in slow.warnings if n.code == "cost_assumed"}


def test_an_unknown_target_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        run(tmp_path, ["dw"], SearchOptions(target=20.0), target_profile="rk9999")
    assert caught.value.code == "unknown_profile"


def test_the_same_search_again_runs_no_trial_and_says_the_same(tmp_path: Path) -> None:
    pair, inputs = plant(tmp_path, ["dw", "head"])
    first = finish(search_pair(pair, inputs, SearchOptions(target=20.0), executor=Inline()))
    again = finish(search_pair(pair, inputs, SearchOptions(target=20.0), executor=Inline()))
    assert without_seconds(to_json(again)) == without_seconds(to_json(first))
    assert all(trial.seconds == 0.0 for trial in again.trials)
    assert all(trial.seconds > 0.0 for trial in first.trials)


def test_a_search_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    pair, inputs = plant(tmp_path, ["dw", "head"])
    steps = search_pair(pair, inputs, SearchOptions(target=20.0), executor=Inline())
    for step in steps:
        if isinstance(step.record, Trial) and step.record.stage == "gallop":
            break
    steps.close()
    with sqlite3.connect(inputs.workspace / FILE_NAME) as store:
        kept = store.execute("SELECT count(*) FROM trials").fetchone()[0]
    store.close()
    result = finish(search_pair(pair, inputs, SearchOptions(target=20.0), executor=Inline()))
    assert kept >= 4
    assert sum(trial.seconds == 0.0 for trial in result.trials) >= 3
    assert set(result.fallback) == {"dw", "head"}


def test_one_and_two_worker_processes_say_the_same_as_none(tmp_path: Path) -> None:
    results = []
    for workers in (0, 1, 2):
        folder = tmp_path / str(workers)
        folder.mkdir()
        pair, inputs = plant(folder, ["conv0", "conv1"], count=20, workers=max(1, workers))
        executor = Inline() if workers == 0 else None
        result = finish(search_pair(pair, inputs, SearchOptions(target=20.0), executor=executor))
        results.append(without_seconds(to_json(result)))
    assert results[0] == results[1] == results[2]


def test_samples_that_are_kept_back_score_the_answer_only(tmp_path: Path) -> None:
    result = run(tmp_path, ["dw"], SearchOptions(target=20.0, holdout=0.25))
    assert result.samples == 6
    assert all(trial.samples == 6 for trial in result.trials)
    assert result.holdout_score is not None
    assert result.holdout_score == pytest.approx(result.score, abs=5.0)


def test_a_split_that_leaves_one_side_empty_is_refused() -> None:
    assert split(8, 0.25) == ((1, 2, 3, 5, 6, 7), (0, 4))
    assert split(3, 0.0) == ((0, 1, 2), ())
    for count, holdout in ((1, 0.9), (4, 0.01), (1, 0.2)):
        with pytest.raises(InputError):
            split(count, holdout)


def test_a_budget_that_is_too_small_to_rank_is_spent_on_trials(tmp_path: Path) -> None:
    result = run(tmp_path, ["dw"], SearchOptions(target=20.0, budget=9.0, rank_samples=1))
    assert result.evaluations <= 9.0 + 1.0  # scoring the exported file comes on top
    assert result.score >= 20.0 or not result.reached


def test_constraints_reach_the_models(tmp_path: Path) -> None:
    options = SearchOptions(target=20.0, keep_int8=("dw",), force_fallback=("head",))
    result = run(tmp_path, ["dw"], options)
    assert not result.reached
    assert "head" in result.fallback
    assert all("dw" not in trial.fallback for trial in result.trials)


def test_every_record_of_the_steps_belongs_to_the_result(tmp_path: Path) -> None:
    pair, inputs = plant(tmp_path, ["dw"])
    seen: list[Step] = []
    result = finish(search_pair(pair, inputs, SearchOptions(target=20.0), executor=Inline()), seen.append)
    assert [s.record for s in seen if isinstance(s.record, Trial)] == list(result.trials)
    assert not any(isinstance(s.record, Ranking) for s in seen)
    assert {"search", "rank", "overflow"} <= {s.stage for s in seen}


def test_a_candidate_that_was_fed_something_else_is_scored_on_that(tmp_path: Path) -> None:
    pair, inputs = plant(tmp_path, [])
    with np.load(inputs.data or "") as stored:
        shifted = {name: array + np.float32(0.5) for name, array in stored.items()}
    other = tmp_path / "other.npz"
    np.savez(other, **shifted)
    same = dataclasses.replace(inputs, candidate_data=inputs.data)
    differs = dataclasses.replace(inputs, candidate_data=other)
    scores = [
        finish(search_pair(pair, given, SearchOptions(target=5.0), executor=Inline())).candidate_score
        for given in (inputs, same, differs)
    ]
    assert scores[0] == scores[1]
    assert scores[2] < scores[0] - 3.0


def test_a_drop_in_decibels_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        run(tmp_path, ["dw"], SearchOptions(max_drop=3.0))
    assert caught.value.code == "max_drop_without_task"


def test_candidates_in_qoperator_form_are_searched_too(tmp_path: Path) -> None:
    from analyzers.project import open_models
    from tests.networks import SILU, SILU_SHAPES, build, quantized

    _, given = plant(tmp_path, [])
    folder = tmp_path / "qoperator"
    folder.mkdir()
    reference, candidate = quantized(build(SILU, SILU_SHAPES), folder, form="QOperator")
    inputs: Inputs = dataclasses.replace(given, reference=reference, candidate=candidate)
    pair = open_models(reference, candidate)
    result = finish(search_pair(pair, inputs, SearchOptions(target=45.0), executor=Inline()))
    assert result.reached
    assert result.candidate_score < 45.0
    assert result.fidelity.gap < 1.0
