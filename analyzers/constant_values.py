"""What a graph value holds that is computed from constants alone, and how it is stored.

Weights reach an operator through DequantizeLinear, but also through a QuantizeLinear of a float constant,
Transposes, Reshapes and Casts; all of these are seen through.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from analyzers.graph import FLOAT_TYPES, constant_array, is_constant
from analyzers.levels import quantize as to_codes
from analyzers.levels import read_levels
from analyzers.records import Array, Quantization
from analyzers.skeleton import read_quantization

_COPIES = frozenset({"Identity", "Dropout", "Cast"})


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """The value of a constant expression.

    Attributes:
        array: float64, what is computed with (or the raw integers of a value that is not read back yet).
        initializer: The constant that it comes from.
        integers: The stored integers, in the layout of ``array``; None where it is float.
        quantization: How they are stored, in the layout of ``array``; None where it is float or unknown.
    """

    array: NDArray[np.float64]
    initializer: ir.Value
    integers: Array | None = None
    quantization: Quantization | None = None


def known_constant(value: ir.Value | None) -> Known | None:
    """Return what a value holds, or None if it depends on anything but constants."""
    if value is None:
        return None
    if is_constant(value):
        array = constant_array(value)
        return None if array is None else Known(array.astype(np.float64), value)
    node = value.producer()
    if node is None or not node.inputs:
        return None
    source = known_constant(node.inputs[0])
    if source is None:
        return None
    if node.op_type == "DequantizeLinear":
        return _read_back(node, source)
    if node.op_type == "QuantizeLinear":
        return _written(node, source)
    if node.op_type in _COPIES:
        is_float = value.dtype is None or value.dtype in FLOAT_TYPES
        return source if is_float or node.op_type != "Cast" else None
    if node.op_type == "Transpose":
        return _transposed(node, source)
    if node.op_type in {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}:
        return _reshaped(value, node, source)
    return None


def _written(node: ir.Node, source: Known) -> Known | None:
    quantization = read_quantization(node)
    if quantization is None:
        return None
    try:
        codes = to_codes(source.array, quantization)
    except ValueError:
        return None
    return replace(source, array=codes.astype(np.float64))


def _read_back(node: ir.Node, source: Known) -> Known | None:
    quantization = read_quantization(node)
    if quantization is None:
        return None
    try:
        levels = read_levels(quantization, source.array.shape)
    except ValueError:
        return None
    integers = source.array.astype(np.int64)
    real = (integers - levels.zero_point.astype(np.float64)) * levels.scale.astype(np.float64)
    # Large weights: no more bytes than their integers need.
    is_byte = levels.limits is not None and levels.limits[1] - levels.limits[0] < 1 << 8
    small = integers.astype(np.int16) if is_byte else integers
    return Known(np.asarray(real), source.initializer, small, quantization)


def _transposed(node: ir.Node, source: Known) -> Known:
    attribute = node.attributes.get("perm")
    rank = source.array.ndim
    order = tuple(attribute.as_ints()) if attribute is not None else tuple(reversed(range(rank)))
    quantization = source.quantization
    if quantization is not None and quantization.axis is not None and rank:
        axis = order.index(quantization.axis % rank)
        scale, zero = quantization.scale, quantization.zero_point
        if quantization.block_size:
            scale, zero = scale.transpose(order), zero.transpose(order)
        quantization = replace(quantization, axis=axis, scale=scale, zero_point=zero)
    integers = None if source.integers is None else source.integers.transpose(order)
    return Known(source.array.transpose(order), source.initializer, integers, quantization)


def _reshaped(value: ir.Value, node: ir.Node, source: Known) -> Known | None:
    shape = _target_shape(value, node, source.array.shape)
    return None if shape is None else reshaped(source, shape)


def reshaped(source: Known, shape: tuple[int, ...]) -> Known:
    """Return the same values in another shape; the parameters are dropped where their axis is torn up."""
    quantization = source.quantization
    if quantization is not None and quantization.axis is not None:
        axis = _same_axis(source.array.shape, quantization.axis % source.array.ndim, shape)
        is_lost = axis is None or quantization.block_size
        quantization = None if is_lost else replace(quantization, axis=axis)
    integers = None if source.integers is None else source.integers.reshape(shape)
    return Known(source.array.reshape(shape), source.initializer, integers, quantization)


def _same_axis(before: tuple[int, ...], axis: int, after: tuple[int, ...]) -> int | None:
    """Return the axis of the reshaped array that runs over the same elements."""
    outer, size = math.prod(before[:axis]), before[axis]
    return next(
        (i for i, n in enumerate(after) if n == size and math.prod(after[:i]) == outer),
        None,
    )


def _target_shape(value: ir.Value, node: ir.Node, before: tuple[int, ...]) -> tuple[int, ...] | None:
    if value.shape is not None and all(isinstance(d, int) for d in value.shape):
        shape = tuple(int(d) for d in value.shape if isinstance(d, int))
    else:
        wanted = constant_array(node.inputs[1]) if node.op_type == "Reshape" else None
        if wanted is None:
            return None
        shape = tuple(before[i] if d == 0 else int(d) for i, d in enumerate(wanted))
    total = math.prod(before)
    if -1 in shape:
        rest = -math.prod(shape)
        shape = tuple(total // rest if d == -1 and rest else d for d in shape)
    return shape if math.prod(shape) == total else None
