from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.diagnoses.simulator_artifact import ENTRY
from tests.analyzers.gathered import gathered
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples


# The three numbers depend on the processor, so they are given here.
@pytest.mark.parametrize(
    ("executed", "literal", "plain", "said"),
    [
        (25.0, 25.2, 15.0, ["info"]),
        (25.0, 25.2, 24.0, []),
        (25.0, 25.2, 31.0, []),
        (10.0, 25.0, 10.0, ["warning"]),
        (20.0, 24.0, 20.0, ["info"]),
        (60.0, 90.0, 45.0, []),
        (25.0, 25.0, -math.inf, ["info"]),
        (math.inf, math.inf, math.inf, []),
    ],
)
def test_a_file_that_gives_other_outputs_when_run_otherwise_is_said_to(
    executed: float, literal: float, plain: float, said: list[str], tmp_path: Path
) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    evidence = gathered(reference, candidate, samples(model, 1))
    given = {"as-executed": executed, "literal": literal, "plain": plain}
    found = list(ENTRY.find(replace(evidence, executions=given)))
    assert [s.unproved for s in found] == said
    assert all(s.layers == () for s in found)


def test_all_three_ways_are_measured(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    executions = gathered(reference, candidate, samples(model, 1)).executions
    assert set(executions) == {"as-executed", "literal", "plain"}
    assert all(20 < value < 60 for value in executions.values())
