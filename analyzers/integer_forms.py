"""Integer operators whose activations are quantized while the model runs, in QDQ form.

``MatMulInteger`` and ``ConvInteger`` with the Cast and the products of scales behind them, and onnxruntime's
``MatMulIntegerToFloat`` and ``DynamicQuantizeMatMul``, become DequantizeLinear -> float operator. The
activation's scale stays what ``DynamicQuantizeLinear`` computes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from analyzers.graph import constant_array, is_constant, node_name
from analyzers.rewriting import Rewriter

_INTEGER_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
_MOST_FACTORS = 4


def rewrite_integer_products(rewriter: Rewriter) -> bool:
    """Rewrite all such operators; tell whether there were any."""
    is_changed = False
    for node in list(rewriter.graph):
        rewriter.anchor = node
        write = _WRITERS.get(node.op_type)
        if node.op_type in _INTEGER_PRODUCTS:
            is_changed |= _integer_product(rewriter, node)
        elif write is not None:
            write(rewriter, node)
            rewriter.graph.remove(node, safe=True)
            is_changed = True
    return is_changed


def _integer_product(rewriter: Rewriter, node: ir.Node) -> bool:
    """Rewrite ``Cast(op(x, w)) * scale_x * scale_w``; left alone where the scales cannot be told apart."""
    inputs = [*node.inputs, None, None][:4]
    x, weight, zero_x, zero_w = inputs
    product, factors = _scaled(node.outputs[0])
    scales = [f for f in factors if not is_constant(f)], [f for f in factors if is_constant(f)]
    if product is None or len(scales[0]) != 1 or len(scales[1]) != 1 or x is None:
        return False
    source = x.producer()
    if source is None or source.op_type != "DynamicQuantizeLinear" or scales[0][0].producer() is not source:
        return False
    rewriter.anchor = product
    op = _INTEGER_PRODUCTS[node.op_type]
    floats = [
        rewriter.dequantize(x, scales[0][0], zero_x),
        _dequantized_weight(rewriter, weight, scales[1][0], zero_w, axis=0 if op == "Conv" else 1),
    ]
    replace_by_float(rewriter, product, op, floats, node_name(node), dict(node.attributes.items()))
    _remove_dead(rewriter.graph, product)
    return True


def _scaled(value: ir.Value) -> tuple[ir.Node | None, list[ir.Value]]:
    """Return the last product behind an integer result and its factors besides that result."""
    uses = value.uses()
    cast = next(iter(uses)).node if len(uses) == 1 else None
    if cast is None or cast.op_type != "Cast":
        return None, []
    current, last, factors = cast.outputs[0], None, list[ir.Value]()
    while len(factors) < 2 and len(current.uses()) == 1 and not current.is_graph_output():
        product = next(iter(current.uses())).node
        if product.op_type != "Mul":
            break
        factors += [f for v in product.inputs if v is not None and v is not current for f in _factors(v)]
        last, current = product, product.outputs[0]
    return last, factors


def _factors(value: ir.Value) -> list[ir.Value]:
    node = value.producer()
    if node is None or node.op_type != "Mul":
        return [value]
    found = [f for v in node.inputs if v is not None for f in _factors(v)]
    return found if len(found) <= _MOST_FACTORS else [value]


def _dequantized_weight(
    rewriter: Rewriter, weight: ir.Value | None, scale: ir.Value | None, zero: ir.Value | None, *, axis: int
) -> ir.Value:
    """Dequantize along ``axis`` where there are several scales, whatever shape they are stored in."""
    scales, zeros = constant_array(scale), constant_array(zero)
    if scales is None or scales.size == 1:
        return rewriter.dequantize(weight, scale, zero)
    flat = rewriter.constant(scales.reshape(-1), f"{weight.name if weight else ''}_scales")
    if zeros is None or not zeros.any():
        return rewriter.dequantize(weight, flat, None, axis=axis)
    spread = np.broadcast_to(zeros.reshape(-1), (scales.size,)).copy()
    return rewriter.dequantize(weight, flat, rewriter.constant(spread, f"{flat.name}_zeros"), axis=axis)


def replace_by_float(
    rewriter: Rewriter,
    node: ir.Node,
    op: str,
    inputs: list[ir.Value],
    name: str,
    attributes: dict[str, ir.Attr] | None = None,
    bias: ir.Value | None = None,
) -> None:
    """Let a float operator make what ``node`` makes."""
    target = node.outputs[0]
    made = ir.Node("", op, list(inputs), list((attributes or {}).values()), num_outputs=1, name=name)
    made.outputs[0].name = rewriter.fresh(f"{target.name}_float")
    rewriter.graph.insert_before(node, made)
    result = made.outputs[0]
    if bias is not None:
        result = rewriter.add("Add", [result, bias], f"{target.name}_biased")
    wanted, target.name = target.name, rewriter.fresh(f"{target.name}_replaced")
    target.replace_all_uses_with(result, replace_graph_outputs=True)
    result.name, result.type, result.shape = wanted, target.type, target.shape


def _remove_dead(graph: ir.Graph, last: ir.Node) -> None:
    """Remove a node without readers, and what only it read."""
    frontier = [last]
    while frontier:
        node = frontier.pop()
        if node.graph is not graph or any(v.uses() or v.is_graph_output() for v in node.outputs):
            continue
        sources = [v.producer() for v in node.inputs if v is not None]
        graph.remove(node, safe=True)
        frontier += [source for source in sources if source is not None]


def _to_float(rewriter: Rewriter, node: ir.Node) -> None:
    a, b, scale_a, scale_b, zero_a, zero_b, bias = [*node.inputs, *[None] * 3][:7]
    floats = [
        rewriter.dequantize(a, scale_a, zero_a),
        _dequantized_weight(rewriter, b, scale_b, zero_b, axis=1),
    ]
    replace_by_float(rewriter, node, "MatMul", floats, node_name(node), bias=bias)


def _from_float(rewriter: Rewriter, node: ir.Node) -> None:
    a, b, scale_b, zero_b, bias = [*node.inputs, *[None] * 2][:5]
    name = node_name(node)
    dynamic = ir.Node("", "DynamicQuantizeLinear", [a], num_outputs=3, name=f"{name}_input")
    for output, what in zip(dynamic.outputs, ("quantized", "scale", "zero_point"), strict=True):
        output.name = rewriter.fresh(f"{name}_input_{what}")
    for output, dtype in zip(
        dynamic.outputs, (ir.DataType.UINT8, ir.DataType.FLOAT, ir.DataType.UINT8), strict=True
    ):
        output.type = ir.TensorType(dtype)
    rewriter.graph.insert_before(node, dynamic)
    floats = [
        rewriter.dequantize(*dynamic.outputs),
        _dequantized_weight(rewriter, b, scale_b, zero_b, axis=1),
    ]
    replace_by_float(rewriter, node, "MatMul", floats, name, bias=bias)


_WRITERS: dict[str, Callable[[Rewriter, ir.Node], None]] = {
    "MatMulIntegerToFloat": _to_float,
    "DynamicQuantizeMatMul": _from_float,
}
