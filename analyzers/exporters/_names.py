"""What formats call the parts of a plan: layers to nodes and tensors, and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from analyzers.errors import InputError
from analyzers.graph import is_float, node_name
from analyzers.project import Pair


def nodes_of(pair: Pair, layers: Collection[str]) -> tuple[str, ...]:
    """Return all nodes of these layers, topological."""
    return tuple(node for layer in pair.pairing.layers if layer.name in layers for node in layer.nodes)


def layers_of_nodes(pair: Pair, nodes: Iterable[str], *, where: str) -> frozenset[str]:
    """Return the layers that these nodes make up.

    Raises:
        InputError: ``unknown_node``, or ``partial_layer`` where nodes of a layer are missing.
    """
    wanted = set(nodes)
    known = {node for layer in pair.pairing.layers for node in layer.nodes}
    for node in sorted(wanted - known):
        raise InputError("unknown_node", f"The reference has no node '{node}'", where=where, hint=_HINT)
    found: set[str] = set()
    for layer in pair.pairing.layers:
        if not wanted.isdisjoint(layer.nodes):
            _check_whole(layer.name, [n for n in layer.nodes if n not in wanted], where)
            found.add(layer.name)
    return frozenset(found)


def tensors_of(pair: Pair, layers: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return for each of these layers the tensors that leave INT8 with it, topological.

    These are the float results of all its nodes, those inside the layer too, and of the nodes after it that
    only move values, since they take its precision.
    """
    names = {node: layer.name for layer in pair.pairing.layers for node in layer.nodes}
    movers = {layer.name for layer in pair.pairing.layers if layer.is_pass_through}
    owner: dict[str, str] = {}  # tensor -> the layer that it belongs to
    found: dict[str, list[str]] = {layer.name: [] for layer in pair.pairing.layers if layer.name in layers}
    for node in pair.reference.ir.graph:
        layer = names.get(node_name(node), "")
        if layer in movers:
            source = node.inputs[0]
            layer = "" if source is None else owner.get(source.name or "", "")
        for value in node.outputs:
            if layer in found and value.name and is_float(value):
                owner[value.name] = layer
                found[layer].append(value.name)
    return {layer: tuple(tensors) for layer, tensors in found.items()}


def layers_of_tensors(
    pair: Pair, tensors: Collection[str], *, known: Collection[str] | None = None, where: str
) -> frozenset[str]:
    """Return the layers that these tensors make up.

    Args:
        pair: The models.
        tensors: Tensor names.
        known: The tensors that the format can name; None for all.
        where: The file, for the error.

    Raises:
        InputError: ``unknown_tensor``, or ``partial_layer`` where tensors of a layer are missing.
    """
    members = [layer.name for layer in pair.pairing.layers if not layer.is_pass_through]
    table = tensors_of(pair, members)
    found: set[str] = set()
    explained: set[str] = set()
    for layer, own in table.items():
        namable = [tensor for tensor in own if known is None or tensor in known]
        if not set(namable).isdisjoint(tensors):
            _check_whole(layer, [tensor for tensor in namable if tensor not in tensors], where)
            found.add(layer)
            explained.update(namable)
    for tensor in sorted(set(tensors) - explained):
        raise InputError(
            "unknown_tensor", f"No layer of the reference has the tensor '{tensor}'", where=where, hint=_HINT
        )
    return frozenset(found)


_HINT = "Give the models that the file was made for"


def _check_whole(layer: str, missing: list[str], where: str) -> None:
    if missing:
        raise InputError(
            "partial_layer",
            f"Layer '{layer}' is only partly named: {', '.join(missing)} is missing",
            where=where,
            hint="Name all of a layer or none of it; export it again",
        )
