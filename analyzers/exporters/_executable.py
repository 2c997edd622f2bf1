"""A plan as a model that onnxruntime computes as it stands, whatever session it is opened in."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from analyzers.errors import InputError
from analyzers.exporters._search_file import SearchFile
from analyzers.graph import constant_array, is_constant, subgraphs
from analyzers.layers import is_pass_through
from analyzers.project import Pair
from analyzers.records import Notice, Plan
from analyzers.serialize import to_json
from analyzers.simulate import Simulated, simulate_plan

PLAN_KEY = "tearline.plan"
# What gets integer weights, MatMul once an Add has made it a Gemm; what the session merges into it before
# that; what may lie between it and the QuantizeLinear.
_REQUANTIZED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_MERGED = frozenset({"BatchNormalization", "Add", "Mul"})
_BETWEEN = frozenset({"Relu", "Clip"})
_MOST_NAMES = 5


def executable_plan(pair: Pair, plan: Plan) -> Simulated:
    """Return the model that trials run, made safe for sessions with default options.

    onnxruntime's ``WeightBiasQuantization`` gives INT8 weights to a float Conv, ConvTranspose or Gemm that
    reads a DequantizeLinear and leads to a QuantizeLinear. Trials switch it off; a file cannot. A pair of
    Casts between them keeps it away. Half-precision layers have one already; the others get one through
    double precision, which changes no value.

    Raises:
        ValueError: The plan names a layer that does not exist.
        PairingError: A border has no paired tensor.
    """
    simulated = simulate_plan(pair, plan)
    for graph in _graphs(simulated.model.graph):
        guard(graph)
    common.RemoveUnusedNodesPass()(simulated.model)
    simulated.model.metadata_props[PLAN_KEY] = json.dumps(to_json(plan), ensure_ascii=False)
    return simulated


def guard(graph: ir.Graph) -> tuple[str, ...]:
    """Put exact Cast pairs where the session would take over float weights; return the guarded nodes."""
    found = [(node, _merged_result(node)) for node in graph if _is_exposed(node)]
    exposed = [(node, result) for node, result in found if _leads_to_quantizer(result)]
    for _, result in exposed:
        uses = list(result.uses())
        value, after = result, result.producer()
        assert after is not None
        for dtype in (ir.DataType.DOUBLE, ir.DataType.FLOAT):
            attributes = [ir.AttrInt64("to", dtype)]
            name = f"{result.name}_{dtype.name.lower()}"
            cast = ir.Node("", "Cast", [value], attributes=attributes, num_outputs=1, name=name)
            cast.outputs[0].name = name
            cast.outputs[0].type, cast.outputs[0].shape = ir.TensorType(dtype), result.shape
            graph.insert_after(after, cast)
            value, after = cast.outputs[0], cast
        for use in uses:
            use.node.replace_input_with(use.idx, value)
    return tuple(node.name or "" for node, _ in exposed)


def _graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    yield graph
    for node in graph:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def _is_exposed(node: ir.Node) -> bool:
    """Return True if ``WeightBiasQuantization`` would touch weights or bias of this node."""
    if node.op_type not in _REQUANTIZED or node.domain != "" or not _is_dequantized(node.inputs[0]):
        return False
    weights = node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return _is_float_constant(weights) or (_is_dequantized(weights) and _is_float_constant(bias))


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


def check_overflow(search: SearchFile | None, plan: Plan) -> None:
    """Refuse a plan that a trial has seen to overflow half precision.

    Raises:
        InputError: ``fp16_overflow`` with the layer's name.
    """
    trials = () if search is None else search.result.trials
    for trial in trials:
        if frozenset(trial.fallback) == plan.fallback and trial.overflow and plan.precision == "fp16":
            layer = trial.overflow[0]
            raise overflow_error(layer)


def overflow_error(layer: str) -> InputError:
    """Return the error for a layer whose values do not fit half precision."""
    return InputError(
        "fp16_overflow",
        f"Layer '{layer}' holds values beyond 65504, which half precision cannot",
        where=layer,
        hint=f"Search again with --keep-int8 '{layer}' or --precision fp32",
    )


def constant_notices(pair: Pair, plan: Plan) -> tuple[Notice, ...]:
    """Say which constants of fallback layers become infinite in half precision."""
    if plan.precision != "fp16":
        return ()
    nodes = {name for layer in pair.pairing.layers if layer.name in plan.fallback for name in layer.nodes}
    limit = np.finfo(np.float16).max
    found: list[str] = []
    for node in pair.reference.ir.graph:
        if node.name not in nodes:
            continue
        for value in node.inputs:
            array = constant_array(value)
            if array is None or array.dtype.kind != "f" or array.size == 0:
                continue
            finite = array[np.isfinite(array)]
            if finite.size and np.abs(finite).max() > limit and value is not None:
                found.append(value.name or "")
    if not found:
        return ()
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    text = f"Constants beyond 65504 are infinite in half precision: {', '.join(found[:_MOST_NAMES])}{more}"
    return (Notice("fp16_constant_overflow", text, found[0]),)
