"""Shapes that a graph computes from static shapes (Shape, Gather, Concat, Reshape), made constants.

Exporters write ``x.view(x.size(0), -1, 4)`` as such a chain. onnx's own inference loses the shape there, and
with it everything behind: which part of an output came from where could not be proven any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from analyzers.graph import constant_array, infer_shapes

_MAX_VALUES = 64
_MAX_ROUNDS = 8  # shapes that depend on shapes that depend on shapes

_Integers = NDArray[np.int64]
_Known = dict[ir.Value, "_Integers | None"]

# Inputs that say where values go, by operator.
_PLACES: Mapping[str, tuple[int, ...]] = {
    "Expand": (1,),
    "Reshape": (1,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "Unsqueeze": (1,),
}


def infer_static_shapes(model: ir.Model) -> None:
    """Infer shapes in place, replacing computed shapes by constants wherever they are static."""
    for _ in range(_MAX_ROUNDS):
        infer_shapes(model)
        if not _fold(model):
            return


def _fold(model: ir.Model) -> bool:
    known: _Known = {}
    found: dict[ir.Value, ir.Value] = {}
    has_changed = False
    for node in model.graph:
        for place in _PLACES.get(node.op_type, ()):
            value = node.inputs[place] if place < len(node.inputs) else None
            if value is None or constant_array(value) is not None:
                continue
            integers = _evaluate(value, known)
            if integers is None:
                continue
            if value not in found:
                found[value] = _constant(model, f"{value.name}::static", integers)
            node.replace_input_with(place, found[value])
            has_changed = True
    return has_changed


def _constant(model: ir.Model, name: str, integers: _Integers) -> ir.Value:
    tensor = ir.tensor(integers, name=name)
    shape = ir.Shape(integers.shape)
    value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=shape, const_value=tensor)
    model.graph.register_initializer(value)
    return value


def _evaluate(value: ir.Value | None, known: _Known) -> _Integers | None:
    """Return the integers that a value always holds, or None."""
    if value is None:
        return None
    if value not in known:
        known[value] = None  # a cycle would otherwise never end
        known[value] = _compute(value, known)
    return known[value]


def _compute(value: ir.Value, known: _Known) -> _Integers | None:
    constant = constant_array(value)
    if constant is not None:
        is_small = np.issubdtype(constant.dtype, np.integer) and constant.size <= _MAX_VALUES
        return constant.astype(np.int64) if is_small else None
    node = value.producer()
    if node is None or node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Shape":
        return _shape(node)
    rule = _RULES.get(node.op_type)
    inputs = [_evaluate(v, known) for v in node.inputs]
    if rule is None or any(i is None for i in inputs):
        return None
    return rule(node, [i for i in inputs if i is not None])


def _shape(node: ir.Node) -> _Integers | None:
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    if shape is None:
        return None
    dims = list(shape)[node.attributes.get_int("start", 0) : node.attributes.get_int("end", len(shape))]
    if not all(isinstance(d, int) for d in dims):
        return None
    return np.array(dims, dtype=np.int64)


def _gather(node: ir.Node, inputs: list[_Integers]) -> _Integers:
    return np.asarray(np.take(inputs[0], inputs[1], axis=node.attributes.get_int("axis", 0)))


def _concat(node: ir.Node, inputs: list[_Integers]) -> _Integers:
    return np.concatenate(inputs, axis=node.attributes.get_int("axis", 0))


def _unsqueeze(_: ir.Node, inputs: list[_Integers]) -> _Integers | None:
    return np.expand_dims(inputs[0], tuple(inputs[1].tolist())) if len(inputs) == 2 else None


def _squeeze(_: ir.Node, inputs: list[_Integers]) -> _Integers:
    return np.squeeze(inputs[0], tuple(inputs[1].tolist()) if len(inputs) == 2 else None)


def _slice(_: ir.Node, inputs: list[_Integers]) -> _Integers | None:
    data, starts, ends = inputs[:3]
    steps = inputs[4] if len(inputs) > 4 else np.ones(1, np.int64)
    if data.ndim != 1 or starts.size != 1:
        return None
    return data[int(starts.item()) : int(ends.item()) : int(steps.item())]


def _divide(_: ir.Node, inputs: list[_Integers]) -> _Integers | None:
    left, right = inputs
    return None if (right <= 0).any() or (left < 0).any() else left // right


_RULES: dict[str, Callable[[ir.Node, list[_Integers]], _Integers | None]] = {
    "Add": lambda _, i: np.asarray(i[0] + i[1]),
    "Cast": lambda _, i: i[0],
    "Concat": _concat,
    "Div": _divide,
    "Gather": _gather,
    "Identity": lambda _, i: i[0],
    "Mul": lambda _, i: np.asarray(i[0] * i[1]),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": lambda _, i: np.asarray(i[0] - i[1]),
    "Unsqueeze": _unsqueeze,
}
