from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.score_shift import ENTRY
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient
from tests.networks import build, quantized, samples

NET = """
net (float[1,4,8,8] image) => (float[1,2,8,8] scores)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [c1] x1 = Conv<kernel_shape=[1,1]>(x0, w1, b1)
    [prob] scores = %s(x1)
}
"""
SHAPES = {"w0": (6, 4, 3, 3), "b0": (6,), "w1": (2, 6, 1, 1), "b1": (2,)}


@pytest.mark.parametrize(
    ("operator", "gain", "is_said"),
    [("Sigmoid", 0.9, True), ("Sigmoid", 1.0, False), ("Sigmoid", 0.99, False), ("LeakyRelu", 0.9, False)],
)
def test_scores_that_keep_their_order_and_come_out_lower_are_said_to(
    operator: str, gain: float, is_said: bool, tmp_path: Path
) -> None:
    model = build(NET % operator, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    reader = next(n for n in patient.graph.node if "scores" in n.output)
    lower = patient.put("lower", np.array(patient.constant(reader.input[1]) * gain, dtype=np.float32))
    reader.input[1] = lower
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert [s.unproved for s in found] == (["info"] if is_said else [])
    if is_said:
        shift = found[0].evidence["shift_at_highest"]
        assert isinstance(shift, float)
        assert shift < -0.05
        assert "Lower the confidence threshold" in found[0].fix
