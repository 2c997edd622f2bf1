"""Bodies that hand on integers get a float form with the same results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.canonical import to_qdq
from analyzers.comparison import compare
from analyzers.graph import read_model, save_model
from analyzers.project import open_models
from analyzers.records import Array
from analyzers.steps import finish
from tests.analyzers.sets import MemorySamples
from tests.analyzers.with_bodies import network

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
LOOP = """
net (float[1,12] h, int64 n) => (float[1,6] out, float[?,1,12] trace)
{
    begun = QuantizeLinear(h, step, zero)
    [recur] last_integer, trace = Loop(n, yes, begun) <
        body = step (int64 i, bool go, uint8[1,12] state_integer)
            => (bool go_on, uint8[1,12] next_integer, float[1,12] seen) {
            [keep] go_on = Identity(go)
            state = DequantizeLinear(state_integer, step, zero)
            [step_mm] mm = MatMul(state, w0)
            [step_act] next = Tanh(mm)
            next_integer = QuantizeLinear(next, step, zero)
            next_read = DequantizeLinear(next_integer, step, zero)
            [seen_mm] seen = MatMul(next_read, w1)
        }
    >
    last = DequantizeLinear(last_integer, step, zero)
    [head] out = MatMul(last, w2)
}
"""
IF = """
net (float[1,4,8,8] x) => (float[1,4,8,8] out)
{
    [stem] s = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0)
    [act] a = Tanh(s)
    [mean] m = ReduceMean<keepdims=0>(x)
    [bright] c = Greater(m, nothing)
    [pick] picked = If(c) <
        then_branch = bright_body () => (uint8[1,4,8,8] t_integer) {
            [then_conv] tc = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a, w1)
            [then_act] t = Tanh(tc)
            t_integer = QuantizeLinear(t, step, zero)
        },
        else_branch = dark_body () => (uint8[1,4,8,8] e_integer) {
            [else_conv] ec = Conv<kernel_shape=[1,1]>(a, w2)
            [else_act] e = Sigmoid(ec)
            e_integer = QuantizeLinear(e, step, zero)
        }
    >
    p = DequantizeLinear(picked, step, zero)
    [head] out = Conv<kernel_shape=[1,1]>(p, w3)
}
"""
TEXTS = {"loop": LOOP, "if": IF}


def _write(name: str, folder: Path) -> tuple[Path, Path]:
    """Write the float network and a candidate that hands on integers."""
    reference, _ = network(name).write(folder)
    weights = {t.name: t for t in onnx.load(reference).graph.initializer if t.name.startswith("w")}
    model = onnx.parser.parse_model(HEADER + TEXTS[name])
    constants = {
        "step": np.float32(3.2 / 127),
        "zero": np.uint8(128),
        "yes": np.array(True),
        "nothing": np.float32(0),
    }
    model.graph.initializer.extend(weights.values())
    for key, value in constants.items():
        if key in TEXTS[name]:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), key))
    onnx.checker.check_model(model)
    candidate = folder / "integers.onnx"
    onnx.save(model, candidate)
    return reference, candidate


def _run(path: Path, feeds: list[dict[str, Array]]) -> list[Array]:
    session = open_session(path, mode="literal")
    return [array for feed in feeds for array in session.run(feed).values()]


@pytest.mark.parametrize("name", TEXTS)
def test_bodies_hand_on_floats_and_the_results_are_the_same(name: str, tmp_path: Path) -> None:
    _, candidate = _write(name, tmp_path)
    rewritten = to_qdq(read_model(candidate).ir)
    (node,) = (n for n in rewritten.graph if n.op_type in {"If", "Loop"})
    assert {value.dtype for value in node.outputs} == {ir.DataType.FLOAT}
    feeds = network(name).samples()
    again = _run(save_model(rewritten, tmp_path / "floats"), feeds)
    for ours, theirs in zip(_run(candidate, feeds), again, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", TEXTS)
def test_such_a_candidate_can_be_compared(name: str, tmp_path: Path) -> None:
    pair = open_models(*_write(name, tmp_path))
    compared = finish(compare(pair, MemorySamples(network(name).samples())))
    assert all(row.sqnr_db > 20 for row in compared.outputs)
    holder = next(row for row in compared.layers if row.op_type in {"If", "Loop"})
    assert holder.isolated is not None
    assert holder.isolated.sqnr_db > 20


def test_a_scale_of_zero_is_left_alone(tmp_path: Path) -> None:
    """Dequantizing and quantizing again would not give the same integers."""
    _, candidate = _write("loop", tmp_path)
    model = onnx.load(candidate)
    for tensor in model.graph.initializer:
        if tensor.name == "step":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.float32(0), "step"))
    onnx.save(model, candidate)
    rewritten = to_qdq(read_model(candidate).ir)
    (node,) = (n for n in rewritten.graph if n.op_type == "Loop")
    assert node.outputs[0].dtype == ir.DataType.UINT8
