from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.canonical import to_qdq
from analyzers.graph import read_model, save_model
from tests.networks import NETWORKS, PLAIN, PLAIN_SHAPES, build, quantized, samples

INTEGER_OPERATORS = ("QLinear", "QGemm")


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_integer_operators_become_qdq_with_the_same_result(
    name: str, per_channel: bool, tmp_path: Path
) -> None:
    network = build(*NETWORKS[name])
    _, candidate = quantized(network, tmp_path, form="QOperator", per_channel=per_channel)
    rewritten = to_qdq(read_model(candidate).ir)
    assert not [n.op_type for n in rewritten.graph if n.op_type.startswith(INTEGER_OPERATORS)]
    path = save_model(rewritten, tmp_path / "qdq")
    feed = samples(network, 1, seed=9)[0]
    given, again = open_session(candidate).run(feed), open_session(path).run(feed)
    for output, value in given.items():
        step = np.abs(value).max() / 127
        assert np.abs(value - again[output]).max() <= 2 * step


def test_a_qdq_candidate_is_left_as_it_is(tmp_path: Path) -> None:
    _, candidate = quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)
    model = read_model(candidate).ir
    assert [n.name for n in to_qdq(model).graph] == [n.name for n in model.graph]


RAW = """
<ir_version: 8, opset_import: ["" : 13]>
net (uint8[1,4] image) => (uint8[1,4] scores)
<float s = {0.5}, uint8 z = {128}, float t = {0.25}, uint8 y = {100}>
{
    x = DequantizeLinear(image, s, z)
    r = Relu(x)
    scores = QuantizeLinear(r, t, y)
}
"""


def test_integer_inputs_and_outputs_get_a_float_form(tmp_path: Path) -> None:
    path = tmp_path / "raw.onnx"
    onnx.save(onnx.parser.parse_model(RAW), path)
    model = to_qdq(read_model(path).ir)
    assert [v.dtype for v in [*model.graph.inputs, *model.graph.outputs]] == [ir.DataType.FLOAT] * 2
    result = open_session(save_model(model, tmp_path / "float")).run({"image": np.float32([[-3, 0, 1, 2.2]])})
    np.testing.assert_allclose(result["scores"], [[0, 0, 1, 2]])


PADDED = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[1,1,2,2] x) => (float[1,1,4,4] y)
<float s = {0.5}, uint8 z = {128}, int64[8] pads = {0,0,1,1,0,0,1,1}, uint8 zero = {0}>
{
    q = QuantizeLinear(x, s, z)
    p = Pad(q, pads, zero)
    y = DequantizeLinear(p, s, z)
}
"""


def test_a_raw_zero_as_padding_keeps_its_wrong_meaning(tmp_path: Path) -> None:
    path = tmp_path / "pad.onnx"
    onnx.save(onnx.parser.parse_model(PADDED), path)
    rewritten = save_model(to_qdq(read_model(path).ir), tmp_path / "qdq")
    feed = {"x": np.ones((1, 1, 2, 2), np.float32)}
    expected = open_session(path).run(feed)["y"]
    assert expected.min() == -64
    np.testing.assert_array_equal(open_session(rewritten).run(feed)["y"], expected)
