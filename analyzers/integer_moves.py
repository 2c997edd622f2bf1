"""Operators that only move integers about, as float operators between quantizers of the same scale."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from analyzers.graph import constant_array, is_constant
from analyzers.qlinear_forms import WRITERS
from analyzers.rewriting import INTEGER_TYPES, Rewriter, Scale

MOVES_INTEGERS = frozenset(
    "MaxPool Reshape Transpose Flatten Squeeze Unsqueeze Slice Split Resize Gather GatherND GatherElements "
    "ScatterND ScatterElements Where Concat Pad Identity DepthToSpace SpaceToDepth Expand Tile "
    "Upsample".split()
)
# Which inputs are moved, where that is not the first one alone.
_MOVED = {"Where": (1, 2), "ScatterND": (0, 2), "ScatterElements": (0, 2)}


def known_scale(rewriter: Rewriter, node: ir.Node) -> Scale | None:
    """Return the scale of what the node moves; integer constants among it have the scale of the rest."""
    moved = [v for v in (node.inputs[i] for i in _moved(node)) if v is not None]
    if all(is_constant(v) for v in moved) and moved and moved[0].dtype in INTEGER_TYPES:
        scale = _scale_of_readers(node.outputs[0])
        if scale is not None:
            rewriter.scales.update((v, scale) for v in moved)
    known = [rewriter.scales.get(v) for v in moved if v in rewriter.scales or not is_constant(v)]
    return known[0] if known and all(k is not None for k in known) else None


def _scale_of_readers(value: ir.Value) -> Scale | None:
    """Return how those who read integers scale them, where they agree: a table that a Gather reads."""
    found: list[Scale] = []
    for use in value.uses():
        reads_scale = use.node.op_type in WRITERS or use.node.op_type == "DequantizeLinear"
        inputs = [*use.node.inputs, None, None][use.idx + 1 : use.idx + 3]
        if reads_scale and inputs[0] is not None:
            found.append(Scale(inputs[0], inputs[1]))
        elif use.node.op_type in MOVES_INTEGERS:
            scale = _scale_of_readers(use.node.outputs[0])
            found += [] if scale is None else [scale]
    return found[0] if found and all(f.scale is found[0].scale for f in found) else None


def _moved(node: ir.Node) -> tuple[int, ...]:
    """Return which inputs hold what is moved."""
    if node.op_type == "Concat":
        return tuple(range(len(node.inputs)))
    return _MOVED.get(node.op_type, (0,))


def move_integers(rewriter: Rewriter, node: ir.Node) -> None:
    """Insert the float operator before ``node``, read from and stored as the integers that it moves."""
    scale = known_scale(rewriter, node)
    assert scale is not None
    inputs = list(node.inputs)
    for index in _moved(node):
        value = inputs[index]
        if value is not None:
            own = rewriter.scales.get(value, scale)
            inputs[index] = rewriter.dequantize(value, own.scale, own.zero_point)
    if node.op_type == "Pad" and len(inputs) > 2 and inputs[2] is not None:
        inputs[2] = _float_pad_value(rewriter, inputs[2], scale)
    new = ir.Node(
        "",
        node.op_type,
        inputs,
        attributes=list(node.attributes.values()),
        num_outputs=len(node.outputs),
        name=node.name,
    )
    rewriter.graph.insert_before(node, new)
    for output, target in zip(new.outputs, list(node.outputs), strict=True):
        output.name = rewriter.fresh(f"{target.name}_float")
        rewriter.quantize_into(output, scale, target)


def _float_pad_value(rewriter: Rewriter, value: ir.Value, scale: Scale) -> ir.Value:
    integer, step, zero = constant_array(value), constant_array(scale.scale), constant_array(scale.zero_point)
    if integer is None or step is None:
        return value
    offset = 0 if zero is None else zero.astype(np.int64)
    return rewriter.constant(
        ((integer.astype(np.int64) - offset) * step).astype(np.float32), f"{value.name}_float"
    )
