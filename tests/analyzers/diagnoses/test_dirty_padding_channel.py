from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from analyzers.diagnoses.dirty_padding_channel import ENTRY
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient, steps
from tests.networks import build, quantized, samples

NET = """
net (float[1,3,12,12] image) => (float[1,6,12,12] out)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [act] a0 = LeakyRelu<alpha=0.3>(x0)
    [c1] x1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a0, w1, b1)
    [act1] a1 = Relu(x1)
    [c2] out = Conv<kernel_shape=[1,1]>(a1, w2, b2)
}
"""
SHAPES = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 8, 3, 3), "b1": (8,), "w2": (6, 8, 1, 1), "b2": (6,)}
CHANNELS = 8


@pytest.mark.parametrize("kind", ["stale", "zero"])
@pytest.mark.parametrize("layer", ["c1", "c2"])
def test_an_operator_that_reads_its_last_channel_from_elsewhere_is_found(
    kind: str, layer: str, tmp_path: Path
) -> None:
    model = build(NET, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    _misread(patient, layer, 1, kind)
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    read = [s for s in found if "read_tensor" in s.evidence]
    assert [s.layers for s in read] == [(layer,)]
    assert read[0].evidence["channels"] == (CHANNELS - 1,)
    assert read[0].cause == ("dirty_padding_channel" if kind == "stale" else "channel_dropped")
    assert f"channel {CHANNELS - 1}" in read[0].message


def test_a_copy_that_covers_all_channels_is_fine(tmp_path: Path) -> None:
    model = build(NET, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    _misread(patient, "c1", 0, "stale")
    patient.save()
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))


def test_many_wrong_channels_are_no_dirty_channel(tmp_path: Path) -> None:
    model = build(NET, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    _misread(patient, "c1", 5, "stale")
    patient.save()
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))


def test_an_output_channel_that_is_overwritten_is_found(tmp_path: Path) -> None:
    model = build(NET, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    node = patient.node("act")
    patient.put("mask", np.array([1, 1, 1, 0, 1, 1, 1, 1], dtype=np.float32).reshape(1, 8, 1, 1))
    made, node.output[0] = node.output[0], "unmasked"
    place = next(i for i, n in enumerate(patient.graph.node) if n.name == "act")
    patient.graph.node.insert(place + 1, helper.make_node("Mul", ["unmasked", "mask"], [made], "masking"))
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert [(s.cause, s.layers, s.evidence["channels"]) for s in found] == [
        ("channel_dropped", ("act",), (3,))
    ]


def _misread(patient: Patient, layer: str, count: int, kind: str) -> None:
    """Let an operator read its last channels from memory that the copy of its input did not write."""
    node = patient.node(layer)
    source = patient.maker(node.input[0])
    kept = CHANNELS - count
    zero = int(patient.constant(source.input[2]))
    shape = (1, count, 12, 12)
    noise = np.random.default_rng(7).normal(zero, 40, shape)
    stale = np.full(shape, zero) if kind == "zero" else np.clip(np.rint(noise), 0, 255)
    patient.put("stale", stale.astype(np.uint8))
    names = [
        patient.put("starts", steps([0])),
        patient.put("ends", steps([kept])),
        patient.put("axes", steps([1])),
    ]
    parts = ["kept", "stale"] if count else ["kept"]
    nodes = [
        helper.make_node("Slice", [source.input[0], *names], ["kept"], "copy"),
        helper.make_node("Concat", parts, ["aligned"], "align", axis=1),
        helper.make_node("DequantizeLinear", ["aligned", *source.input[1:]], ["aligned_float"], "read"),
    ]
    patient.insert_before(layer, nodes)
    node.input[0] = "aligned_float"
