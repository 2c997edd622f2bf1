"""What a conversion folds into weights and biases: constants that scale and shift the result per channel.

BatchNormalization, and Mul, Div, Add and Sub with constants, behind an operator that multiplies with weights
can be moved into them. Those for which the candidate has no counterpart were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from analyzers.constant_values import known_constant
from analyzers.skeleton import Skeleton

Vector = NDArray[np.float64]
_COPIES = frozenset({"Identity", "Dropout"})
_AFFINE = frozenset({"BatchNormalization", "Mul", "Div", "Add", "Sub"})


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """``y = factor * x + offset``, one of each per output channel.

    Attributes:
        node: The operator that does it.
        factor: float64, shape (channels,).
        offset: The same.
        constant: Input that holds the constant; None for BatchNormalization, which has several.
    """

    node: ir.Node
    factor: Vector
    offset: Vector
    constant: ir.Value | None


def followers(
    skeleton: Skeleton,
    node: ir.Node,
    channels: int,
    from_end: int,
    is_wanted: Callable[[ir.Node], bool],
) -> list[Affine]:
    """Return the chain of per-channel operators behind a node that alone read its result, in order.

    Args:
        skeleton: Skeleton of the node's graph.
        node: The operator whose result they scale and shift.
        channels: How many output channels it has.
        from_end: Index of the channel axis counted from the end: 1 for the last.
        is_wanted: Ends the chain before the first operator for which it is false.
    """
    chain: list[Affine] = []
    value = skeleton.core(node.outputs[0])
    while True:
        readers = skeleton.readers.get(value, [])
        if len(readers) != 1 or any(v.is_graph_output() for v in _aliases(value)):
            return chain
        affine = _affine(skeleton, readers[0], value, channels, from_end)
        if affine is None or not is_wanted(affine.node):
            return chain
        chain.append(affine)
        value = skeleton.core(affine.node.outputs[0])


def _aliases(value: ir.Value) -> list[ir.Value]:
    """Return a value and its plain copies."""
    found = [value]
    for current in found:
        found += [u.node.outputs[0] for u in current.uses() if u.node.op_type in _COPIES]
    return found


def _affine(
    skeleton: Skeleton, node: ir.Node, value: ir.Value, channels: int, from_end: int
) -> Affine | None:
    if node.op_type not in _AFFINE:
        return None
    if node.op_type == "BatchNormalization":
        factors = normalization(node)
        is_here = factors is not None and factors[0].size == channels and _is_second(node, from_end)
        return Affine(node, *factors, None) if factors is not None and is_here else None
    if len(node.inputs) != 2 or node.inputs[0] is None or node.inputs[1] is None:
        return None
    first, second = (skeleton.core(v) if v is not None else None for v in node.inputs)
    if (first is value) == (second is value):
        return None
    constant = node.inputs[1] if first is value else node.inputs[0]
    known = known_constant(constant)
    vector = None if known is None else per_channel(known.array, channels, from_end)
    if vector is None:
        return None
    factor, offset = _of_binary(node.op_type, vector, is_constant_first=first is not value)
    return None if factor is None or offset is None else Affine(node, factor, offset, constant)


def _of_binary(
    op_type: str, vector: Vector, *, is_constant_first: bool
) -> tuple[Vector | None, Vector | None]:
    ones, zeros = np.ones_like(vector), np.zeros_like(vector)
    if op_type == "Mul":
        return vector, zeros
    if op_type == "Add":
        return ones, vector
    if op_type == "Sub":
        return (-ones, vector) if is_constant_first else (ones, -vector)
    if is_constant_first or np.any(vector == 0):
        return None, None
    return 1 / vector, zeros


def normalization(node: ir.Node) -> tuple[Vector, Vector] | None:
    """Return factor and offset of a BatchNormalization, or None if its constants are not known."""
    known = [known_constant(v) for v in node.inputs[1:5]]
    if len(known) != 4 or any(k is None for k in known):
        return None
    scale, bias, mean, variance = (k.array.reshape(-1) for k in known if k is not None)
    epsilon = node.attributes.get("epsilon")
    factor = scale / np.sqrt(variance + (epsilon.as_float() if epsilon is not None else 1e-5))
    return factor, bias - mean * factor


def _is_second(node: ir.Node, from_end: int) -> bool:
    """Tell whether the second axis, which BatchNormalization is about, is the one counted from the end."""
    value = node.inputs[0]
    rank = len(value.shape) if value is not None and value.shape is not None else None
    return rank is None or rank - from_end == 1


def per_channel(array: Vector, channels: int, from_end: int) -> Vector | None:
    """Return a constant as one number per channel, or None if it varies along another axis."""
    if array.size == 1:
        return np.full(channels, float(array.reshape(())))
    axis = array.ndim - from_end
    if axis < 0 or array.shape[axis] != array.size or array.size != channels:
        return None
    return array.reshape(-1)
