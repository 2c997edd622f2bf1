from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.records import Array

WEIGHT_ONLY = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[1,8,24] x) => (float[1,8,24] y)
<float one = {1.0}>
{
    s = Add(x, one)
    w = DequantizeLinear<axis = 1>(weights, scale, zero)
    h = MatMul(s, w)
    y = Tanh(h)
}
"""


@pytest.fixture
def weight_only(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(WEIGHT_ONLY)
    weights = random.integers(-127, 127, (24, 24), dtype=np.int8)
    model.graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(weights, "weights"),
            onnx.numpy_helper.from_array(np.full(24, 1e-3, np.float32), "scale"),
            onnx.numpy_helper.from_array(np.zeros(24, np.int8), "zero"),
        ]
    )
    onnx.save(model, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def feed() -> dict[str, Array]:
    x = np.random.default_rng(1).normal(size=(1, 8, 24)).astype(np.float32)
    x[..., 3] *= 1000
    return {"x": x}


def test_float_activations_are_not_quantized_on_the_fly(weight_only: Path) -> None:
    literal = open_session(weight_only, mode="literal").run(feed())["y"]
    executed = open_session(weight_only).run(feed())["y"]
    plain = open_session(weight_only, is_plain=True).run(feed())["y"]
    assert np.abs(executed - literal).max() < 1e-3 < np.abs(plain - literal).max()
