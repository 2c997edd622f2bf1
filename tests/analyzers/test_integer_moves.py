"""Operators that move integers get their scale from what they move, or from who reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.canonical import to_qdq
from analyzers.graph import read_model, save_model

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
JOINED = """
net (float[1,2,4] x) => (float[1,3,4] out)
<float s = {0.1}, uint8 z = {128}, uint8[1,1,4] rest = {0, 100, 128, 255}>
{
    q = QuantizeLinear(x, s, z)
    j = Concat<axis=1>(q, rest)
    out = DequantizeLinear(j, s, z)
}
"""
TABLE = """
net (int64[1,3] ids) => (float[1,3,2] out)
<float s = {0.1}, uint8 z = {128}, uint8[4,2] table = {0, 1, 2, 3, 100, 128, 200, 255}>
{
    g = Gather(table, ids)
    out = DequantizeLinear(g, s, z)
}
"""
CHOSEN = """
net (float[1,4] x, bool[1,4] mask) => (float[1,4] out)
<float s = {0.1}, uint8 z = {128}, uint8 zero = {128}>
{
    q = QuantizeLinear(x, s, z)
    w = Where(mask, q, zero)
    out = DequantizeLinear(w, s, z)
}
"""


@pytest.mark.parametrize(("text", "operator"), [(JOINED, "Concat"), (TABLE, "Gather"), (CHOSEN, "Where")])
def test_integers_that_are_moved_are_moved_as_floats_and_stay_the_same(
    text: str, operator: str, tmp_path: Path
) -> None:
    path = tmp_path / "integers.onnx"
    onnx.save(onnx.parser.parse_model(HEADER + text), path)
    canonical = to_qdq(read_model(path).ir)
    node = next(n for n in canonical.graph if n.op_type == operator)
    readers = [v.producer() for v in node.inputs if v is not None]
    assert any(r is not None and r.op_type == "DequantizeLinear" for r in readers)
    random = np.random.default_rng(0)
    known = {
        "x": random.normal(0, 4, (1, 2, 4) if operator == "Concat" else (1, 4)).astype(np.float32),
        "ids": np.array([[3, 0, 2]]),
        "mask": np.array([[True, False, True, False]]),
    }
    feeds = {spec.name: known[spec.name] for spec in read_model(path).inputs}
    given = open_session(path).run(feeds)["out"]
    made = open_session(save_model(canonical, tmp_path, name="qdq.onnx"), mode="literal").run(feeds)["out"]
    np.testing.assert_array_equal(made, given)
