"""How much each layer of the reference has to do for one sample: multiply-accumulates, weights, elements.

Counted from static shapes, so nothing is run. Only operators that multiply and add are counted as such
(convolutions, matrix products, recurrent layers, Einsum); what others do is in the tensors that they make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from analyzers.graph import is_constant, is_float, node_name, subgraphs
from analyzers.records import Layer
from analyzers.shape_arithmetic import infer_static_shapes

_RECURRENT = ("GRU", "LSTM", "RNN")


@dataclass(frozen=True, slots=True)
class Workload:
    """The work of one sample.

    Attributes:
        macs: Layer -> multiply-accumulates.
        weights: Layer -> elements of its float constants.
        elements: Float tensor of the reference -> its elements; tensors of unknown shape are absent.
        uncounted: Layers of which something is not known, topological.
    """

    macs: Mapping[str, int]
    weights: Mapping[str, int]
    elements: Mapping[str, int]
    uncounted: tuple[str, ...] = ()


def workload_of(
    model: ir.Model, layers: Sequence[Layer], shapes: Mapping[str, Sequence[int]] | None = None
) -> Workload:
    """Count the work of each layer.

    Args:
        model: The reference; stays as it is.
        layers: Its layers, topological.
        shapes: Shapes of graph inputs in one sample, for models that leave them open.
    """
    copy = model.clone()
    for value in copy.graph.inputs:
        given = (shapes or {}).get(value.name or "")
        if given is not None:
            value.shape = ir.Shape(given)
    infer_static_shapes(copy)
    nodes = {node_name(node): node for node in copy.graph}
    elements = {v.name or "": n for v in _values(copy.graph) if is_float(v) and (n := _size(v)) is not None}
    macs: dict[str, int] = {}
    weights: dict[str, int] = {}
    uncounted: list[str] = []
    for layer in layers:
        own = [nodes[name] for name in layer.nodes if name in nodes]
        counts = [macs_of(node) for node in own]
        macs[layer.name] = sum(count or 0 for count in counts)
        weights[layer.name] = sum(_weights(node) for node in own)
        floats = {v.name or "" for node in own for v in node.outputs if is_float(v)}
        if None in counts or any(name in floats and name not in elements for name in layer.outputs):
            uncounted.append(layer.name)
    return Workload(macs, weights, elements, tuple(uncounted))


def macs_of(node: ir.Node) -> int | None:
    """Return the multiply-accumulates of a node; None if its shapes are not known.

    Of an If the branch that has more counts; the body of a Loop or Scan counts once.
    """
    inner = [_macs_of_graph(graph) for graph in subgraphs(node)]
    if inner:
        known = [count for count in inner if count is not None]
        return max(known) if len(known) == len(inner) else None
    rule = _RULES.get(node.op_type)
    if rule is None:
        return 0
    try:
        return rule(node)
    except _UnknownShapeError:
        return None


def _macs_of_graph(graph: ir.Graph) -> int | None:
    counts = [macs_of(node) for node in graph]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [*graph.inputs, *(v for node in graph for v in node.outputs)]


def _weights(node: ir.Node) -> int:
    sizes = [_size(v) for v in node.inputs if v is not None and is_constant(v) and is_float(v)]
    inner = [_weights(n) for graph in subgraphs(node) for n in graph]
    return sum(size or 0 for size in sizes) + sum(inner)


def _size(value: ir.Value) -> int | None:
    dims = _dims(value)
    return None if dims is None else math.prod(dims)


def _dims(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    shape = value.shape if value.const_value is None else value.const_value.shape
    dims = None if shape is None else tuple(d for d in shape if isinstance(d, int))
    return dims if shape is not None and dims is not None and len(dims) == len(shape) else None


class _UnknownShapeError(Exception):
    """A shape that a count needs is not static; never leaves this module."""


def _shape(values: Sequence[ir.Value | None], place: int) -> tuple[int, ...]:
    dims = _dims(values[place]) if place < len(values) else None
    if dims is None:
        raise _UnknownShapeError
    return dims


def _convolution(node: ir.Node) -> int:
    return math.prod(_shape(node.outputs, 0)) * math.prod(_shape(node.inputs, 1)[1:])


def _transposed_convolution(node: ir.Node) -> int:
    return math.prod(_shape(node.inputs, 0)) * math.prod(_shape(node.inputs, 1)[1:])


def _product(node: ir.Node) -> int:
    return math.prod(_shape(node.outputs, 0)) * _shape(node.inputs, 0)[-1]


def _gemm(node: ir.Node) -> int:
    rows_first = node.attributes.get_int("transA", 0)
    return math.prod(_shape(node.outputs, 0)) * _shape(node.inputs, 0)[0 if rows_first else -1]


def _recurrent(node: ir.Node) -> int:
    steps_and_batch = math.prod(_shape(node.inputs, 0)[:2])
    weights, recurrence = _shape(node.inputs, 1), _shape(node.inputs, 2)
    return steps_and_batch * (math.prod(weights) + math.prod(recurrence))


def _einsum(node: ir.Node) -> int:
    equation = node.attributes.get_string("equation", "").replace(" ", "")
    terms = equation.partition("->")[0].split(",")
    if len(terms) < 2:
        return 0
    if "." in equation or len(terms) != len(node.inputs):
        raise _UnknownShapeError
    sizes: dict[str, int] = {}
    for place, term in enumerate(terms):
        for letter, dim in zip(term, _shape(node.inputs, place), strict=True):
            sizes[letter] = max(dim, sizes.get(letter, 1))
    return math.prod(sizes.values())


_RULES: dict[str, Callable[[ir.Node], int]] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": _product,
    **dict.fromkeys(_RECURRENT, _recurrent),
}
