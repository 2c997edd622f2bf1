"""Turn simulated half precision into real half precision.

A simulated plan computes in float32 and rounds every stored tensor by a pair of Casts, float32 -> float16 ->
float32. Here the nodes between such pairs become float16 nodes: their constants are stored as float16, what
they store stays float16 for the next of them, and Casts remain only where half precision borders on the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from analyzers.graph import all_values, constant_array, infer_shapes, is_constant, subgraphs
from analyzers.layers import is_pass_through

_FLOAT, _HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
_HALF_NAME = "tensor(float16)"
_PARAMETERS = frozenset({"Resize", "Upsample"})  # their further inputs steer them and are no data
_ROUNDED, _STORED = "_half", "_float16"


def to_half(model: ir.Model, stored: Collection[str]) -> tuple[str, ...]:
    """Give a simulated plan real float16 nodes, in place.

    Args:
        model: Float32, with Cast pairs; inputs and outputs keep their types.
        stored: The values, as float32 after rounding, that fallback layers store.

    Returns:
        Nodes of fallback layers that stay float32, since the operator does not exist in half precision.
    """
    graph = model.graph
    infer_shapes(model)
    _complete_types(graph)
    opsets = graph.opset_imports
    wanted = _half_nodes(graph, frozenset(stored))
    nodes = [node for node in graph if node in wanted]
    possible = [node for node in nodes if _has_half_form(node, opsets.get(node.domain, 1))]
    surgery = _Surgery(graph, frozenset(possible))
    for node in possible:
        surgery.convert(node)
    common.RemoveUnusedNodesPass()(model)
    return tuple(node.name or "" for node in nodes if node not in surgery.nodes)


def _complete_types(graph: ir.Graph) -> None:
    """Type what only copies or casts; the rest was typed where it comes from."""
    for node in graph:
        source, result = node.inputs[0] if node.inputs else None, node.outputs[0]
        if node.op_type == "Cast":
            result.type = ir.TensorType(ir.DataType(node.attributes["to"].as_int()))
        elif result.type is None and source is not None and is_pass_through(node):
            result.type = source.type


def _rounded_source(value: ir.Value | None) -> ir.Value | None:
    """Return what a Cast pair rounds, if ``value`` is the end of one."""
    half = _cast_source(value, _FLOAT)
    return _cast_source(half, _HALF)


def _cast_source(value: ir.Value | None, to: ir.DataType) -> ir.Value | None:
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Cast" or node.attributes["to"].as_int() != to:
        return None
    return node.inputs[0]


def _is_cast_to_half(node: ir.Node) -> bool:
    return node.op_type == "Cast" and node.attributes["to"].as_int() == _HALF


def _half_nodes(graph: ir.Graph, stored: frozenset[str]) -> frozenset[ir.Node]:
    """Return the nodes that compute stored values from rounded ones, and those that only move such values."""
    found: set[ir.Node] = set()
    open_values = [
        source
        for node in graph
        for value in node.outputs
        if value.name in stored and (source := _rounded_source(value)) is not None
    ]
    while open_values:
        node = open_values.pop().producer()
        if node is None or node in found or node.op_type in {"DequantizeLinear", "Cast"}:
            continue
        if is_pass_through(node) and not _moves_half(node, found):
            continue
        found.add(node)
        open_values += [v for v in node.inputs if v is not None and _rounded_source(v) is None]
    for node in graph:
        if is_pass_through(node) and _moves_half(node, found):
            found.add(node)
    return frozenset(found)


def _moves_half(node: ir.Node, half: Collection[ir.Node]) -> bool:
    """Return True if a pass-through node reads, maybe through others, a value that is rounded."""
    while True:
        source = node.inputs[0]
        producer = None if source is None else source.producer()
        if _rounded_source(source) is not None or producer in half:
            return True
        if producer is None or not is_pass_through(producer):
            return False
        node = producer


def _has_half_form(node: ir.Node, opset: int) -> bool:
    """Return True if ONNX defines the operator for float16 wherever the node holds float32 data."""
    if any(True for _ in subgraphs(node)) or not onnx.defs.has(node.op_type, domain=node.domain):
        return False
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    inputs = [_formal(schema.inputs, i) for i in _data_inputs(node)]
    outputs = [_formal(schema.outputs, i) for i in _float_outputs(node)]
    # Where no input decides the type of an output, an attribute does (ConstantOfShape).
    decided = {formal.type_str for formal in inputs}
    return all(_HALF_NAME in formal.types for formal in (*inputs, *outputs)) and all(
        formal.type_str in decided for formal in outputs
    )


def _formal(
    parameters: Sequence[onnx.defs.OpSchema.FormalParameter], index: int
) -> onnx.defs.OpSchema.FormalParameter:
    """Return the declaration of an input or output; the last one may stand for many."""
    return parameters[min(index, len(parameters) - 1)]


def _data_inputs(node: ir.Node) -> list[int]:
    values = node.inputs[:1] if node.op_type in _PARAMETERS else node.inputs
    return [i for i, value in enumerate(values) if value is not None and value.dtype in (_FLOAT, _HALF)]


def _float_outputs(node: ir.Node) -> list[int]:
    return [i for i, value in enumerate(node.outputs) if value.dtype in (_FLOAT, _HALF)]


@dataclass(slots=True)
class _Surgery:
    """Holds the graph under surgery, and the float16 form of each value that has one."""

    graph: ir.Graph
    nodes: frozenset[ir.Node]
    halves: dict[ir.Value, ir.Value] = field(default_factory=dict)
    taken: set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.taken = {value.name or "" for value in all_values(self.graph)}

    def convert(self, node: ir.Node) -> None:
        """Let a node compute in float16; nodes come in topological order."""
        for index in _data_inputs(node):
            value = node.inputs[index]
            assert value is not None
            node.replace_input_with(index, self._half(value, node))
        for index in _float_outputs(node):
            self._store(node, node.outputs[index])

    def _half(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        if value.dtype == _HALF:
            return value
        if value not in self.halves:
            source = _cast_source(value, _FLOAT)
            if source is not None and source.dtype == _HALF:
                self.halves[value] = source
            elif is_constant(value):
                self.halves[value] = self._constant(value)
            else:
                self.halves[value] = self._cast(value, _HALF, f"{value.name}{_STORED}", before=reader)
        return self.halves[value]

    def _constant(self, value: ir.Value) -> ir.Value:
        array = constant_array(value)
        assert array is not None
        with np.errstate(over="ignore"):
            tensor = ir.tensor(array.astype(np.float16))
        name = self._free_name(f"{(value.name or '').removesuffix(_ROUNDED)}{_STORED}")
        half = ir.val(name, const_value=tensor)
        self.graph.register_initializer(half)
        return half

    def _store(self, node: ir.Node, value: ir.Value) -> None:
        """Make an output float16: what rounded it is dropped, other float32 readers get a Cast."""
        uses = list(value.uses())
        value.type = ir.TensorType(_HALF)
        back: ir.Value | None = None
        if value.is_graph_output():
            name = value.name or ""
            value.name = self._free_name(f"{name}{_STORED}")
            self.taken.discard(name)
            back = self._cast(value, _FLOAT, name, after=node)
            self.graph.outputs[list(self.graph.outputs).index(value)] = back
        for use in uses:
            reader = use.node
            if _is_cast_to_half(reader) and not reader.outputs[0].is_graph_output():
                reader.outputs[0].replace_all_uses_with(value)
            elif reader not in self.nodes or use.idx not in _data_inputs(reader):
                back = back or self._cast(value, _FLOAT, f"{value.name}_float32", after=node)
                reader.replace_input_with(use.idx, back)

    def _cast(
        self,
        value: ir.Value,
        to: ir.DataType,
        name: str,
        *,
        before: ir.Node | None = None,
        after: ir.Node | None = None,
    ) -> ir.Value:
        name = self._free_name(name)
        node = ir.Node("", "Cast", [value], attributes=[ir.AttrInt64("to", to)], num_outputs=1, name=name)
        result = node.outputs[0]
        result.name, result.type, result.shape = name, ir.TensorType(to), value.shape
        if before is not None:
            self.graph.insert_before(before, node)
        else:
            assert after is not None
            self.graph.insert_after(after, node)
        return result

    def _free_name(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.taken:
            name, count = f"{wanted}_{count}", count + 1
        self.taken.add(name)
        return name
