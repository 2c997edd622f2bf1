"""How alike two operators are: by kind, by constants, by what they are told."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from analyzers.attributes import STEERING, differing, settings
from analyzers.graph import constant_array, is_constant
from analyzers.records import Array
from analyzers.skeleton import Skeleton, constant_of

MULTIPLIES = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "FusedMatMul"})
COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "And", "Or", "Equal", "Mean"})
# Operators that converters exchange for each other without a change of meaning, given the right settings.
_KINDS = (
    ("Gemm", "MatMul", "FusedMatMul"),
    ("Flatten", "Reshape", "Squeeze", "Unsqueeze"),
    ("GlobalAveragePool", "AveragePool", "ReduceMean"),
    ("GlobalMaxPool", "MaxPool", "ReduceMax"),
    ("Upsample", "Resize"),
    ("Sum", "Add"),
    ("Relu", "Clip"),
    ("Gelu", "FastGelu", "QuickGelu"),
    ("Pow", "Mul"),
)
_KIND_OF = {op: kinds for kinds in _KINDS for op in kinds}
_ALMOST_ZERO = 1e-30


def same_kind(a: str, b: str) -> bool:
    """Tell whether two operator types may compute the same."""
    return a == b or b in _KIND_OF.get(a, ())


def kinds_meet(ours: set[str], theirs: set[str]) -> bool:
    """Tell whether an operator type of one set may compute what one of the other does."""
    return any(same_kind(a, b) for a in ours for b in theirs)


def similarity(a: Array, b: Array) -> float:
    """Return how alike two constants are, 0..1; per output channel, so that folded scales do not matter."""
    if a.shape != b.shape:
        if a.size != b.size or a.size == 0:
            return 0.0
        b = b.T if b.T.shape == a.shape else b.reshape(a.shape)
    if a.size == 0 or a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
        return float(a.dtype == b.dtype and np.array_equal(a, b))
    if a.dtype.kind != "f" and b.dtype.kind != "f":
        return float(np.array_equal(a, b))
    rows = (a.shape[0], -1) if a.ndim > 1 else (1, -1)
    x, y = a.reshape(rows).astype(np.float64), b.reshape(rows).astype(np.float64)
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    is_defined = norms > _ALMOST_ZERO
    cosines = np.abs((x * y).sum(axis=1))[is_defined] / norms[is_defined]
    return float(np.nanmean(cosines)) if cosines.size else float(np.array_equal(x, y))


def weight_of(skeleton: Skeleton, node: ir.Node) -> Array | None:
    """Return the constant that the node multiplies with, output channels first where they have an axis."""
    if node.op_type not in MULTIPLIES or len(node.inputs) < 2:
        return None
    array = constant_of(skeleton, node.inputs[1])
    if array is None or array.ndim != 2:
        return array
    is_transposed = node.op_type == "Gemm" and node.attributes.get("transB")
    return array if is_transposed and is_transposed.as_int() else array.T


def weight_size(skeleton: Skeleton, node: ir.Node) -> int | None:
    """Return how many weights the node multiplies with, or None if its second input is no constant."""
    value = node.inputs[1] if len(node.inputs) > 1 else None
    core = None if value is None else skeleton.core(value)
    if core is None or not is_constant(core) or core.const_value is None:
        return None
    return int(core.const_value.size)


def weight_likeness(ours: Skeleton, node: ir.Node, theirs: Skeleton, twin: ir.Node) -> float | None:
    """Return how alike the weights are, 0..1, also if one side is transposed; None without weights."""
    a, b = weight_of(ours, node), weight_of(theirs, twin)
    if a is None or b is None:
        return None
    if a.ndim == 2 and a.shape == b.T.shape and a.shape[0] == a.shape[1]:
        return max(similarity(a, b), similarity(a, b.T))
    return similarity(a, b)


def told_the_same(node: ir.Node, twin: ir.Node, opset: int) -> bool:
    """Tell whether two operators have the same settings."""
    ours, theirs = (settings(n, constant_array, opset) for n in (node, twin))
    return not differing(ours, theirs)


def constants_likeness(ours: Skeleton, node: ir.Node, theirs: Skeleton, twin: ir.Node) -> float:
    """Return a score of how alike the constants of two operators are; higher is more alike."""
    score = 0.0
    weights = weight_likeness(ours, node, theirs, twin)
    steering = STEERING.get(node.op_type, {})
    for index, (mine, their) in enumerate(zip(node.inputs, twin.inputs, strict=False)):
        if index in steering:
            continue
        if index == 1 and weights is not None:
            score += weights
            continue
        a, b = constant_of(ours, mine), constant_of(theirs, their)
        if a is not None and b is not None:
            score += similarity(a, b)
    return score


def shape_of(value: ir.Value) -> tuple[object, ...] | None:
    """Return the dims of a value, None where dynamic; None if nothing is known."""
    return None if value.shape is None else tuple(d if isinstance(d, int) else None for d in value.shape)


def shapes_fit(a: ir.Value, b: ir.Value) -> bool:
    """Tell whether two values may have the same shape, as far as both are known."""
    ours, theirs = shape_of(a), shape_of(b)
    if ours is None or theirs is None:
        return True
    return len(ours) == len(theirs) and all(
        x == y or x is None or y is None for x, y in zip(ours, theirs, strict=True)
    )
