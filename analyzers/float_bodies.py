"""Let If, Loop and Scan hand on floats where the candidate hands on integers.

A body that yields quantized values dequantizes them at its end, and the value is quantized again behind the
node with the same parameters; what a loop carries is treated likewise on its way in. The integers on both
sides stay exactly what they were, and the node's float outputs mean what the reference's mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from analyzers.graph import constant_array, is_constant, subgraphs

_INTEGERS = frozenset({ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.UINT16, ir.DataType.INT16})
# How many inputs, and outputs, a body has before those of the node's states begin.
_LEADING_INPUTS = {"Loop": 2}
_LEADING_OUTPUTS = {"Loop": 1}


@dataclass(frozen=True, slots=True, eq=False)
class _Parameters:
    scale: ir.Value
    zero_point: ir.Value | None
    integer: ir.TypeProtocol


def float_bodies(graph: ir.Graph, fresh: Callable[[str], str]) -> bool:
    """Change a graph in place; tell whether anything was changed.

    Args:
        graph: A candidate's main graph.
        fresh: Returns a value name that is not taken.
    """
    is_changed = False
    for node in list(graph):
        if not any(True for _ in subgraphs(node)):
            continue
        for index, output in enumerate(node.outputs):
            parameters = _parameters(node, index)
            if parameters is not None:
                _hand_on_floats(graph, node, index, parameters, fresh)
                if index < _states(node):
                    _take_floats(graph, node, index, parameters, fresh)
                is_changed = True
                assert output.dtype == ir.DataType.FLOAT
    return is_changed


def _states(node: ir.Node) -> int:
    """Return how many values the node carries from one iteration to the next."""
    if node.op_type == "Loop":
        return len(node.inputs) - 2
    if node.op_type == "Scan":
        return len(node.inputs) - node.attributes["num_scan_inputs"].as_int()
    return 0


def _parameters(node: ir.Node, index: int) -> _Parameters | None:
    """Return how an output is quantized, as its reader says, or what made the state that it began as."""
    output = node.outputs[index]
    if output.dtype not in _INTEGERS or output.type is None:
        return None
    found = [use.node for use in output.uses() if use.node.op_type == "DequantizeLinear"]
    if index < _states(node):
        begun = node.inputs[index + _LEADING_INPUTS.get(node.op_type, 0)]
        maker = None if begun is None else begun.producer()
        found += [maker] if maker is not None and maker.op_type == "QuantizeLinear" else []
    for other in found:
        scale, zero = other.inputs[1], other.inputs[2] if len(other.inputs) > 2 else None
        array = constant_array(scale)
        is_whole = other.graph is node.graph and (zero is None or is_constant(zero))
        if scale is not None and array is not None and array.size == 1 and is_whole and _is_valid(array):
            return _Parameters(scale, zero, output.type)
    return None


def _is_valid(scale: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bool:
    """Tell whether dequantizing and quantizing again gives the same integers."""
    return bool(np.isfinite(scale).all() and (scale > np.finfo(np.float32).tiny).all())


def _hand_on_floats(
    graph: ir.Graph, node: ir.Node, index: int, parameters: _Parameters, fresh: Callable[[str], str]
) -> None:
    output = node.outputs[index]
    place = index + _LEADING_OUTPUTS.get(node.op_type, 0)
    for body in subgraphs(node):
        value = body.outputs[place]
        read = _node("DequantizeLinear", value, parameters, fresh(f"{value.name}_handed_on"))
        body.append(read)
        read.outputs[0].type, read.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), value.shape
        body.outputs[place] = read.outputs[0]
    name, output.name = output.name or "", fresh(f"{output.name}_float")
    stored = _node("QuantizeLinear", output, parameters, name)
    output.replace_all_uses_with(stored.outputs[0], replace_graph_outputs=True)
    stored.replace_input_with(0, output)
    stored.outputs[0].type, stored.outputs[0].shape = parameters.integer, output.shape
    output.type = ir.TensorType(ir.DataType.FLOAT)
    graph.insert_after(node, stored)


def _take_floats(
    graph: ir.Graph, node: ir.Node, index: int, parameters: _Parameters, fresh: Callable[[str], str]
) -> None:
    place = index + _LEADING_INPUTS.get(node.op_type, 0)
    begun = node.inputs[place]
    if begun is None:
        return
    read = _node("DequantizeLinear", begun, parameters, fresh(f"{begun.name}_handed_in"))
    read.outputs[0].type, read.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), begun.shape
    graph.insert_before(node, read)
    node.replace_input_with(place, read.outputs[0])
    for body in subgraphs(node):
        formal = body.inputs[place]
        stored = _node("QuantizeLinear", formal, parameters, fresh(f"{formal.name}_stored"))
        formal.replace_all_uses_with(stored.outputs[0], replace_graph_outputs=True)
        stored.replace_input_with(0, formal)
        stored.outputs[0].type, stored.outputs[0].shape = parameters.integer, formal.shape
        formal.type = ir.TensorType(ir.DataType.FLOAT)
        body.insert_before(body[0], stored)


def _node(op_type: str, value: ir.Value, parameters: _Parameters, name: str) -> ir.Node:
    inputs = [value, parameters.scale, parameters.zero_point]
    node = ir.Node("", op_type, inputs, num_outputs=1, name=f"{op_type}:{name}")
    node.outputs[0].name = name
    return node
