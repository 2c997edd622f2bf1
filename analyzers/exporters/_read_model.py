"""Read the plan back from an exported model, as any candidate is read: by pairing it with the reference."""

from __future__ import annotations

import json
from pathlib import Path

import onnx_ir as ir

from analyzers.canonical import to_qdq
from analyzers.deserialize import from_json
from analyzers.errors import InputError
from analyzers.exporters._executable import PLAN_KEY
from analyzers.graph import all_values, is_constant, read_model
from analyzers.pairing import Paired, pair_graphs
from analyzers.project import Pair
from analyzers.records import Layer, Plan


def read_layers(path: Path, pair: Pair) -> frozenset[str]:
    """Return the layers that an exported model keeps out of INT8.

    What can be seen is seen: the weights of such a layer are not integers, and in FP16 half precision holds
    its results where the candidate stores integers. Only where neither can tell (in FP32 a layer without
    weights computes between INT8 neighbours as it does in INT8), the file's own statement counts.

    Raises:
        InputError: The file is no export of Tearline's.
        ModelLoadError: It is no readable model.
        PairingError: It is no version of the reference.
    """
    model = read_model(path)
    plan = _stated_plan(model.ir, path)
    exported = to_qdq(model.ir).graph
    names = {value.name for value in all_values(exported)}
    known = {ours: theirs for ours, theirs in pair.name_map.items() if theirs in names}
    paired = pair_graphs(pair.reference.ir.graph, exported, name_map=known)
    found: set[str] = set()
    for layer in pair.pairing.layers:
        if layer.is_pass_through:
            continue
        evidence = _has_float_weights(layer, paired)
        if evidence is not False and plan.precision == "fp16":
            evidence = _is_half(layer, paired, pair.paired)
        if evidence is None or not layer.is_quantized:
            evidence = layer.name in plan.fallback
        if evidence:
            found.add(layer.name)
    return frozenset(found)


def _stated_plan(model: ir.Model, path: Path) -> Plan:
    text = model.metadata_props.get(PLAN_KEY)
    try:
        value = None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if value is None:
        raise InputError(
            "malformed_result",
            f"The model does not say which plan it holds ('{PLAN_KEY}' in its metadata)",
            where=str(path),
            hint="Give a model that Tearline exported",
        )
    return from_json(Plan, value, where=str(path))


def _is_half(layer: Layer, paired: Paired, original: Paired) -> bool | None:
    """Return True if half precision holds a result of the layer that the candidate stores as integers.

    A result that the candidate does not store tells nothing: it is rounded where a neighbour reads it, too.
    """
    seen: list[bool] = []
    for value, stored in zip(_results(layer, paired), _results(layer, original), strict=True):
        twin = paired.matches.values.get(paired.ours.core(value))
        if twin is not None and value.dtype != ir.DataType.FLOAT16 and _is_stored(stored, original):
            seen.append(twin.dtype == ir.DataType.FLOAT16 or any(map(_is_cast_to_half, _readers(twin))))
    return any(seen) if seen else None


def _is_stored(value: ir.Value, original: Paired) -> bool:
    core = original.ours.core(value)
    twin = original.matches.values.get(core)
    return twin is not None and core not in original.matches.inner and twin in original.theirs.storage


def _readers(value: ir.Value) -> list[ir.Node]:
    return [use.node for use in value.uses()]


def _is_cast_to_half(node: ir.Node) -> bool:
    return node.op_type == "Cast" and node.attributes["to"].as_int() == ir.DataType.FLOAT16


def _results(layer: Layer, paired: Paired) -> list[ir.Value]:
    names = set(layer.nodes)
    nodes = sorted((n for n in paired.grouping.layer_of if n.name in names), key=lambda n: n.name or "")
    return [value for node in nodes for value in node.outputs]


def _has_float_weights(layer: Layer, paired: Paired) -> bool | None:
    """Return True if a weight of the layer is a float constant; None if it has no weights."""
    names = set(layer.nodes)
    for node in paired.grouping.layer_of:
        twin = paired.matches.nodes.get(node) if node.name in names else None
        if twin is None or node.op_type not in {"Conv", "ConvTranspose", "Gemm", "MatMul"}:
            continue
        weights = node.inputs[1]
        if weights is not None and is_constant(weights) and len(twin.inputs) > 1:
            return is_constant(twin.inputs[1])
    return None
