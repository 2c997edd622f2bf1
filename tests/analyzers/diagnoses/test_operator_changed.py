from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

from analyzers.diagnoses.operator_changed import ENTRY
from analyzers.lab import Lab
from analyzers.suspicions import Change, Source
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient
from tests.networks import build, quantized, samples

NET = """
net (float[1,4,12,12] image) => (float[1,4,12,12] out)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [act0] a0 = HardSwish(x0)
    [c1] x1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a0, w1, b1)
    [act1] a1 = HardSwish(x1)
    [sum] s = Add(a1, a0)
    [c2] out = Conv<kernel_shape=[1,1]>(s, w2, b2)
}
"""
SHAPES = {"w0": (4, 4, 3, 3), "b0": (4,), "w1": (4, 4, 3, 3), "b1": (4,), "w2": (4, 4, 1, 1), "b2": (4,)}


def exchange(model: Patient) -> None:
    node = model.node("act1")
    node.op_type = "HardSigmoid"
    node.attribute.append(helper.make_attribute("alpha", 1 / 6))


def lose(model: Patient) -> None:
    model.bypass("sum")


def lose_what_others_read_too(model: Patient) -> None:
    """Let the sum vanish so that its reader gets the input that a convolution reads as well."""
    node = model.node("sum")
    node.input[:] = [node.input[1], node.input[0]]
    model.bypass("sum")


def add(model: Patient) -> None:
    node = model.node("c1")
    model.insert_before("c1", [helper.make_node("Relu", [node.input[0]], ["extra"], "extra")])
    node.input[0] = "extra"


def decompose(model: Patient) -> None:
    """Write one HardSwish as x * HardSigmoid(x): other operators, the same result."""
    node = model.node("act1")
    first = helper.make_node("HardSigmoid", [node.input[0]], ["gate"], "gate", alpha=1 / 6, beta=0.5)
    model.insert_before("act1", [first])
    node.op_type = "Mul"
    node.input.append("gate")


def nothing(_: Patient) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "layers", "word"),
    [
        (exchange, ("act1",), "HardSigmoid"),
        (lose, ("sum",), "Add"),
        (lose_what_others_read_too, ("sum",), "Add"),
        (add, ("c1",), "Relu 'extra'"),
        (decompose, None, ""),
        (nothing, None, ""),
    ],
)
def test_only_operators_that_compute_something_else_are_suspected(
    change: Callable[[Patient], None], layers: tuple[str, ...] | None, word: str, tmp_path: Path
) -> None:
    model = build(NET, SHAPES, opset=14)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    change(patient)
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    if layers is None:
        assert not found
        return
    assert [s.layers for s in found] == [layers]
    assert word in found[0].message
    assert found[0].sources[0] == Source("layer", layers[0])
    assert isinstance(found[0].evidence["operator_sqnr_db"], float)
    assert found[0].evidence["operator_sqnr_db"] < 25


@pytest.mark.parametrize("change", [exchange, lose, lose_what_others_read_too, add])
def test_lifting_what_is_suspected_brings_the_output_back(
    change: Callable[[Patient], None], tmp_path: Path
) -> None:
    model = build(NET, SHAPES, opset=14)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    change(patient)
    patient.save()
    evidence = gathered(reference, candidate, samples(model, 2))
    assert evidence.samples is not None
    lab = Lab(evidence.pair, evidence.samples, evidence.constants, tmp_path / "lab", max_runs=9)
    found = next(iter(ENTRY.find(evidence)))
    assert lab.score(()) < 20
    assert lab.score([Change(source) for source in found.sources]) > 30


def test_ranges_measured_behind_an_exchanged_operator_are_repaired_with_it(tmp_path: Path) -> None:
    """The converter exchanged the operator and calibrated then, so later ranges fit the wrong values."""
    model = build(NET, SHAPES, opset=14)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    node = next(n for n in changed.graph.node if n.name == "sum")
    node.op_type = "Mul"
    feeds = [{k: 3 * v for k, v in feed.items()} for feed in samples(model, 2)]
    _, candidate = quantized(changed, tmp_path, feeds=feeds)
    onnx.save(model, tmp_path / "reference.onnx")
    found = list(ENTRY.find(gathered(tmp_path / "reference.onnx", candidate, feeds)))
    assert [s.layers for s in found] == [("sum",)]
    assert {s.name for s in found[0].sources if s.kind == "store"} == {"out"}


def test_a_large_quantization_error_is_no_changed_operator(tmp_path: Path) -> None:
    model = build(NET, SHAPES, opset=14)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    patient.put("a1_scale", patient.constant("a1_scale") / 8)
    patient.save()
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
