"""What computes a layer's tensor, on both sides: the operators between it and the border of the layer."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from analyzers.graph import constant_array, is_constant, node_name, subgraphs
from analyzers.likeness import MULTIPLIES
from analyzers.project import Pair
from analyzers.skeleton import constant_of


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The operators that make one tensor of a layer.

    Attributes:
        layer: The layer.
        tensor: Reference tensor.
        ours: Reference operators of the layer that the tensor is computed by, topological.
        theirs: Candidate operators that compute its twin from the layer's inputs, topological.
        twins: Matched operators among them.
        sources: Candidate values at the border -> the reference tensor that each means.
    """

    layer: str
    tensor: str
    ours: tuple[ir.Node, ...]
    theirs: tuple[ir.Node, ...]
    twins: dict[ir.Node, ir.Node]
    sources: dict[ir.Value, ir.Value]

    @property
    def lost(self) -> tuple[ir.Node, ...]:
        """Reference operators without a counterpart."""
        return tuple(node for node in self.ours if node not in self.twins)

    @property
    def added(self) -> tuple[ir.Node, ...]:
        """Candidate operators without a counterpart."""
        known = set(self.twins.values())
        return tuple(node for node in self.theirs if node not in known)


def parts_of(pair: Pair, layer: str, tensor: str) -> Parts | None:
    """Return the operators behind a tensor; None where it has no twin.

    Args:
        pair: Reference and candidate.
        layer: The layer that makes the tensor.
        tensor: One of its outputs.
    """
    paired = pair.paired
    value = next((v for n in pair.reference.ir.graph for v in n.outputs if v.name == tensor), None)
    core = None if value is None else paired.ours.core(value)
    twin = None if core is None else paired.matches.values.get(core)
    if value is None or core is None or twin is None:
        return None
    names = {n: pair.pairing.layers[i].name for n, i in paired.grouping.layer_of.items()}
    meaning = {
        theirs: ours
        for ours, theirs in paired.matches.values.items()
        if ours not in paired.matches.inner | paired.matches.stand_ins and not is_constant(ours)
    }
    found: set[ir.Node] = set()
    sources: dict[ir.Value, ir.Value] = {}
    frontier = [twin]
    while frontier:
        current = frontier.pop()
        meant = meaning.get(current)
        maker = None if meant is None else meant.producer()
        if meant is not None and (maker is None or names.get(maker) != layer):
            sources[current] = meant
            continue
        node = current.producer()
        if node is None or node in found:
            continue
        found.add(node)
        frontier += [v for v in paired.theirs.data_inputs(node) if v is not None]
    ours = _upstream(pair, core, {n for n, name in names.items() if name == layer})
    theirs = tuple(n for n in paired.theirs.nodes if n in found)
    twins = {n: t for n, t in paired.matches.nodes.items() if n in ours and t in found}
    return Parts(layer, tensor, ours, theirs, twins, sources)


def _upstream(pair: Pair, core: ir.Value, members: set[ir.Node]) -> tuple[ir.Node, ...]:
    """Return the members of a layer that a value is computed by, topological."""
    ours = pair.paired.ours
    found: set[ir.Node] = set()
    frontier = [core]
    while frontier:
        node = frontier.pop().producer()
        if node is not None and node in members and node not in found:
            found.add(node)
            frontier += [v for v in ours.data_inputs(node) if v is not None]
    return tuple(n for n in ours.nodes if n in found)


def has_unknown_constants(pair: Pair, parts: Parts, known: frozenset[str]) -> bool:
    """Tell whether the candidate computes the layer with quantized constants that nothing was paired with.

    Then its operators cannot be run with the reference's constants, and what they make says nothing of them.
    Constants of operators that only the candidate has are part of how it differs.

    Args:
        pair: Reference and candidate.
        parts: The layer's operators.
        known: Candidate values of the constants that exist on both sides.
    """
    theirs = pair.paired.theirs
    if any(any(subgraphs(node)) for node in parts.theirs):
        return True
    for node in parts.twins.values():
        for value in node.inputs:
            if value is None or value.name in known:
                continue
            is_read_back = not is_constant(value) and is_constant(theirs.core(value))
            is_weight = node.op_type in MULTIPLIES and constant_array(value) is not None
            if (is_read_back or is_weight) and not _is_the_same(pair, parts, node, value):
                return True
    return False


def _is_the_same(pair: Pair, parts: Parts, node: ir.Node, value: ir.Value) -> bool:
    """Tell whether the matched operator reads the very same constant."""
    ours = next((mine for mine, twin in parts.twins.items() if twin is node), None)
    array = constant_of(pair.paired.theirs, value)
    if ours is None or array is None:
        return False
    others = [constant_of(pair.paired.ours, v) for v in ours.inputs]
    return any(o is not None and o.shape == array.shape and bool((o == array).all()) for o in others)


def name_of(node: ir.Node) -> str:
    """Return how a candidate operator is called in words."""
    return f"{node.op_type} '{node_name(node)}'"
