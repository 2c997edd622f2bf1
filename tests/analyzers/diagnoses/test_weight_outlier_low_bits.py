from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from analyzers.diagnoses.weight_outlier_low_bits import ENTRY
from analyzers.records import Array
from analyzers.suspicions import Suspicion
from tests.analyzers.gathered import gathered
from tests.analyzers.weights import found
from tests.networks import build, samples

NET = """
net (float[4,64] x) => (float[4,48] y)
{
    [m0] a = MatMul(x, w0)
    [r0] b = Relu(a)
    [m1] y = MatMul(b, w1)
}
"""
RANDOM = np.random.default_rng(11)


def suspected(folder: Path, weight: Array, bits: int) -> list[Suspicion]:
    model = build(NET, {"w0": (64, 64), "w1": (64, 48)}, opset=21)
    model.ir_version = 10
    for tensor in model.graph.initializer:
        if tensor.name == "w1":
            tensor.CopyFrom(numpy_helper.from_array(weight.astype(np.float32), "w1"))
    onnx.save(model, folder / "a.onnx")
    top = 2 ** (bits - 1) - 1
    scale = np.abs(weight).max(axis=0) / top
    levels = np.rint(weight / scale).astype(np.int8)
    dtype = {4: onnx.TensorProto.INT4, 8: onnx.TensorProto.INT8}[bits]
    model.graph.initializer.append(helper.make_tensor("q", dtype, weight.shape, levels.ravel()))
    model.graph.initializer.append(numpy_helper.from_array(scale.astype(np.float32), "s"))
    read = helper.make_node("DequantizeLinear", ["q", "s"], ["w1_read"], name="d", axis=1)
    model.graph.node.insert(0, read)
    next(n for n in model.graph.node if n.name == "m1").input[1] = "w1_read"
    onnx.save(model, folder / "b.onnx")
    return found(ENTRY, gathered(folder / "a.onnx", folder / "b.onnx", samples(model, 2)))


def with_outliers(size: float) -> Array:
    weight = RANDOM.uniform(-1, 1, (64, 48))
    weight[RANDOM.integers(0, 64, 24), np.arange(24)] = size
    return weight


@pytest.mark.parametrize(
    ("size", "bits", "specificity"),
    [(12.0, 4, 58), (400.0, 8, 58), (1.0, 4, None), (12.0, 8, None), (1.0, 8, None)],
)
def test_large_values_among_few_levels_are_suspected(
    size: float, bits: int, specificity: int | None, tmp_path: Path
) -> None:
    found_ones = suspected(tmp_path, with_outliers(size), bits)
    assert [s.specificity for s in found_ones] == ([] if specificity is None else [specificity])
    for suspicion in found_ones:
        channels = suspicion.evidence["channels"]
        assert isinstance(channels, tuple)
        assert channels
        assert max(int(c) for c in channels) < 24
        assert "blocks of 32" in suspicion.repairs[0].how
