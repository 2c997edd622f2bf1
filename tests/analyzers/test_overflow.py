from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.overflow import find_overflow
from analyzers.project import open_models
from analyzers.records import Array
from analyzers.steps import finish
from tests.networks import build, quantized, samples

# Squares of up to 1e5 in the middle; everything else is small.
SQUARES = """
net (float[1,3,8,8] image) => (float[1,4,8,8] out)
{
    [first] a = Conv<kernel_shape=[1,1]>(image, w0)
    [wide] b = Conv<kernel_shape=[1,1]>(a, w1)
    [square] c = Mul(b, b)
    [narrow] d = Conv<kernel_shape=[1,1]>(c, w2)
    [last] out = Conv<kernel_shape=[1,1]>(d, w3)
}
"""
SHAPES = {"w0": (4, 3, 1, 1), "w1": (4, 4, 1, 1), "w2": (4, 4, 1, 1), "w3": (4, 4, 1, 1)}


def overflow_of(folder: Path, factors: dict[str, float]) -> frozenset[str]:
    model = build(SQUARES, SHAPES)
    for tensor in model.graph.initializer:
        if tensor.name in factors:
            scaled = onnx.numpy_helper.to_array(tensor) * np.float32(factors[tensor.name])
            tensor.CopyFrom(onnx.numpy_helper.from_array(scaled, tensor.name))
    pair = open_models(*quantized(model, folder))
    feeds = samples(model, 2)

    def run(path: Path) -> Iterator[dict[str, Array]]:
        session = open_session(path, is_simulated=True)
        for feed in feeds:
            yield session.run(feed)

    layers = [la.name for la in pair.pairing.layers if la.is_quantized and not la.is_pass_through]
    return finish(find_overflow(pair, layers, run, folder))


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ({}, set()),
        # Left in INT8 the squares are still values that the next layer cannot read in half precision.
        ({"w1": 300.0, "w2": 1e-4}, {"square", "narrow"}),
        ({"w1": 300.0, "w2": 1e-4, "w3": 1e7}, {"square", "narrow", "last"}),
    ],
)
def test_only_layers_that_overflow_by_themselves_are_named(
    tmp_path: Path, factors: dict[str, float], expected: set[str]
) -> None:
    assert overflow_of(tmp_path, factors) == expected
