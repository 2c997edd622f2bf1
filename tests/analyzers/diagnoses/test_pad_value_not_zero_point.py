from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from analyzers.diagnoses.pad_value_not_zero_point import ENTRY
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient, steps
from tests.networks import build, quantized, samples

NET = """
net (float[1,3,15,15] image) => (float[1,4,8,8] out)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(image, w0, b0)
    [act] a0 = LeakyRelu<alpha=0.3>(x0)
    [c1] out = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a0, w1, b1)
}
"""
SHAPES = {"w0": (6, 3, 3, 3), "b0": (6,), "w1": (4, 6, 3, 3), "b1": (4,)}


@pytest.mark.parametrize(
    ("layer", "source", "extra", "is_wrong"),
    [
        ("c0", "image", 0, False),
        ("c0", "image", None, True),
        ("c1", "a0", None, True),
        ("c1", "a0", 0, False),
        ("c1", "a0", 40, True),
    ],
)
def test_padding_with_another_value_than_zero_is_found_on_the_border(
    layer: str, source: str, extra: int | None, is_wrong: bool, tmp_path: Path
) -> None:
    model = build(NET, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    zero = int(patient.constant(f"{source}_zero_point"))
    _pad_integers(patient, layer, source, 0 if extra is None else zero + extra)
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert [s.layers for s in found] == ([(layer,)] if is_wrong else [])
    if is_wrong:
        share = found[0].evidence["border_share_of_noise"]
        assert isinstance(share, float)
        assert share > 0.95
        assert found[0].evidence["zero_point"] == zero
        assert str(zero) in found[0].fix


def test_an_error_all_over_the_map_is_not_about_padding(tmp_path: Path) -> None:
    model = build(NET, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    patient.tell("act", alpha=0.9)
    patient.save()
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))


def _pad_integers(patient: Patient, layer: str, source: str, value: int) -> None:
    """Let an operator read integers that a Pad of its own enlarged."""
    node = patient.node(layer)
    scale, zero = f"{source}_scale", f"{source}_zero_point"
    patient.put("amounts", steps([0, 0, 1, 1, 0, 0, 1, 1]))
    patient.put("pad_value", np.array(value, dtype=np.uint8))
    integers = patient.maker(node.input[0]).input[0]
    nodes = [
        helper.make_node("Pad", [integers, "amounts", "pad_value"], ["padded"], "npu_pad"),
        helper.make_node("DequantizeLinear", ["padded", scale, zero], ["padded_float"], "npu_pad_read"),
    ]
    patient.insert_before(layer, nodes)
    node.input[0] = "padded_float"
    patient.tell(layer, pads=[0, 0, 0, 0])
