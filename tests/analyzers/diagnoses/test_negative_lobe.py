from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.negative_lobe import ENTRY
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient
from tests.networks import build, quantized, samples

NET = """
net (float[1,4,12,12] image) => (float[1,4,12,12] out)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    %s
    [c1] out = Conv<kernel_shape=[1,1]>(a0, w1, b1)
}
"""
SHAPES = {"w0": (4, 4, 3, 3), "b0": (4,), "w1": (4, 4, 1, 1), "b1": (4,)}
HARD_SWISH = "[act] a0 = HardSwish(x0)"
SILU = "[s] g0 = Sigmoid(x0) [m] a0 = Mul(x0, g0)"


@pytest.mark.parametrize(
    ("activation", "loudness", "layer"),
    [
        (SILU, 12.0, "c0"),
        (HARD_SWISH, 12.0, None),
        (HARD_SWISH, 1.0, None),
        ("[act] a0 = Relu(x0)", 12.0, None),
        ("[act] a0 = LeakyRelu<alpha=0.005>(x0)", 12.0, "act"),
        ("[act] a0 = LeakyRelu<alpha=0.3>(x0)", 12.0, None),
    ],
)
def test_a_negative_side_with_a_handful_of_levels_is_suspected(
    activation: str, loudness: float, layer: str | None, tmp_path: Path
) -> None:
    model = build(NET % activation, SHAPES, opset=14)
    feeds = [{k: v * loudness for k, v in feed.items()} for feed in samples(model, 2)]
    reference, candidate = quantized(model, tmp_path, feeds=feeds)
    found = list(ENTRY.find(gathered(reference, candidate, feeds)))
    assert [s.layers for s in found] == ([] if layer is None else [(layer,)])
    if layer is not None:
        levels = found[0].evidence["levels"]
        assert isinstance(levels, float)
        assert levels < 8


def test_a_lobe_that_the_range_cuts_off_has_no_levels(tmp_path: Path) -> None:
    model = build(NET % SILU, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    patient = Patient(candidate)
    patient.put("a0_zero_point", np.array(0, dtype=np.uint8))
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert [s.layers for s in found] == [("c0",)]
    assert found[0].evidence["levels"] == 0
    assert found[0].specificity > 62, "nothing but the lobe is wrong"
