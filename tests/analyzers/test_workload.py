from __future__ import annotations

import onnx.parser
import onnx_ir as ir
import pytest

from analyzers.records import Layer
from analyzers.workload import workload_of
from tests.networks import HEADER, NETWORKS, build


def count(body: str, constants: str = "", shapes: dict[str, tuple[int, ...]] | None = None) -> dict[str, int]:
    """Multiply-accumulates of each node of a graph in which every node is a layer."""
    return work_of(body, constants, shapes)[0]


def work_of(
    body: str, constants: str = "", shapes: dict[str, tuple[int, ...]] | None = None
) -> tuple[dict[str, int], tuple[str, ...]]:
    signature, _, rest = body.partition("{")
    text = f"net {signature} {constants} {{{rest}"
    model = ir.from_proto(onnx.parser.parse_model(HEADER.replace("{opset}", "17") + text))
    layers = [
        Layer(
            node.name or "",
            node.op_type,
            (node.name or "",),
            tuple(v.name or "" for v in node.inputs if v is not None),
            tuple(v.name or "" for v in node.outputs),
            False,
            True,
        )
        for node in model.graph
    ]
    work = workload_of(model, layers, shapes)
    return dict(work.macs), work.uncounted


def initializer(name: str, dims: str, size: int) -> str:
    return f"float[{dims}] {name} = {{{', '.join(['1.0'] * size)}}}"


@pytest.mark.parametrize(
    ("body", "constants", "macs"),
    [
        # 8x8 outputs of 4 channels, each from 3 channels of 3x3
        (
            "(float[1,3,8,8] x) => (float[1,4,8,8] y) { [n] y = Conv<pads=[1,1,1,1]>(x, w) }",
            [("w", "4,3,3,3", 108)],
            4 * 64 * 27,
        ),
        # depthwise, stride 2: 4x4 outputs of 4 channels, each from one channel
        (
            "(float[1,4,8,8] x) => (float[1,4,4,4] y) "
            "{ [n] y = Conv<pads=[1,1,1,1], strides=[2,2], group=4>(x, w) }",
            [("w", "4,1,3,3", 36)],
            4 * 16 * 9,
        ),
        # every input value meets 5 channels of 2x2
        (
            "(float[1,3,4,4] x) => (float[1,5,8,8] y) { [n] y = ConvTranspose<strides=[2,2]>(x, w) }",
            [("w", "3,5,2,2", 60)],
            48 * 20,
        ),
        ("(float[2,6] x) => (float[2,4] y) { [n] y = Gemm<transB=1>(x, w) }", [("w", "4,6", 24)], 2 * 4 * 6),
        ("(float[6,2] x) => (float[2,4] y) { [n] y = Gemm<transA=1>(x, w) }", [("w", "6,4", 24)], 2 * 4 * 6),
        ("(float[2,5,7] x, float[2,7,3] z) => (float[2,5,3] y) { [n] y = MatMul(x, z) }", [], 2 * 5 * 3 * 7),
        (
            "(float[2,5,7] x, float[2,3,7] z) => (float[2,5,3] y) "
            '{ [n] y = Einsum<equation="bik, bjk -> bij">(x, z) }',
            [],
            2 * 5 * 3 * 7,
        ),
        # 6 steps of 2 sequences: weights 1 x 12 x 5 and 1 x 12 x 3 (four gates of 3)
        (
            "(float[6,2,5] x) => (float[6,1,2,3] y) { [n] y = LSTM<hidden_size=3>(x, w, r) }",
            [("w", "1,12,5", 60), ("r", "1,12,3", 36)],
            12 * (60 + 36),
        ),
        ("(float[1,3,8,8] x) => (float[1,3,8,8] y) { [n] y = Relu(x) }", [], 0),
        ("(float[1,3,8,8] x) => (float[1,3,4,4] y) { [n] y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x) }",
         [], 0),
    ],
)  # fmt: skip
def test_multiply_accumulates_are_counted_by_operator(
    body: str, constants: list[tuple[str, str, int]], macs: int
) -> None:
    listed = ", ".join(initializer(*c) for c in constants)
    assert count(body, f"<{listed}>" if listed else "") == {"n": macs}


def test_a_batch_that_the_model_leaves_open_is_that_of_the_sample() -> None:
    body = "(float[N,6] x, float[6,4] z) => (float[N,4] y) { [n] y = MatMul(x, z) }"
    assert work_of(body, shapes={"x": (3, 6)}) == ({"n": 72}, ())
    assert work_of(body) == ({"n": 0}, ("n",))


def test_shapes_that_the_graph_computes_itself_are_followed() -> None:
    constants = "<int64[1] rest = {-1}, int64[1] eight = {8}, int64 place = {0}>"
    body = """(float[N,4,2] x, float[8,5] w) => (float[N,5] y) {
        [shape] s = Shape(x)
        [pick] d = Gather(s, place)
        [wrap] e = Unsqueeze(d, zero)
        [join] t = Concat<axis=0>(e, eight)
        [flat] f = Reshape(x, t)
        [product] y = MatMul(f, w)
    }"""
    macs, uncounted = work_of(
        body, constants.replace("place = {0}", "place = {0}, int64[1] zero = {0}"), {"x": (3, 4, 2)}
    )
    assert macs["product"] == 3 * 8 * 5
    assert uncounted == ()


def test_of_two_branches_the_one_with_more_work_counts() -> None:
    body = """(bool c, float[2,6] x, float[6,4] w) => (float[2,4] y) {
        [choose] y = If(c) <
            then_branch = small () => (float[2,4] a) { a = Slice(x, zero, four, one) },
            else_branch = large () => (float[2,4] b) { b = MatMul(x, w) }>
    }"""
    assert count(body, "<int64[1] zero = {0}, int64[1] four = {4}, int64[1] one = {1}>") == {"choose": 48}


@pytest.mark.parametrize(("name", "macs"), [("plain", 8 * 256 * 27 + 8 * 256 * 9 + 12 * 64 * 8 + 120)])
def test_a_network_has_the_work_of_its_nodes_and_stays_as_it_is(name: str, macs: int) -> None:
    text, shapes = NETWORKS[name]
    model = ir.from_proto(build(text, shapes))
    before = ir.to_proto(model).SerializeToString()
    layers = [
        Layer(n.name or "", n.op_type, (n.name or "",), (), (n.outputs[0].name or "",), False, True)
        for n in model.graph
    ]
    work = workload_of(model, layers)
    assert sum(work.macs.values()) == macs
    assert work.weights["conv0"] == 8 * 27 + 8
    assert work.weights["relu0"] == 0
    assert work.elements["p"] == 8 * 64
    assert work.uncounted == ()
    assert ir.to_proto(model).SerializeToString() == before
