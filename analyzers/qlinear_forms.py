"""QLinear operators, of ONNX and of onnxruntime, as float operators between quantizers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from analyzers.graph import constant_array, node_name
from analyzers.rewriting import Rewriter, Scale


def _compute(
    rewriter: Rewriter,
    node: ir.Node,
    op: str,
    inputs: list[ir.Value | None],
    scale: Scale | None,
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


def _output_scale(node: ir.Node, at: int) -> Scale:
    scale = node.inputs[at]
    assert scale is not None
    return Scale(scale, node.inputs[at + 1] if len(node.inputs) > at + 1 else None)


def _axis_if_vector(scale: ir.Value | None, axis: int) -> int | None:
    array = constant_array(scale)
    return axis if array is not None and array.ndim == 1 and array.size > 1 else None


def _bias(
    rewriter: Rewriter, bias: ir.Value | None, x_scale: ir.Value | None, w_scale: ir.Value | None
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


def _conv(rewriter: Rewriter, node: ir.Node) -> None:
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


def _matmul(rewriter: Rewriter, node: ir.Node) -> None:
    a, sa, za, b, sb, zb = node.inputs[:6]
    inputs: list[ir.Value | None] = [
        rewriter.dequantize(a, sa, za),
        rewriter.dequantize(b, sb, zb, axis=_axis_if_vector(sb, 1)),
    ]
    _compute(rewriter, node, "MatMul", inputs, _output_scale(node, 6))


def _gemm(rewriter: Rewriter, node: ir.Node) -> None:
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


def _binary(op: str) -> Callable[[Rewriter, ir.Node], None]:
    def write(rewriter: Rewriter, node: ir.Node) -> None:
        a, sa, za, b, sb, zb = node.inputs[:6]
        inputs: list[ir.Value | None] = [rewriter.dequantize(a, sa, za), rewriter.dequantize(b, sb, zb)]
        _compute(rewriter, node, op, inputs, _output_scale(node, 6))

    return write


def _unary(op: str, *, drop: tuple[str, ...] = ()) -> Callable[[Rewriter, ir.Node], None]:
    def write(rewriter: Rewriter, node: ir.Node) -> None:
        x, xs, xz = node.inputs[:3]
        _compute(rewriter, node, op, [rewriter.dequantize(x, xs, xz)], _output_scale(node, 3), drop=drop)

    return write


def _concat(rewriter: Rewriter, node: ir.Node) -> None:
    parts = node.inputs[2:]
    inputs: list[ir.Value | None] = [
        rewriter.dequantize(parts[i], parts[i + 1], parts[i + 2]) for i in range(0, len(parts), 3)
    ]
    _compute(rewriter, node, "Concat", inputs, _output_scale(node, 0))


def _where(rewriter: Rewriter, node: ir.Node) -> None:
    condition, x, xs, xz, y, ys, yz = node.inputs[:7]
    inputs: list[ir.Value | None] = [
        condition,
        rewriter.dequantize(x, xs, xz),
        rewriter.dequantize(y, ys, yz),
    ]
    _compute(rewriter, node, "Where", inputs, _output_scale(node, 7))


WRITERS: dict[str, Callable[[Rewriter, ir.Node], None]] = {
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
