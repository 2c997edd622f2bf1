from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.errors import InputError
from analyzers.pool import Inline
from analyzers.records import BisectOptions, BisectResult, BisectStep
from analyzers.run_bisect import bisect_pair
from analyzers.steps import Step, finish
from tests.analyzers.planted import plant


def run(folder: Path, faulty: list[str], **options: object) -> BisectResult:
    pair, inputs = plant(folder, faulty)
    wanted = BisectOptions(**options)  # type: ignore[arg-type]
    return finish(bisect_pair(pair, inputs, wanted, executor=Inline()))


@pytest.mark.parametrize("faulty", ["conv0", "dw", "conv1", "head"])
def test_a_planted_fault_is_the_one_culprit_within_the_promised_runs(tmp_path: Path, faulty: str) -> None:
    result = run(tmp_path, [faulty])
    assert result.verdict == "culprits"
    assert [c.layer for c in result.culprits] == [faulty]
    assert result.culprits[0].is_confirmed
    assert result.culprits[0].repaired_sqnr_db > 16.9
    assert result.chain == ("conv0", "dw", "conv1", "gap", "head")
    assert len(result.steps) <= 3 + 3
    assert result.first_divergence == faulty
    assert result.samples == 4


def test_two_planted_faults_are_both_found(tmp_path: Path) -> None:
    result = run(tmp_path, ["conv1", "head"])
    assert {c.layer for c in result.culprits} == {"conv1", "head"}
    assert all(c.is_confirmed for c in result.culprits)


def test_a_fault_that_shows_on_few_samples_is_found_on_the_worst_ones(tmp_path: Path) -> None:
    pair, inputs = plant(tmp_path, [], count=24)
    with np.load(inputs.data or "") as stored:
        arrays = dict(stored)
    # Only two samples are far outside of what the candidate was calibrated for.
    for name in ("s005::image", "s017::image"):
        arrays[name] = arrays[name] * np.float32(30.0)
    np.savez(inputs.data or "", **arrays)
    result = finish(bisect_pair(pair, inputs, BisectOptions(samples=2), executor=Inline()))
    assert result.candidate_sqnr_db < 10.0
    assert result.verdict != "healthy"


def test_a_good_candidate_is_healthy_by_this_metric_and_threshold(tmp_path: Path) -> None:
    result = run(tmp_path, [])
    assert result.verdict == "healthy"
    assert result.candidate_sqnr_db > result.threshold_db
    assert result.first_divergence is None


def test_worker_processes_say_the_same(tmp_path: Path) -> None:
    pair, inputs = plant(tmp_path, ["dw"], workers=2)
    seen: list[Step] = []
    result = finish(
        bisect_pair(
            pair,
            inputs,
            BisectOptions(),
        ),
        seen.append,
    )
    (tmp_path / "inline").mkdir()
    assert result == run(tmp_path / "inline", ["dw"])
    assert [s.record for s in seen if isinstance(s.record, BisectStep)] == list(result.steps)


def test_a_task_metric_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        run(tmp_path, ["dw"], metric="ap")
    assert caught.value.code == "metric_unknown"
