from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.resolution_underflow import ENTRY
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import set_range, times_range
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples

ATTENTION = """
net (float[1,{tokens},8] x) => (float[1,{tokens},8] y)
{{
    [q] q = MatMul(x, wq)
    [kt] t = Transpose<perm=[0,2,1]>(x)
    [scores] s = MatMul(q, t)
    [soft] p = Softmax<axis=2>(s)
    [mix] y = MatMul(p, x)
}}
"""


@pytest.mark.parametrize(
    ("factor", "layers", "is_erased"),
    [(800.0, [("conv0",)], True), (120.0, [("conv0",)], False), (1.0, [], False), (4.0, [], False)],
)
def test_a_tensor_that_rounds_to_zero_is_suspected(
    factor: float, layers: list[tuple[str]], is_erased: bool, tmp_path: Path
) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    times_range(candidate, "r0", factor)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model))))
    assert [s.layers for s in found] == layers
    for suspicion in found:
        assert suspicion.evidence["zero_on_one_side"] is is_erased
        assert suspicion.is_fault is is_erased


@pytest.mark.parametrize(("tokens", "layers"), [(512, [("soft",)]), (8, [])])
def test_a_softmax_over_many_tokens_with_the_fixed_range_is_suspected(
    tokens: int, layers: list[tuple[str]], tmp_path: Path
) -> None:
    model = build(ATTENTION.format(tokens=tokens), {"wq": (8, 8)})
    feeds = [{k: v * np.float32(0.5) for k, v in feed.items()} for feed in samples(model, 2)]
    reference, candidate = quantized(model, tmp_path, feeds=feeds)
    set_range(candidate, "p", 0.0, 1.0)
    found = list(ENTRY.find(gathered(reference, candidate, feeds)))
    assert [s.layers for s in found] == layers
    for suspicion in found:
        assert suspicion.evidence["op_type"] == "Softmax"
        assert "range that the samples have" in suspicion.repairs[0].how


def test_a_branch_that_is_zero_on_both_sides_is_not_suspected(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    feeds = [{k: np.zeros_like(v) for k, v in feed.items()} for feed in samples(model)]
    for tensor in model.graph.initializer:
        if tensor.name == "b0":
            tensor.CopyFrom(type(tensor).FromString(_negative(tensor)))
    reference, candidate = quantized(model, tmp_path, feeds=samples(model))
    assert not [s for s in ENTRY.find(gathered(reference, candidate, feeds)) if s.layers == ("conv0",)]


def _negative(tensor: object) -> bytes:
    import onnx

    assert isinstance(tensor, onnx.TensorProto)
    values = -np.abs(onnx.numpy_helper.to_array(tensor)) - 1
    return bytes(onnx.numpy_helper.from_array(values.astype(np.float32), tensor.name).SerializeToString())
