from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.diagnoses.activation_outlier_channel import ENTRY
from tests.analyzers.gathered import gathered
from tests.networks import build, quantized, samples

NORM = """
net (float[1,6,16] x) => (float[1,6,16] y)
{
    [norm] n = Mul(x, gamma)
    [mix] y = MatMul(n, w)
}
"""
STREAM = """
net (float[1,6,16] x) => (float[1,6,16] y)
{
    [enter] a = Add(x, offset)
    [mix] m = MatMul(a, w)
    [squash] t = Tanh(m)
    [residual] b = Add(a, t)
    [head] y = MatMul(b, v)
}
"""


def with_constant(model: onnx.ModelProto, name: str, values: np.ndarray) -> onnx.ModelProto:
    model.graph.initializer.append(onnx.numpy_helper.from_array(values.astype(np.float32), name))
    return model


@pytest.mark.parametrize(
    ("factor", "channels"),
    [
        (90.0, (3, 11)),
        (6.0, None),  # the channels of trained networks differ as much
        (1.0, None),
    ],
)
def test_channels_that_starve_the_others_are_named(
    factor: float, channels: tuple[int, ...] | None, tmp_path: Path
) -> None:
    gamma = np.ones(16)
    gamma[[3, 11]] = factor, factor * 0.8
    model = with_constant(build(NORM, {"w": (16, 16)}), "gamma", gamma)
    reference, candidate = quantized(model, tmp_path)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model))))
    assert [s.layers for s in found] == ([("norm",)] if channels else [])
    for suspicion in found:
        assert sorted(suspicion.evidence["channels"]) == list(channels or ())  # type: ignore[arg-type]
        assert suspicion.evidence["axis"] == 2
        assert "16 bits" in suspicion.repairs[0].how


def test_a_wide_tensor_without_outliers_is_not_suspected(tmp_path: Path) -> None:
    model = with_constant(build(NORM, {"w": (16, 16)}), "gamma", np.geomspace(1, 300, 16))
    reference, candidate = quantized(model, tmp_path)
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model))))


def test_a_stream_that_carries_an_outlier_is_suspected_as_a_whole_too(tmp_path: Path) -> None:
    offset = np.zeros(16)
    offset[5] = 400.0
    weights = {"w": (16, 16), "v": (16, 16)}
    model = with_constant(build(STREAM, weights), "offset", offset)
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            values = onnx.numpy_helper.to_array(tensor).copy()
            values[5] = 0.0
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    reference, candidate = quantized(model, tmp_path)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model))))
    assert sorted(s.layers for s in found) == [("enter",), ("enter", "residual"), ("residual",)]
    whole = next(s for s in found if len(s.layers) == 2)
    assert whole.evidence["channels"] == (5,)
    assert {source.name for source in whole.sources} == {"a", "b"}
