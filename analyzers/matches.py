"""What has been matched so far, while two graphs are matched."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import onnx_ir as ir

from analyzers.skeleton import Skeleton

_AFFIXES = re.compile(
    r"(_QuantizeLinear_Input|_QuantizeLinear_Output|_DequantizeLinear_Output|_DequantizeLinear|_QuantizeLinear"
    r"|_quantized|_dequantized|_quant|_float|_qdq|_dq|_DQ|_updated|_converted|_stored)(_\d+)?$"
)


@dataclass(slots=True, eq=False)
class Matches:
    """What belongs to what so far.

    Attributes:
        nodes: Reference node -> candidate node.
        values: Reference core value -> candidate core value.
        evidence: Reference core value -> what made the match.
        inner: Reference core values whose candidate value means a later tensor.
        stand_ins: Reference core values whose candidate value means an earlier tensor, which others read too:
            what made the one of the other is lost.
        changed: Reference nodes matched to another operator.
        lost: Reference nodes that the candidate does not compute, nor anything in their place.
        added: Candidate nodes without a counterpart -> the reference node that makes or reads the result.
    """

    nodes: dict[ir.Node, ir.Node] = field(default_factory=dict)
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    evidence: dict[ir.Value, str] = field(default_factory=dict)
    inner: set[ir.Value] = field(default_factory=set)
    stand_ins: set[ir.Value] = field(default_factory=set)
    changed: list[tuple[ir.Node, ir.Node]] = field(default_factory=list)
    lost: list[ir.Node] = field(default_factory=list)
    added: dict[ir.Node, ir.Node] = field(default_factory=dict)


class State:
    """The two graphs and what has been found.

    Attributes:
        reference: The reference graph.
        candidate: The candidate graph in QDQ form.
        ours: Skeleton of the reference.
        theirs: Skeleton of the candidate.
        opset: Version of the default domain.
        found: The matches.
        claimed: Candidate nodes that are taken.
        our_outputs: Reference core values that leave the graph.
        their_outputs: Candidate core values that do.
        by_name: Any candidate value's name -> its core.
        by_stripped: The same without affixes; several may be called alike.
        by_node_name: Candidate node by its name without affixes.
        order: Place of each candidate node.
    """

    def __init__(self, reference: ir.Graph, ours: Skeleton, candidate: ir.Graph, theirs: Skeleton) -> None:
        self.reference, self.candidate = reference, candidate
        self.ours, self.theirs = ours, theirs
        self.opset = int(reference.opset_imports.get("", 13))
        self.found = Matches()
        self.claimed: set[ir.Node] = set()
        self.our_outputs = {ours.core(v) for v in reference.outputs}
        self.their_outputs = {theirs.core(v) for v in candidate.outputs}
        self.by_name: dict[str, ir.Value] = {}
        self.by_stripped: dict[str, list[ir.Value]] = {}
        self.by_node_name: dict[str, ir.Node] = {}
        self.order = {node: i for i, node in enumerate(theirs.nodes)}
        self._index_names()

    def _index_names(self) -> None:
        own = [(v, v) for node in self.theirs.nodes for v in node.outputs]
        for value, core in [*own, *self.theirs.cores.items()]:
            if value.name:
                self.by_name.setdefault(value.name, core)
                self.by_stripped.setdefault(strip_affixes(value.name), []).append(core)
        for core, storages in self.theirs.storage.items():
            for storage in storages:
                if storage.integer.name:
                    self.by_stripped.setdefault(strip_affixes(storage.integer.name), []).append(core)
        for node in self.theirs.nodes:
            self.by_node_name.setdefault(strip_affixes(node.name or ""), node)

    def pair_value(self, ours: ir.Value, theirs: ir.Value, evidence: str) -> None:
        """Pair two core values, unless the first is paired already."""
        if ours not in self.found.values:
            self.found.values[ours] = theirs
            self.found.evidence[ours] = evidence


def strip_affixes(name: str) -> str:
    """Return a tensor name without the affixes that known quantizers add."""
    previous = None
    while previous != name:
        previous, name = name, _AFFIXES.sub("", name)
    return name
