"""Keep onnxruntime's default optimizers from changing a plan.

Trials switch these off; a file cannot. Each of them looks for a chain of nodes, and a pair of Casts through
double precision, which changes no value, breaks the chain until they are done. (Half-precision layers break
most chains by their own Casts.)

- ``WeightBiasQuantization`` gives INT8 weights to a float Conv, ConvTranspose or Gemm that reads a
  DequantizeLinear and leads to a QuantizeLinear, and an INT32 bias to one whose weights are integers already.
- The fusion into ``MatMulNBits`` takes a MatMul or Gemm of float activations and dequantized weights, and
  quantizes the activations on the fly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from analyzers.graph import all_values, is_constant, subgraphs
from analyzers.layers import is_pass_through

# What gets integer weights, MatMul once an Add has made it a Gemm; what the session merges into it before
# that; what may lie between it and the QuantizeLinear.
_REQUANTIZED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_MERGED = frozenset({"BatchNormalization", "Add", "Mul"})
_BETWEEN = frozenset({"Relu", "Clip"})
_PRODUCTS = frozenset({"MatMul", "Gemm"})


def guard_model(model: ir.Model) -> tuple[str, ...]:
    """Guard a model and its subgraphs in place; return the guarded nodes."""
    return tuple(name for graph in _graphs(model.graph) for name in _guard(graph))


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    yield graph
    for node in graph:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def _guard(graph: ir.Graph) -> list[str]:
    taken = {value.name or "" for value in all_values(graph)}
    guarded: list[str] = []
    for node in list(graph):
        result = _merged_result(node) if _is_exposed(node) else None
        is_requantized = result is not None and _leads_to_quantizer(result)
        is_fused = _is_fused_with_weights(node)
        if is_requantized and result is not None:
            _break_chain(graph, result, [(u.node, u.idx) for u in result.uses()], taken)
        if is_fused and (weights := node.inputs[1]) is not None:
            _break_chain(graph, weights, [(node, 1)], taken)
        if is_requantized or is_fused:
            guarded.append(node.name or "")
    return guarded


def _break_chain(
    graph: ir.Graph, value: ir.Value, uses: Iterable[tuple[ir.Node, int]], taken: set[str]
) -> None:
    """Put a pair of Casts between a value and these inputs of nodes."""
    last, after = value, value.producer()
    assert after is not None
    for dtype in (ir.DataType.DOUBLE, ir.DataType.FLOAT):
        name = _free_name(f"{value.name}_{dtype.name.lower()}", taken)
        cast = ir.Node("", "Cast", [last], attributes=[ir.AttrInt64("to", dtype)], num_outputs=1, name=name)
        last = cast.outputs[0]
        last.name, last.type, last.shape = name, ir.TensorType(dtype), value.shape
        graph.insert_after(after, cast)
        after = cast
    for node, index in uses:
        node.replace_input_with(index, last)


def _free_name(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 1
    while name in taken:
        name, count = f"{wanted}_{count}", count + 1
    taken.add(name)
    return name


def _is_exposed(node: ir.Node) -> bool:
    """Return True if ``WeightBiasQuantization`` would touch weights or bias of this node."""
    if node.op_type not in _REQUANTIZED or node.domain != "" or not _is_dequantized(node.inputs[0]):
        return False
    weights = node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return _is_float_constant(weights) or (_is_dequantized(weights) and _is_float_constant(bias))


def _is_fused_with_weights(node: ir.Node) -> bool:
    """Return True if ``MatMulNBits`` would take over this node, since no integer operator can."""
    if node.op_type not in _PRODUCTS or node.domain != "":
        return False
    weights = node.inputs[1]
    producer = None if weights is None else weights.producer()
    if weights is None or producer is None or producer.op_type != "DequantizeLinear":
        return False
    is_float = weights.dtype == ir.DataType.FLOAT and is_constant(producer.inputs[0])
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    has_integers = _is_dequantized(node.inputs[0]) and not _is_float_constant(bias)
    return is_float and not has_integers


def _is_float_constant(value: ir.Value | None) -> bool:
    return value is not None and is_constant(value) and value.dtype == ir.DataType.FLOAT


def _is_dequantized(value: ir.Value | None) -> bool:
    """Return True if a DequantizeLinear made the value; the session moves it past nodes that only copy."""
    producer = None if value is None else value.producer()
    while producer is not None and (is_pass_through(producer) or producer.op_type == "Pad"):
        source = producer.inputs[0]
        producer = None if source is None else source.producer()
    return producer is not None and producer.op_type == "DequantizeLinear"


def _merged_result(node: ir.Node) -> ir.Value:
    """Return the result of a node and of what the session merges into it."""
    while True:
        result = node.outputs[0]
        uses = list(result.uses())
        reader = uses[0].node if len(uses) == 1 else None
        if reader is None or reader.op_type not in _MERGED:
            return result
        if not all(value is result or is_constant(value) for value in reader.inputs):
            return result
        node = reader


def _leads_to_quantizer(value: ir.Value) -> bool:
    """Return True if nothing but QuantizeLinear reads the value, once the session has moved those up."""
    return bool(value.uses()) and all(
        use.node.op_type == "QuantizeLinear"
        or (
            (use.node.op_type in _BETWEEN or is_pass_through(use.node))
            and len(use.node.outputs) == 1
            and _leads_to_quantizer(use.node.outputs[0])
        )
        for use in value.uses()
    )
