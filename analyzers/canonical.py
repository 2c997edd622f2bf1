"""Bring every form of integer operator into QDQ form, so that the rest of the engine knows one form.

``QLinearConv``, ``QLinearMatMul`` and onnxruntime's ``com.microsoft`` QLinear operators become
DequantizeLinear -> float operator -> QuantizeLinear with the same parameters; for operators with dynamic
scales see ``integer_forms``. Operators that move integers about (MaxPool, Reshape, Concat of integers ...)
get a DequantizeLinear/QuantizeLinear pair of the scale that their input carries. Nothing is rounded twice:
the pair reproduces the integers exactly.
"""

from __future__ import annotations

import onnx_ir as ir

from analyzers.block_forms import rewrite_block_products
from analyzers.float_bodies import float_bodies
from analyzers.folded_constants import fold_layouts
from analyzers.graph import infer_shapes
from analyzers.integer_forms import rewrite_integer_products
from analyzers.integer_moves import MOVES_INTEGERS, known_scale, move_integers
from analyzers.qlinear_forms import WRITERS
from analyzers.rewriting import INTEGER_TYPES, Rewriter, Scale

QUANTIZE_OPS = frozenset({"QuantizeLinear", "DequantizeLinear"})


def to_qdq(model: ir.Model) -> ir.Model:
    """Return a QDQ copy of a candidate; a candidate that is in QDQ form already is only copied."""
    copy = model.clone()
    rewriter = Rewriter(copy)
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


def _float_inputs(rewriter: Rewriter) -> bool:
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


def _float_outputs(rewriter: Rewriter) -> bool:
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


def _rewrite(rewriter: Rewriter, node: ir.Node) -> bool:
    if node.op_type in QUANTIZE_OPS:
        if node.op_type == "QuantizeLinear":
            scale = node.inputs[1]
            assert scale is not None
            zero = node.inputs[2] if len(node.inputs) > 2 else None
            rewriter.scales[node.outputs[0]] = Scale(scale, zero)
        return False
    write = WRITERS.get(node.op_type)
    if write is not None:
        write(rewriter, node)
    elif node.op_type in MOVES_INTEGERS and node.domain == "" and known_scale(rewriter, node) is not None:
        move_integers(rewriter, node)
    else:
        return False
    rewriter.graph.remove(node, safe=True)
    return True
