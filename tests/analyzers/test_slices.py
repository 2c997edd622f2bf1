"""Slices are proven by running the graph: what a slice says it holds must be exactly there."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from analyzers.records import Slice
from analyzers.slices import output_slices, tensor_slices


def model(signature: str, *body: str) -> ir.Model:
    lines = "\n".join(body)
    header = '<ir_version: 9, opset_import: ["" : 17, "com.example" : 1]>'
    return ir.from_proto(onnx.parser.parse_model(f"{header}\nnet {signature}\n{{\n{lines}\n}}"))


STRUCTURAL = {
    "concat": ("(float[1,4] a, float[1,1] b) => (float[1,5] y)", "y = Concat <axis = -1> (a, b)"),
    "transpose": (
        "(float[1,2,3,4] a, float[1,5,3,4] b) => (float[1,3,4,7] y)",
        "c = Concat <axis = 1> (a, b)",
        "y = Transpose <perm = [0, 2, 3, 1]> (c)",
    ),
    "reversing transpose": (
        "(float[2,3] a, float[4,3] b) => (float[3,6] y)",
        "c = Concat <axis = 0> (a, b)",
        "y = Transpose (c)",
    ),
    "reshape that keeps the axis": (
        "(float[1,4,3,3] a, float[1,1,3,3] b) => (float[1,5,9] y)",
        "c = Concat <axis = 1> (a, b)",
        "s = Constant <value_ints = [0, 0, -1]> ()",
        "y = Reshape (c, s)",
    ),
    "reshape that folds the axis into a longer one": (
        "(float[1,2,3] a, float[1,4,3] b) => (float[18] y)",
        "c = Concat <axis = 1> (a, b)",
        "s = Constant <value_ints = [-1]> ()",
        "y = Reshape (c, s)",
    ),
    "reshape that splits the axis": (
        "(float[1,4] a, float[1,8] b) => (float[3,2,2] y)",
        "c = Concat <axis = 1> (a, b)",
        "s = Constant <value_ints = [3, 2, 2]> ()",
        "y = Reshape (c, s)",
    ),
    "flatten": (
        "(float[2,3,2,2] a, float[2,1,2,2] b) => (float[2,16] y)",
        "c = Concat <axis = 1> (a, b)",
        "y = Flatten (c)",
    ),
    "squeeze and unsqueeze": (
        "(float[1,2,1,3] a, float[1,4,1,3] b) => (float[1,6,3,1] y)",
        "c = Concat <axis = 1> (a, b)",
        "two = Constant <value_ints = [2]> ()",
        "d = Squeeze (c, two)",
        "last = Constant <value_ints = [-1]> ()",
        "y = Unsqueeze (d, last)",
    ),
    "slice": (
        "(float[1,4] a, float[1,4] b) => (float[1,5] y)",
        "c = Concat <axis = 1> (a, b)",
        "start = Constant <value_ints = [-7]> ()",
        "end = Constant <value_ints = [6]> ()",
        "axis = Constant <value_ints = [1]> ()",
        "y = Slice (c, start, end, axis)",
    ),
    "split": (
        "(float[1,4] a, float[1,4] b) => (float[1,6] y, float[1,2] z)",
        "c = Concat <axis = 1> (a, b)",
        "sizes = Constant <value_ints = [6, 2]> ()",
        "y, z = Split <axis = 1> (c, sizes)",
    ),
    "nested joins": (
        "(float[1,2] a, float[1,2] b, float[1,3] c) => (float[1,7] y)",
        "d = Concat <axis = 1> (a, b)",
        "y = Concat <axis = 1> (c, d)",
    ),
    "a shape that the graph computes": (
        "(float[2,6,3] a, float[2,6,4] b) => (float[N,M,K] y)",
        "c = Concat <axis = 2> (a, b)",
        "d = Transpose <perm = [0, 2, 1]> (c)",
        "shape = Shape (d)",
        "zero = Constant <value_int = 0> ()",
        "batch = Gather <axis = 0> (shape, zero)",
        "axes = Constant <value_ints = [0]> ()",
        "lead = Unsqueeze (batch, axes)",
        "rest = Constant <value_ints = [7, -1]> ()",
        "target = Concat <axis = 0> (lead, rest)",
        "y = Reshape (d, target)",
    ),
}


@pytest.mark.parametrize("graph", STRUCTURAL.values(), ids=STRUCTURAL)
def test_a_slice_holds_what_its_name_says(graph: tuple[str, ...]) -> None:
    built = model(*graph)
    inputs = [v for v in built.graph.inputs if v.shape is not None]
    numbers = {v.name or "": float(i + 1) for i, v in enumerate(inputs)}
    feeds = {
        v.name or "": np.full(v.shape.numpy(), numbers[v.name or ""], np.float32) for v in inputs if v.shape
    }
    arrays = ReferenceEvaluator(ir.to_proto(built)).run(None, feeds)
    found = output_slices(built)
    named = set()
    for parts, array in zip(found.values(), arrays, strict=True):
        for part in parts:
            if part.name in numbers:
                held = np.take(array, range(part.start, part.stop), axis=part.axis)
                assert np.unique(held).tolist() == [numbers[part.name]], part
                named.add(part.name)
    assert named == set(numbers), "a part was lost"


def test_a_detection_head_shows_boxes_and_scores_along_its_last_axis_and_its_scales_along_the_anchors() -> (
    None
):
    head = model(
        "(float[1,4,4,4] box8, float[1,80,4,4] cls8, float[1,4,2,2] box16, float[1,80,2,2] cls16)"
        " => (float[1,20,84] y)",
        "s8 = Sigmoid (cls8)",
        "s16 = Sigmoid (cls16)",
        "p8 = Concat <axis = 1> (box8, s8)",
        "p16 = Concat <axis = 1> (box16, s16)",
        "flat = Constant <value_ints = [1, 84, -1]> ()",
        "f8 = Reshape (p8, flat)",
        "f16 = Reshape (p16, flat)",
        "all = Concat <axis = 2> (f8, f16)",
        "y = Transpose <perm = [0, 2, 1]> (all)",
    )
    assert output_slices(head) == {
        "y": (
            Slice(1, 0, 16, "f8"),
            Slice(1, 16, 20, "f16"),
            Slice(2, 0, 4, "box8 + box16"),
            Slice(2, 4, 84, "s8 + s16"),
        )
    }


def test_parts_pass_elementwise_operators_but_not_broadcast_axes() -> None:
    built = model(
        "(float[1,2,5] a, float[1,3,5] b, float[5] scale, float[1,1,5] wide)"
        " => (float[1,5,5] y, float[1,5,5] z)",
        "c = Concat <axis = 1> (a, b)",
        "d = Mul (c, scale)",
        "y = Sigmoid (d)",
        "w = Concat <axis = 1> (wide)",
        "z = Add (d, w)",
    )
    parts = (Slice(1, 0, 2, "a"), Slice(1, 2, 5, "b"))
    assert output_slices(built) == {"y": parts, "z": parts}


def test_softmax_mixes_its_own_axis_and_keeps_those_before_it() -> None:
    built = model(
        "(float[1,4,2] a, float[1,6,2] b, float[1,10,3] c) => (float[1,10,5] y)",
        "d = Concat <axis = 1> (a, b)",
        "e = Concat <axis = 2> (d, c)",
        "y = Softmax <axis = -1> (e)",
    )
    assert output_slices(built) == {"y": ()}  # the anchors of only one of two joined tensors are no part
    built = model(
        "(float[1,4,2] a, float[1,6,2] b) => (float[1,10,2] y)",
        "d = Concat <axis = 1> (a, b)",
        "y = Softmax <axis = -1> (d)",
    )
    assert output_slices(built) == {"y": (Slice(1, 0, 4, "a"), Slice(1, 4, 10, "b"))}


UNPROVABLE = {
    "an unknown shape": (
        "(float[1,N] a, float[1,3] b) => (float[1,M] y)",
        "y = Concat <axis = 1> (a, b)",
    ),
    "a reshape that mixes the axis with the one before it": (
        "(float[3,2] a, float[3,4] b) => (float[18] y)",
        "c = Concat <axis = 1> (a, b)",
        "s = Constant <value_ints = [-1]> ()",
        "y = Reshape (c, s)",
    ),
    "a reshape that cuts through the part": (
        "(float[1,3] a, float[1,3] b) => (float[3,2] y)",
        "c = Concat <axis = 1> (a, b)",
        "s = Constant <value_ints = [3, 2]> ()",
        "y = Reshape (c, s)",
    ),
    "a matrix product": (
        "(float[2,3] a, float[2,3] b, float[6,6] w) => (float[2,6] y)",
        "c = Concat <axis = 1> (a, b)",
        "y = MatMul (c, w)",
    ),
    "a gather": (
        "(float[3] a, float[3] b, int64[6] i) => (float[6] y)",
        "c = Concat <axis = 0> (a, b)",
        "y = Gather <axis = 0> (c, i)",
    ),
    "every second value": (
        "(float[4] a, float[4] b) => (float[4] y)",
        "c = Concat <axis = 0> (a, b)",
        "start = Constant <value_ints = [0]> ()",
        "end = Constant <value_ints = [8]> ()",
        "step = Constant <value_ints = [2]> ()",
        "y = Slice (c, start, end, start, step)",
    ),
    "another domain": (
        "(float[3] a, float[3] b) => (float[6] y)",
        "c = Concat <axis = 0> (a, b)",
        "y = com.example.Relu (c)",
    ),
}


@pytest.mark.parametrize("graph", UNPROVABLE.values(), ids=UNPROVABLE)
def test_what_cannot_be_proven_is_no_slice(graph: tuple[str, ...]) -> None:
    assert output_slices(model(*graph)) == {"y": ()}


def test_a_dynamic_batch_is_followed_where_sizes_prove_the_rest() -> None:
    built = model(
        "(float[N,2,4,4] a, float[N,3,4,4] b) => (float[N,5,16] y)",
        "c = Concat <axis = 1> (a, b)",
        "s = Constant <value_ints = [0, 5, -1]> ()",
        "y = Reshape (c, s)",
    )
    assert output_slices(built) == {"y": (Slice(1, 0, 2, "a"), Slice(1, 2, 5, "b"))}


def test_inner_tensors_have_slices_too_and_the_model_stays_as_it_is() -> None:
    built = model(
        "(float[1,2,3,3] a, float[1,3,3,3] b, float[4,5,1,1] w) => (float[1,4,3,3] y)",
        "c = Concat <axis = 1> (a, b)",
        "r = Relu (c)",
        "y = Conv (r, w)",
    )
    before = ir.to_proto(built).SerializeToString()
    parts = (Slice(1, 0, 2, "a"), Slice(1, 2, 5, "b"))
    assert tensor_slices(built) == {"c": parts, "r": parts}
    assert output_slices(built) == {"y": ()}
    assert ir.to_proto(built).SerializeToString() == before
