"""Pair reference tensors with candidate tensors, with evidence (DESIGN section 2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from analyzers.errors import PairingError
from analyzers.graph import is_float, node_name
from analyzers.layers import Grouping, group_nodes, layer_records
from analyzers.likeness import same_kind, shapes_fit
from analyzers.matches import Matches
from analyzers.matching import match
from analyzers.records import INPUT_LAYER, Notice, Operator, Pairing, TensorPair, Unpaired
from analyzers.skeleton import Skeleton, Storage, skeleton_of

_LOWEST_COVERAGE = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Paired:
    """A pairing together with the graph objects that surgery needs.

    Attributes:
        pairing: The records.
        ours: Skeleton of the reference.
        theirs: Skeleton of the candidate in QDQ form.
        matches: Node and value matches.
        grouping: Reference nodes by layer.
    """

    pairing: Pairing
    ours: Skeleton
    theirs: Skeleton
    matches: Matches
    grouping: Grouping


def pair_graphs(
    reference: ir.Graph, candidate: ir.Graph, *, name_map: Mapping[str, str] | None = None
) -> Paired:
    """Pair two graphs; the candidate is in QDQ form.

    Args:
        reference: The reference.
        candidate: The candidate.
        name_map: What the user says belongs together: reference tensor -> candidate tensor.

    Raises:
        PairingError: The two have too little in common to be versions of one network, or the map names a
            tensor that does not exist.
    """
    ours, theirs = skeleton_of(reference), skeleton_of(candidate)
    matches = match(reference, ours, candidate, theirs, given=name_map)

    def is_stored(value: ir.Value) -> bool:
        twin = matches.values.get(value)
        return twin is not None and value not in matches.inner and twin in theirs.storage

    def is_quantized(node: ir.Node) -> bool:
        return _is_quantized(node, matches) or any(is_stored(ours.core(v)) for v in node.outputs)

    grouping = group_nodes(ours, reference, is_stored)
    layers = layer_records(grouping, is_quantized)
    names = {node: layers[i].name for node, i in grouping.layer_of.items()}
    operators = tuple(
        Operator(node_name(n), n.op_type, names[n], tuple(v.name or "" for v in n.outputs if is_float(v)))
        for n in reference
        if n in names
    )
    layer_outputs = {name for layer in layers for name in layer.outputs}
    pairs, unpaired = _tensor_pairs(reference, ours, theirs, matches, names, layer_outputs)
    paired_tensors = {p.reference for p in pairs}
    members = [layer for layer in layers if layer.outputs]
    covered = sum(all(t in paired_tensors for t in layer.outputs) for layer in members)
    coverage = covered / len(members) if members else 0.0
    outputs = _outputs(reference, candidate, ours, theirs, matches)
    _check_related(coverage, reference, outputs)
    pairing = Pairing(
        pairs=pairs,
        unpaired=unpaired,
        coverage=coverage,
        layers=layers,
        operators=operators,
        outputs=outputs,
        warnings=_notices(reference, matches, outputs),
    )
    return Paired(pairing, ours, theirs, matches, grouping)


def _is_quantized(node: ir.Node, matches: Matches) -> bool:
    twin = matches.nodes.get(node)
    if twin is None:
        return False
    return any(
        v is not None and (p := v.producer()) is not None and p.op_type == "DequantizeLinear"
        for v in twin.inputs
    )


def _tensor_pairs(
    reference: ir.Graph,
    ours: Skeleton,
    theirs: Skeleton,
    matches: Matches,
    names: dict[ir.Node, str],
    layer_outputs: set[str],
) -> tuple[tuple[TensorPair, ...], tuple[Unpaired, ...]]:
    pairs: list[TensorPair] = []
    unpaired: list[Unpaired] = []
    for value in reference.inputs:
        twin = matches.values.get(value)
        if twin is not None and is_float(value):
            pairs.append(_pair(value, twin, theirs, INPUT_LAYER, INPUT_LAYER, matches.evidence[value]))
    for node in reference:
        if node not in names:
            continue
        for value in node.outputs:
            if not is_float(value) or not value.name or not (value.uses() or value.is_graph_output()):
                continue
            core = ours.core(value)
            twin = matches.values.get(core)
            is_output = value.name in layer_outputs
            if core in matches.inner:
                continue
            if twin is None or not _has_shape_of(value, twin, theirs):
                reason = "no candidate operator matches it" if twin is None else "its twin has another shape"
                if is_output:
                    unpaired.append(Unpaired(value.name, node_name(node), reason))
            elif is_output or twin in theirs.storage:
                pairs.append(_pair(value, twin, theirs, node_name(node), names[node], matches.evidence[core]))
    return tuple(pairs), tuple(unpaired)


def _has_shape_of(value: ir.Value, twin: ir.Value, theirs: Skeleton) -> bool:
    """Tell whether a pair can be compared, value by value; layouts of stores are seen through."""
    storage = nearest_storage(theirs, twin)
    return shapes_fit(value, twin) or (storage is not None and storage.permutation is not None)


def _pair(
    value: ir.Value, twin: ir.Value, theirs: Skeleton, node: str, layer: str, evidence: str
) -> TensorPair:
    storage = nearest_storage(theirs, twin)
    if storage is None:
        return TensorPair(value.name or "", twin.name or "", twin.name or "", None, node, layer, evidence)
    inverse = None if storage.permutation is None else tuple(int(i) for i in np.argsort(storage.permutation))
    return TensorPair(
        reference=value.name or "",
        candidate=storage.dequantized.name or "",
        tap=storage.integer.name or "",
        quantization=storage.quantization,
        node=node,
        layer=layer,
        evidence=evidence,
        permutation=inverse,
    )


def nearest_storage(theirs: Skeleton, core: ir.Value) -> Storage | None:
    """Return how the producer stores a core value; the first quantizer after it."""
    storages = theirs.storage.get(core)
    return storages[0] if storages else None


def _outputs(
    reference: ir.Graph, candidate: ir.Graph, ours: Skeleton, theirs: Skeleton, matches: Matches
) -> dict[str, str]:
    by_core: dict[ir.Value, str] = {}
    for value in candidate.outputs:
        by_core.setdefault(theirs.core(value), value.name or "")
    found: dict[str, str] = {}
    for value in reference.outputs:
        twin = matches.values.get(ours.core(value))
        if twin is not None and twin in by_core:
            found[value.name or ""] = by_core[twin]
    return found


def _check_related(coverage: float, reference: ir.Graph, outputs: dict[str, str]) -> None:
    if coverage < _LOWEST_COVERAGE or not outputs:
        names = ", ".join((v.name or "?") for v in list(reference.outputs)[:3])
        raise PairingError(
            "unrelated_models",
            f"Reference and candidate are unrelated models: {coverage:.0%} of the layers pair",
            where=f"reference outputs {names}",
            hint="Compare a model with its own quantized version, made from the same checkpoint",
        )


def _notices(reference: ir.Graph, matches: Matches, outputs: dict[str, str]) -> tuple[Notice, ...]:
    notices = [
        Notice(
            "operator_changed",
            f"The reference computes {ours.op_type} where the candidate computes {theirs.op_type}",
            node_name(ours),
        )
        for ours, theirs in matches.changed
        if not same_kind(ours.op_type, theirs.op_type)
    ]
    notices += [
        Notice("operator_lost", f"The candidate has nothing that computes {node.op_type}", node_name(node))
        for node in matches.lost
    ]
    missing = [v.name or "" for v in reference.outputs if v.name not in outputs]
    notices += [
        Notice("output_missing", f"The candidate has no output for the reference's output '{name}'", name)
        for name in missing
    ]
    return tuple(notices)
