"""Bring every form of integer operator into QDQ form, so that the rest of the engine knows one form.

``QLinearConv``, ``QLinearMatMul`` and onnxruntime's ``com.microsoft`` QLinear operators become
DequantizeLinear -> float operator -> QuantizeLinear with the same parameters; for operators with dynamic
scales see ``integer_forms``. Operators that move integers about (MaxPool, Reshape, Concat of integers ...)
get a DequantizeLinear/QuantizeLinear pair of the scale that their input carries. Nothing is rounded twice:
the pair reproduces the integers exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from analyzers.block_forms import rewrite_block_products
from analyzers.float_bodies import float_bodies
from analyzers.folded_constants import fold_layouts
from analyzers.graph import constant_array, infer_shapes, is_constant, node_name
from analyzers.integer_forms import rewrite_integer_products
from analyzers.records import Array

INTEGER_TYPES = frozenset({ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.UINT16, ir.DataType.INT16})
QUANTIZE_OPS = frozenset({"QuantizeLinear", "DequantizeLinear"})
_MOVES_INTEGERS = frozenset(
    "MaxPool Reshape Transpose Flatten Squeeze Unsqueeze Slice Split Resize Gather GatherND GatherElements "
    "ScatterND ScatterElements Where Concat Pad Identity DepthToSpace SpaceToDepth Expand Tile "
    "Upsample".split()
)
# Which inputs are moved, where that is not the first one alone.
_MOVED = {"Where": (1, 2), "ScatterND": (0, 2), "ScatterElements": (0, 2)}


@dataclass(frozen=True, slots=True, eq=False)
class _Scale:
    scale: ir.Value
    zero_point: ir.Value | None


class _Rewriter:
    """Holds the graph under surgery and what is known of the scales of its integer tensors."""

    def __init__(self, model: ir.Model) -> None:
        self.graph = model.graph
        self.scales: dict[ir.Value, _Scale] = {}
        self.anchor: ir.Node | None = None
        self.taken = {v.name for n in self.graph for v in n.outputs} | set(self.graph.initializers)

    def fresh(self, name: str) -> str:
        """Return a value name that is not taken."""
        candidate, count = name, 1
        while candidate in self.taken:
            candidate, count = f"{name}_{count}", count + 1
        self.taken.add(candidate)
        return candidate

    def add(
        self, op: str, inputs: list[ir.Value | None], name: str, attributes: dict[str, ir.Attr] | None = None
    ) -> ir.Value:
        """Insert a one-output node before the anchor and return its value."""
        assert self.anchor is not None
        output = self.fresh(name)
        node = ir.Node(
            "", op, inputs, list((attributes or {}).values()), num_outputs=1, name=f"{op}:{output}"
        )
        node.outputs[0].name = output
        self.graph.insert_before(self.anchor, node)
        return node.outputs[0]

    def constant(self, array: Array, name: str) -> ir.Value:
        """Register an initializer."""
        value = ir.val(self.fresh(name), const_value=ir.tensor(array))
        self.graph.register_initializer(value)
        return value

    def dequantize(
        self, x: ir.Value | None, scale: ir.Value | None, zero: ir.Value | None, *, axis: int | None = None
    ) -> ir.Value:
        """Return the float value of an integer tensor."""
        assert x is not None
        assert scale is not None
        attributes = {} if axis is None else {"axis": ir.AttrInt64("axis", axis)}
        return self.add("DequantizeLinear", [x, scale, zero], f"{x.name}_DequantizeLinear_Output", attributes)

    def quantize_into(self, value: ir.Value, scale: _Scale, target: ir.Value) -> None:
        """Quantize ``value`` and let the result take the place and name of ``target``."""
        stored = self.add("QuantizeLinear", [value, scale.scale, scale.zero_point], f"{target.name}_stored")
        name = target.name
        target.replace_all_uses_with(stored, replace_graph_outputs=True)
        target.name = self.fresh(f"{name}_replaced")
        stored.name = name
        stored.type, stored.shape = target.type, target.shape
        self.scales[stored] = scale


def to_qdq(model: ir.Model) -> ir.Model:
    """Return a QDQ copy of a candidate; a candidate that is in QDQ form already is only copied."""
    copy = model.clone()
    rewriter = _Rewriter(copy)
    opset = int(copy.graph.opset_imports.get("", 0))
    is_changed = fold_layouts(copy.graph) | rewrite_integer_products(rewriter)
    is_changed |= rewrite_block_products(rewriter, opset) | _float_inputs(rewriter)
    for node in list(copy.graph):
        rewriter.anchor = node
        is_changed |= _rewrite(rewriter, node)
    is_changed |= float_bodies(rewriter.graph, rewriter.fresh)
    is_changed |= _float_outputs(rewriter)
    if is_changed:
        infer_shapes(copy)
    return copy


def _float_inputs(rewriter: _Rewriter) -> bool:
    """Let inputs that the device takes as integers be given as floats: quantize them first."""
    is_changed = False
    for index, value in enumerate(list(rewriter.graph.inputs)):
        reader = next((u.node for u in value.uses() if u.node.op_type == "DequantizeLinear"), None)
        if value.dtype not in INTEGER_TYPES or reader is None or reader.inputs[1] is None:
            continue
        zero = reader.inputs[2] if len(reader.inputs) > 2 else None
        name = value.name or ""
        value.name = rewriter.fresh(f"{name}_float_input")
        integer_type, value.type = value.type, ir.TensorType(ir.DataType.FLOAT)
        inputs = [None, reader.inputs[1], zero]
        node = ir.Node("", "QuantizeLinear", inputs, num_outputs=1, name=f"{name}_QuantizeLinear")
        node.outputs[0].name, node.outputs[0].type = rewriter.fresh(f"{name}_stored"), integer_type
        value.replace_all_uses_with(node.outputs[0])
        node.replace_input_with(0, value)
        rewriter.graph.insert_before(rewriter.graph[0], node)
        value.name = name
        rewriter.graph.inputs[index] = value
        is_changed = True
    return is_changed


def _float_outputs(rewriter: _Rewriter) -> bool:
    """Dequantize outputs that the device hands out as integers."""
    is_changed = False
    for index, value in enumerate(list(rewriter.graph.outputs)):
        node = value.producer()
        if value.dtype not in INTEGER_TYPES or node is None or node.op_type != "QuantizeLinear":
            continue
        inputs = [value, *node.inputs[1:3]]
        copy = ir.Node("", "DequantizeLinear", inputs, num_outputs=1, name=f"{value.name}_DequantizeLinear")
        rewriter.graph.append(copy)
        output, name = copy.outputs[0], value.name
        value.name = rewriter.fresh(f"{name}_integer")
        output.name, output.shape, output.type = name, value.shape, ir.TensorType(ir.DataType.FLOAT)
        rewriter.graph.outputs[index] = output
        is_changed = True
    return is_changed


def _rewrite(rewriter: _Rewriter, node: ir.Node) -> bool:
    if node.op_type in QUANTIZE_OPS:
        if node.op_type == "QuantizeLinear":
            scale = node.inputs[1]
            assert scale is not None
            zero = node.inputs[2] if len(node.inputs) > 2 else None
            rewriter.scales[node.outputs[0]] = _Scale(scale, zero)
        return False
    write = _WRITERS.get(node.op_type)
    if write is not None:
        write(rewriter, node)
    elif node.op_type in _MOVES_INTEGERS and node.domain == "" and _known_scale(rewriter, node) is not None:
        _move_integers(rewriter, node)
    else:
        return False
    rewriter.graph.remove(node, safe=True)
    return True


def _known_scale(rewriter: _Rewriter, node: ir.Node) -> _Scale | None:
    """Return the scale of what the node moves; integer constants among it have the scale of the rest."""
    moved = [v for v in (node.inputs[i] for i in _moved(node)) if v is not None]
    if all(is_constant(v) for v in moved) and moved and moved[0].dtype in INTEGER_TYPES:
        scale = _scale_of_readers(node.outputs[0])
        if scale is not None:
            rewriter.scales.update((v, scale) for v in moved)
    known = [rewriter.scales.get(v) for v in moved if v in rewriter.scales or not is_constant(v)]
    return known[0] if known and all(k is not None for k in known) else None


def _scale_of_readers(value: ir.Value) -> _Scale | None:
    """Return how those who read integers scale them, where they agree: a table that a Gather reads."""
    found: list[_Scale] = []
    for use in value.uses():
        reads_scale = use.node.op_type in _WRITERS or use.node.op_type == "DequantizeLinear"
        inputs = [*use.node.inputs, None, None][use.idx + 1 : use.idx + 3]
        if reads_scale and inputs[0] is not None:
            found.append(_Scale(inputs[0], inputs[1]))
        elif use.node.op_type in _MOVES_INTEGERS:
            scale = _scale_of_readers(use.node.outputs[0])
            found += [] if scale is None else [scale]
    return found[0] if found and all(f.scale is found[0].scale for f in found) else None


def _moved(node: ir.Node) -> tuple[int, ...]:
    """Return which inputs hold what is moved."""
    if node.op_type == "Concat":
        return tuple(range(len(node.inputs)))
    return _MOVED.get(node.op_type, (0,))


def _move_integers(rewriter: _Rewriter, node: ir.Node) -> None:
    scale = _known_scale(rewriter, node)
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


def _float_pad_value(rewriter: _Rewriter, value: ir.Value, scale: _Scale) -> ir.Value:
    integer, step, zero = constant_array(value), constant_array(scale.scale), constant_array(scale.zero_point)
    if integer is None or step is None:
        return value
    offset = 0 if zero is None else zero.astype(np.int64)
    return rewriter.constant(
        ((integer.astype(np.int64) - offset) * step).astype(np.float32), f"{value.name}_float"
    )


def _compute(
    rewriter: _Rewriter,
    node: ir.Node,
    op: str,
    inputs: list[ir.Value | None],
    scale: _Scale | None,
    *,
    drop: tuple[str, ...] = (),
) -> None:
    """Insert the float operator and store its result as the integers that ``node`` yielded."""
    target = node.outputs[0]
    attributes = {k: a for k, a in node.attributes.items() if k not in drop}
    assert rewriter.anchor is not None
    new = ir.Node("", op, inputs, attributes=list(attributes.values()), num_outputs=1, name=node_name(node))
    new.outputs[0].name = rewriter.fresh(f"{target.name}_float")
    rewriter.graph.insert_before(node, new)
    if scale is None:
        target.replace_all_uses_with(new.outputs[0], replace_graph_outputs=True)
        name, target.name = target.name, rewriter.fresh(f"{target.name}_replaced")
        new.outputs[0].name = name
    else:
        rewriter.quantize_into(new.outputs[0], scale, target)


def _output_scale(node: ir.Node, at: int) -> _Scale:
    scale = node.inputs[at]
    assert scale is not None
    return _Scale(scale, node.inputs[at + 1] if len(node.inputs) > at + 1 else None)


def _axis_if_vector(scale: ir.Value | None, axis: int) -> int | None:
    array = constant_array(scale)
    return axis if array is not None and array.ndim == 1 and array.size > 1 else None


def _bias(
    rewriter: _Rewriter, bias: ir.Value | None, x_scale: ir.Value | None, w_scale: ir.Value | None
) -> ir.Value | None:
    if bias is None:
        return None
    xs, ws = constant_array(x_scale), constant_array(w_scale)
    if xs is None or ws is None:
        return bias
    scale = rewriter.constant(
        (xs.astype(np.float32) * ws.astype(np.float32)).reshape(ws.shape), f"{bias.name}_scale"
    )
    return rewriter.dequantize(bias, scale, None, axis=0 if ws.ndim == 1 and ws.size > 1 else None)


def _conv(rewriter: _Rewriter, node: ir.Node) -> None:
    x, xs, xz, w, ws, wz = node.inputs[:6]
    bias = node.inputs[8] if len(node.inputs) > 8 else None
    inputs = [rewriter.dequantize(x, xs, xz), rewriter.dequantize(w, ws, wz, axis=_axis_if_vector(ws, 0))]
    _compute(
        rewriter,
        node,
        "Conv",
        [*inputs, *([b] if (b := _bias(rewriter, bias, xs, ws)) else [])],
        _output_scale(node, 6),
    )


def _matmul(rewriter: _Rewriter, node: ir.Node) -> None:
    a, sa, za, b, sb, zb = node.inputs[:6]
    inputs: list[ir.Value | None] = [
        rewriter.dequantize(a, sa, za),
        rewriter.dequantize(b, sb, zb, axis=_axis_if_vector(sb, 1)),
    ]
    _compute(rewriter, node, "MatMul", inputs, _output_scale(node, 6))


def _gemm(rewriter: _Rewriter, node: ir.Node) -> None:
    a, sa, za, b, sb, zb = node.inputs[:6]
    bias = node.inputs[6] if len(node.inputs) > 6 else None
    trans_b = node.attributes.get("transB")
    axis = 0 if trans_b is not None and trans_b.as_int() else 1
    inputs: list[ir.Value | None] = [
        rewriter.dequantize(a, sa, za),
        rewriter.dequantize(b, sb, zb, axis=_axis_if_vector(sb, axis)),
    ]
    if (c := _bias(rewriter, bias, sa, sb)) is not None:
        inputs.append(c)
    stored = len(node.inputs) > 7 and node.inputs[7] is not None
    _compute(rewriter, node, "Gemm", inputs, _output_scale(node, 7) if stored else None)


def _binary(op: str) -> Callable[[_Rewriter, ir.Node], None]:
    def write(rewriter: _Rewriter, node: ir.Node) -> None:
        a, sa, za, b, sb, zb = node.inputs[:6]
        inputs: list[ir.Value | None] = [rewriter.dequantize(a, sa, za), rewriter.dequantize(b, sb, zb)]
        _compute(rewriter, node, op, inputs, _output_scale(node, 6))

    return write


def _unary(op: str, *, drop: tuple[str, ...] = ()) -> Callable[[_Rewriter, ir.Node], None]:
    def write(rewriter: _Rewriter, node: ir.Node) -> None:
        x, xs, xz = node.inputs[:3]
        _compute(rewriter, node, op, [rewriter.dequantize(x, xs, xz)], _output_scale(node, 3), drop=drop)

    return write


def _concat(rewriter: _Rewriter, node: ir.Node) -> None:
    parts = node.inputs[2:]
    inputs: list[ir.Value | None] = [
        rewriter.dequantize(parts[i], parts[i + 1], parts[i + 2]) for i in range(0, len(parts), 3)
    ]
    _compute(rewriter, node, "Concat", inputs, _output_scale(node, 0))


def _where(rewriter: _Rewriter, node: ir.Node) -> None:
    condition, x, xs, xz, y, ys, yz = node.inputs[:7]
    inputs: list[ir.Value | None] = [
        condition,
        rewriter.dequantize(x, xs, xz),
        rewriter.dequantize(y, ys, yz),
    ]
    _compute(rewriter, node, "Where", inputs, _output_scale(node, 7))


_WRITERS: dict[str, Callable[[_Rewriter, ir.Node], None]] = {
    "QLinearConv": _conv,
    "QLinearMatMul": _matmul,
    "QGemm": _gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearLeakyRelu": _unary("LeakyRelu"),
    "QLinearSoftmax": _unary("Softmax", drop=("opset",)),
    "QLinearAveragePool": _unary("AveragePool", drop=("channels_last",)),
    "QLinearGlobalAveragePool": _unary("GlobalAveragePool", drop=("channels_last",)),
    "QLinearConcat": _concat,
    "QLinearWhere": _where,
}
