"""Stores that have their parameters from another store, and stand or fall with it.

Toolchains give the output of an operator that keeps within the range of its input (MaxPool, AveragePool,
Resize) the parameters of the input. A wrong range there is not the operator's fault, and repairing the first
store alone repairs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from analyzers.evidence import ConstantPair, Evidence, Store
from analyzers.graph import node_name
from analyzers.lifts import same
from analyzers.store_ranges import producers_of
from analyzers.suspicions import Change, Repair, Source

# Rounding to 32 bits costs a bias nothing; a wrong scale costs a multiple of this.
_BIAS_TOLERANCE = 0.02
# Single-input operators whose results lie within the range of the input (with zero in it).
_WITHIN_RANGE = frozenset(
    "AveragePool GlobalAveragePool GlobalMaxPool MaxPool ReduceMean ReduceMax ReduceMin Resize Upsample Relu "
    "Clip Pad".split()
)


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """A store and those that have its parameters from it.

    Attributes:
        head: The store whose parameters were chosen.
        followers: The others, topological; what pass-through operators hand on is left out, since it is
            lifted and changed along with its source.
    """

    head: Store
    followers: tuple[Store, ...]

    @property
    def sources(self) -> tuple[Source, ...]:
        """What has to be lifted to be rid of these parameters."""
        return tuple(Source("store", store.tensor) for store in self.stores)

    @property
    def stores(self) -> tuple[Store, ...]:
        """All of them."""
        return (self.head, *self.followers)


def families(evidence: Evidence) -> tuple[Family, ...]:
    """Return all stores by who chose their parameters, topological."""
    followers: dict[str, list[Store]] = {}
    for tensor, head in heads(evidence).items():
        members = followers.setdefault(head, [])
        store = evidence.stores[tensor]
        if head != tensor and not _is_pass_through(evidence, store.layer):
            members.append(store)
    return tuple(Family(evidence.stores[head], tuple(found)) for head, found in followers.items())


def heads(evidence: Evidence) -> dict[str, str]:
    """Return stored tensor -> the one that it has its parameters from, itself where it has its own."""
    producers = producers_of(evidence)
    found: dict[str, str] = {}
    for tensor in evidence.stores:
        before = _taken_from(evidence, producers, tensor)
        found[tensor] = tensor if before is None else found.get(before, before)
    return found


def _taken_from(evidence: Evidence, producers: dict[str, ir.Node], tensor: str) -> str | None:
    """Return the store that a store has its parameters from."""
    quantization = evidence.stores[tensor].quantization
    node = producers.get(tensor)
    while node is not None and _is_within_range(evidence, node):
        source = node.inputs[0]
        name = "" if source is None else source.name or ""
        if name in evidence.stores:
            return name if same(evidence.stores[name].quantization, quantization) else None
        node = producers.get(name)
    return None


def _is_within_range(evidence: Evidence, node: ir.Node) -> bool:
    operator = evidence.operators.get(node_name(node))
    if operator is None or not node.inputs:
        return False
    return node.op_type in _WITHIN_RANGE or _is_pass_through(evidence, operator.layer)


def _is_pass_through(evidence: Evidence, name: str) -> bool:
    layer = evidence.layers.get(name)
    return layer is not None and layer.is_pass_through


def spoiled_biases(evidence: Evidence, stores: Sequence[Store]) -> tuple[Source, ...]:
    """Return biases that a wrong scale of a store spoils.

    Integer operators such as QLinearConv have no scale for the bias: it is that of the input times that of
    the weight.
    """
    readers = {reader.node for store in stores for reader in store.readers}
    return tuple(
        Source("bias", constant.node)
        for constant in evidence.constants
        if constant.role == "bias" and constant.node in readers and _is_off(constant)
    )


def _is_off(constant: ConstantPair) -> bool:
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.linalg.norm(constant.candidate - constant.reference)
    return not error <= _BIAS_TOLERANCE * np.linalg.norm(constant.reference)


def with_biases(repairs: Sequence[Repair], biases: Sequence[Source]) -> tuple[Repair, ...]:
    """Return repairs that set these biases right too."""
    return tuple(Repair(r.how, (*r.changes, *(Change(bias) for bias in biases))) for r in repairs)


def for_all(family: Family, repairs: Sequence[Repair]) -> tuple[Repair, ...]:
    """Return repairs of the head that give its followers the same parameters."""
    return tuple(
        Repair(repair.how, tuple(c for change in repair.changes for c in _for_all(family, change)))
        for repair in repairs
    )


def _for_all(family: Family, change: Change) -> tuple[Change, ...]:
    if change.source != Source("store", family.head.tensor) or change.quantization is None:
        return (change,)
    return tuple(Change(source, quantization=change.quantization) for source in family.sources)
