"""Products with weights of a few bits in blocks (``com.microsoft`` MatMulNBits), in QDQ form."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from analyzers.graph import constant_array, node_name
from analyzers.integer_forms import replace_by_float
from analyzers.records import Array
from analyzers.rewriting import Rewriter

OPSET = 21  # DequantizeLinear knows blocks from here on
_TYPES = {2: ir.DataType.UINT4, 4: ir.DataType.UINT4, 8: ir.DataType.UINT8}


def has_block_products(model: ir.Model) -> bool:
    """Tell whether the model multiplies with such weights."""
    return any(node.op_type == "MatMulNBits" for node in model.graph)


def rewrite_block_products(rewriter: Rewriter, opset: int) -> bool:
    """Rewrite all MatMulNBits whose weights are constants; tell whether there were any."""
    is_changed = False
    for node in list(rewriter.graph):
        if node.op_type != "MatMulNBits" or opset < OPSET:
            continue
        rewriter.anchor = node
        weight = _dequantized(rewriter, node)
        if weight is None or node.inputs[0] is None:
            continue
        bias = node.inputs[5] if len(node.inputs) > 5 else None
        replace_by_float(rewriter, node, "MatMul", [node.inputs[0], weight], node_name(node), bias=bias)
        rewriter.graph.remove(node, safe=True)
        is_changed = True
    return is_changed


def _dequantized(rewriter: Rewriter, node: ir.Node) -> ir.Value | None:
    """Return the weight ``(K, N)`` as a blocked DequantizeLinear reads it; None where it is no constant."""
    inputs = [*node.inputs, *[None] * 3][:5]
    packed, scales = constant_array(inputs[1]), constant_array(inputs[2])
    if packed is None or scales is None or inputs[4] is not None:
        return None
    rows, columns, bits, block = (node.attributes[name].as_int() for name in ("K", "N", "bits", "block_size"))
    dtype = _TYPES.get(bits)
    if dtype is None:
        return None
    blocks = -(-rows // block)
    values = _unpacked(packed.reshape(columns, -1), bits)[:, :rows].T
    zeros = _zero_points(inputs[3], columns, blocks, bits)
    if zeros is None:
        return None
    name = inputs[1].name if inputs[1] is not None else "weight"
    given = [
        _integers(rewriter, values, dtype, f"{name}_unpacked"),
        rewriter.constant(np.ascontiguousarray(scales.reshape(columns, blocks).T), f"{name}_scales"),
        _integers(rewriter, zeros.T, dtype, f"{name}_zeros"),
    ]
    attributes = {"axis": ir.AttrInt64("axis", 0), "block_size": ir.AttrInt64("block_size", block)}
    return rewriter.add("DequantizeLinear", list(given), f"{name}_DequantizeLinear_Output", attributes)


def _unpacked(packed: Array, bits: int) -> Array:
    """Return one value per entry, the low bits of a byte first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    values = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    return values.reshape(packed.shape[0], -1)


def _zero_points(value: ir.Value | None, columns: int, blocks: int, bits: int) -> Array | None:
    if value is None:
        return np.full((columns, blocks), 2 ** (bits - 1), np.uint8)
    array = constant_array(value)
    if array is None or array.dtype != np.uint8:  # real zero points have no place in DequantizeLinear
        return None
    return _unpacked(array.reshape(columns, -1), bits)[:, :blocks]


def _integers(rewriter: Rewriter, array: Array, dtype: ir.DataType, name: str) -> ir.Value:
    tensor = ir.tensor(np.ascontiguousarray(array).astype(dtype.numpy()), dtype=dtype)
    value = ir.val(rewriter.fresh(name), const_value=tensor)
    rewriter.graph.register_initializer(value)
    return value
