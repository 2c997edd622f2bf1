from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

from analyzers.graph import read_model
from analyzers.layers import group_nodes, layer_records
from analyzers.records import Layer
from analyzers.skeleton import skeleton_of

HEADER = '<ir_version: 8, opset_import: ["" : 13]>\n'


def layers(text: str, folder: Path, *, stored: set[str] | None = None) -> dict[str, Layer]:
    """Group a network as if the candidate stored these tensors (None: all of them)."""
    path = folder / "net.onnx"
    onnx.save(onnx.parser.parse_model(HEADER + text), path)
    graph = read_model(path).ir.graph
    skeleton = skeleton_of(graph)
    grouping = group_nodes(skeleton, graph, lambda v: stored is None or v.name in stored)
    return {layer.name: layer for layer in layer_records(grouping, lambda _: True)}


GELU = """
net (float[1,8] x, float[8,8] w) => (float[1,8] y)
<float root = {1.4142135}, float one = {1.0}, float half = {0.5}>
{
    [fc] m = MatMul(x, w)
    [div] d = Div(m, root)
    [erf] e = Erf(d)
    [add] a = Add(e, one)
    [mul] p = Mul(m, a)
    [scale] y = Mul(p, half)
}
"""

TANH_GELU = """
net (float[1,8] x, float[8,8] w) => (float[1,8] y)
<float three = {3.0}, float c = {0.044715}, float r = {0.7978}, float one = {1.0}, float half = {0.5}>
{
    [fc] m = MatMul(x, w)
    [cube] q = Pow(m, three)
    [c] k = Mul(q, c)
    [sum] s = Add(m, k)
    [r] t = Mul(s, r)
    [tanh] h = Tanh(t)
    [one] u = Add(h, one)
    [half] v = Mul(m, half)
    [out] y = Mul(v, u)
}
"""

HARD_SWISH = """
net (float[1,3,4,4] x, float[3,3,1,1] w) => (float[1,3,4,4] y)
{
    [conv] c = Conv(x, w)
    [gate] g = HardSigmoid(c)
    [mul] y = Mul(c, g)
}
"""


@pytest.mark.parametrize(
    ("text", "count"), [(GELU, 6), (TANH_GELU, 9), (HARD_SWISH, 3)], ids=["gelu", "tanh-gelu", "hard-swish"]
)
def test_a_decomposed_activation_joins_the_layer_before_it_even_when_stored_inside(
    text: str, count: int, tmp_path: Path
) -> None:
    found = layers(text, tmp_path)
    assert [len(layer.nodes) for layer in found.values()] == [count]


SQUEEZE_EXCITE = """
net (float[1,3,4,4] x, float[3,3,1,1] w, float[3,3,1,1] v) => (float[1,3,4,4] y)
{
    [conv] c = Conv(x, w)
    [gap] g = GlobalAveragePool(c)
    [fc] f = Conv(g, v)
    [gate] s = Sigmoid(f)
    [mul] y = Mul(c, s)
}
"""


def test_a_gate_from_another_branch_is_no_activation(tmp_path: Path) -> None:
    found = layers(SQUEEZE_EXCITE, tmp_path, stored={"c", "g", "s"})
    assert {name: layer.nodes for name, layer in found.items()} == {
        "conv": ("conv",),
        "gap": ("gap",),
        "fc": ("fc", "gate"),
        "mul": ("mul",),
    }


RESIDUAL = """
net (float[1,3,4,4] x, float[3,3,1,1] w) => (float[1,3,4,4] y, float[1,3,4,4] c)
{
    [conv] c = Conv(x, w)
    [relu] r = Relu(c)
    [add] y = Add(r, x)
}
"""


def test_a_tensor_that_leaves_the_graph_ends_a_layer(tmp_path: Path) -> None:
    assert list(layers(RESIDUAL, tmp_path, stored=set())) == ["conv", "relu", "add"]


UNNAMED = """
net (float[1,3,4,4] x) => (float[1,3,4,4] y)
{
    a = Relu(x)
    y = Sigmoid(a)
}
"""


def test_unnamed_nodes_are_called_by_operator_and_first_output(tmp_path: Path) -> None:
    assert list(layers(UNNAMED, tmp_path)) == ["Relu:a", "Sigmoid:y"]


UPSAMPLED = """
net (float[1,3,4,4] x) => (float[1,3,8,8] y, float[1,3,8,8] z)
<float[4] scales = {1.0, 1.0, 2.0, 2.0}, float[0] none = {}>
{
    [near] y = Resize<mode="nearest">(x, none, scales)
    [linear] z = Resize<mode="linear">(x, none, scales)
}
"""


def test_only_nearest_resize_passes_through(tmp_path: Path) -> None:
    found = layers(UPSAMPLED, tmp_path)
    assert found["near"].is_pass_through
    assert not found["linear"].is_pass_through
