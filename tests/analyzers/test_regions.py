from __future__ import annotations

import onnx_ir as ir
import pytest

from analyzers.regions import regions
from analyzers.skeleton import Skeleton, skeleton_of

NET = """<ir_version: 8, opset_import: ["" : 17]>
net (float[1,4,8] x) => (float[1,4,8] out)
<float half = {0.5}>
{
    [s] g = Sigmoid(x)
    [m] a = Mul(x, g)
    [mean] u = ReduceMean<axes=[2]>(a)
    [sub] d = Sub(a, u)
    [sq] q = Mul(d, d)
    [var] v = ReduceMean<axes=[2]>(q)
    [root] r = Sqrt(v)
    [div] n = Div(d, r)
    [scale] o = Mul(n, half)
    [skip] out = Add(o, x)
}
"""


def parts() -> tuple[Skeleton, dict[str, ir.Node], ir.Model]:
    model = ir.from_onnx_text(NET)
    return skeleton_of(model.graph), {n.name or "": n for n in model.graph}, model


@pytest.mark.parametrize(
    ("first", "ends"),
    [
        ("s", [("s", "g"), ("m", "a"), ("sub", "d"), ("div", "n"), ("scale", "o"), ("skip", "out")]),
        ("mean", [("mean", "u"), ("sub", "d"), ("div", "n"), ("scale", "o")]),
        ("scale", [("scale", "o")]),
    ],
)
def test_a_region_ends_where_a_single_value_leaves_it(first: str, ends: list[tuple[str, str]]) -> None:
    skeleton, nodes, model = parts()
    start = skeleton.data_inputs(nodes[first])[0]
    assert start is not None
    found = list(regions(skeleton, start, nodes[first], lambda _: True, set(model.graph.outputs)))
    named = [(r.nodes[-1].name, r.exit.name) for r in found]
    assert [pair for pair in named if pair in ends] == ends
    for region in found:
        made = {v for n in region.nodes for v in n.outputs}
        for node in region.nodes:
            assert all(v is None or v is start or v in made for v in skeleton.data_inputs(node))


def test_a_region_keeps_to_what_is_free() -> None:
    skeleton, nodes, model = parts()
    start = model.graph.inputs[0]
    is_free = lambda node: node.name != "m"  # noqa: E731
    found = list(regions(skeleton, start, nodes["s"], is_free, set(model.graph.outputs)))
    assert [r.exit.name for r in found] == ["g"]


def test_a_node_of_two_sources_begins_no_region() -> None:
    skeleton, nodes, model = parts()
    start = skeleton.data_inputs(nodes["skip"])[0]
    assert start is not None
    assert not list(regions(skeleton, start, nodes["skip"], lambda _: True, set(model.graph.outputs)))
