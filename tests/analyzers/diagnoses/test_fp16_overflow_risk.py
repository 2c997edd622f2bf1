from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from analyzers.diagnoses.fp16_overflow_risk import ENTRY
from analyzers.suspicions import Suspicion
from tests.analyzers.gathered import gathered
from tests.networks import build, quantized, samples

SQUARES = """
net (float[1,4,8,8] image) => (float[1,4,8,8] out)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [scale] s0 = Mul(x0, factor)
    [square] q = Mul(s0, s0)
    [mean] m = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(q)
    [root] r = Sqrt(m)
    [one] n = Div(s0, r)
    [c1] out = Conv<kernel_shape=[1,1]>(n, w1, b1)
}
"""
SHAPES = {"w0": (4, 4, 3, 3), "b0": (4,), "w1": (4, 4, 1, 1), "b1": (4,)}


@pytest.mark.parametrize(
    ("factor", "blamed", "is_noticed"),
    [
        (1000.0, [("square", "mean"), ("square",), ("mean",)], False),
        (100.0, [], True),
        (10.0, [], False),
    ],
)
def test_values_that_half_precision_cannot_hold_are_a_risk_where_they_are_stored(
    factor: float, blamed: list[tuple[str, ...]], is_noticed: bool, tmp_path: Path
) -> None:
    found = _found(factor, tmp_path)
    assert [s.layers for s in found if not s.unproved] == blamed
    assert any(s.unproved == "info" for s in found) == is_noticed
    assert all(s.unproved != "warning" for s in found)


def test_the_way_out_is_not_fp16_and_can_be_simulated(tmp_path: Path) -> None:
    first = _found(1000.0, tmp_path)[0]
    assert "INT16" in first.fix
    assert {c.source for c in first.repairs[0].changes} == set(first.sources)
    assert all(
        c.quantization is not None and c.quantization.dtype == "uint16" for c in first.repairs[0].changes
    )


def _found(factor: float, folder: Path) -> list[Suspicion]:
    text = SQUARES.replace("out)\n{", f"out)\n<float[1] factor = {{{factor}}}>\n{{")
    model: onnx.ModelProto = build(text, SHAPES)
    reference, candidate = quantized(model, folder)
    return list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
