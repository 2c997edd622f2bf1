from __future__ import annotations

import math

import onnx_ir as ir
import pytest

from analyzers.attributes import bounds_of, differing, settings
from analyzers.graph import constant_array, infer_shapes

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


def node(text: str, *, opset: int = 17) -> ir.Node:
    """Return the first node of a graph, with shapes inferred."""
    model = ir.from_onnx_text(HEADER.replace("17", str(opset)) + text)
    infer_shapes(model)
    return model.graph[0]


def told(first: str, second: str) -> tuple[str, ...]:
    """Return what two operators are told differently."""
    text = "net (float[1,2,9,8] x) => (float[a,b,c,d] y) <{}> {{ y = {} }}"
    pair = []
    for part in (first, second):
        constants, _, body = part.rpartition("|")
        pair.append(settings(node(text.format(constants, body)), constant_array, 17))
    return differing(*pair)


W = "float[2,2,3,3] w = {" + ", ".join(["1"] * 36) + "}|"


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        (f"{W}Conv<pads=[1,1,1,1]>(x, w)", f'{W}Conv<auto_pad="SAME_UPPER">(x, w)', ()),
        (
            f"{W}Conv<pads=[1,1,1,1], strides=[2,2]>(x, w)",
            f'{W}Conv<auto_pad="SAME_LOWER", strides=[2,2]>(x, w)',
            ("pads",),
        ),
        (
            f"{W}Conv<pads=[1,0,1,1], strides=[2,2]>(x, w)",
            f'{W}Conv<auto_pad="SAME_UPPER", strides=[2,2]>(x, w)',
            (),
        ),
        (
            f"{W}Conv(x, w)",
            f'{W}Conv<auto_pad="VALID", group=1, dilations=[1,1], kernel_shape=[3,3]>(x, w)',
            (),
        ),
        (f"{W}Conv(x, w)", f"{W}Conv<strides=[1,2]>(x, w)", ("strides",)),
        ("LeakyRelu(x)", "LeakyRelu<alpha=0.01>(x)", ()),
        ("LeakyRelu<alpha=0.1>(x)", "LeakyRelu<alpha=0.2>(x)", ("alpha",)),
        ("Softmax<axis=1>(x)", "Softmax<axis=-3>(x)", ()),
        ("Softmax(x)", "Softmax<axis=1>(x)", ("axis",)),
        ("float low = {0}|Clip(x, low)", "Relu(x)", ()),
        ("float low = {0}, float[1] high = {6}|Clip(x, low, high)", "float low = {0}|Clip(x, low)", ("max",)),
        ("AveragePool<kernel_shape=[2,2]>(x)", "AveragePool<kernel_shape=[2,2], count_include_pad=1>(x)", ()),
        (
            "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(x)",
            "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1>(x)",
            ("count_include_pad",),
        ),
        (
            "MaxPool<kernel_shape=[1,2], strides=[1,2]>(x)",
            "MaxPool<kernel_shape=[1,2], strides=[1,2], ceil_mode=1>(x)",
            (),
        ),
        (
            "MaxPool<kernel_shape=[2,2], strides=[2,2]>(x)",
            "MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(x)",
            ("ceil_mode",),
        ),
        ("ReduceMean<axes=[3,2]>(x)", "ReduceMean<axes=[-2,-1]>(x)", ()),
        ("ReduceMean<axes=[2,3]>(x)", "ReduceMean<axes=[2,3], keepdims=0>(x)", ("keepdims",)),
        (
            "float[4] s = {1,1,2,2}|Resize(x, , s)",
            'int64[4] z = {1,2,18,16}|Resize<mode="nearest", nearest_mode="round_prefer_floor">(x, , , z)',
            (),
        ),
        (
            'float[4] s = {1,1,2,2}|Resize<mode="linear">(x, , s)',
            'float[4] s = {1,1,2,2}|Resize<mode="linear", nearest_mode="ceil">(x, , s)',
            (),
        ),
        (
            "float[4] s = {1,1,2,2}|Resize(x, , s)",
            'float[4] s = {1,1,2,2}|Resize<coordinate_transformation_mode="asymmetric">(x, , s)',
            ("coordinate_transformation_mode",),
        ),
    ],
)
def test_operators_differ_in_what_they_are_told_and_not_in_how(
    first: str, second: str, names: tuple[str, ...]
) -> None:
    assert told(first, second) == names


def test_pads_of_unknown_sizes_stay_as_they_are_said() -> None:
    text = "net (float[1,2,n,m] x) => (float[a,b,c,d] y) <{}> {{ y = {} }}"
    constants, _, body = (W + 'Conv<auto_pad="SAME_UPPER">(x, w)').rpartition("|")
    found = settings(node(text.format(constants, body)), constant_array, 17)
    assert found["auto_pad"] == "SAME_UPPER"
    assert "pads" not in found


@pytest.mark.parametrize(
    ("body", "bounds"),
    [
        ("|Relu(x)", (0.0, math.inf)),
        ("float low = {-1}, float high = {6}|Clip(x, low, high)", (-1.0, 6.0)),
        ("float high = {6}|Clip(x, , high)", (-math.inf, 6.0)),
    ],
)
def test_bounds_are_those_of_the_activation(body: str, bounds: tuple[float, float]) -> None:
    constants, _, call = body.rpartition("|")
    text = "net (float[1,2] x) => (float[1,2] y) <{}> {{ y = {} }}"
    assert bounds_of(node(text.format(constants, call))) == bounds
