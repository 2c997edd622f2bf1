"""An operator that multiplies with weights, with what scales and shifts its result behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from analyzers.constant_values import Known, known_constant
from analyzers.folding import Affine, Vector, per_channel
from analyzers.weight_layouts import Layout, layout_of

ADDS = frozenset({"Add", "Sub"})


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A place where the candidate holds (a part of) a bias.

    Attributes:
        node: The operator that reads it.
        value: What it reads.
        known: What that holds.
        gain: What the constant is multiplied with on the way to the end of the chain, per channel.
    """

    node: ir.Node
    value: ir.Value
    known: Known
    gain: Vector


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """An operator with weights, and what scales and shifts its result behind it."""

    node: ir.Node
    layout: Layout
    weight: Known
    channels: int
    behind: tuple[Affine, ...] = ()

    def bias(self) -> Vector:
        """Return what the operator itself adds, per channel."""
        value = self.node.inputs[2] if len(self.node.inputs) > 2 else None
        known = known_constant(value)
        vector = None if known is None else per_channel(known.array, self.channels, 1)
        return np.zeros(self.channels) if vector is None else vector * self.layout.beta

    def factor(self) -> Vector:
        """Return what everything behind multiplies with."""
        return product(self.behind, self.channels)

    def slots(self) -> list[Slot]:
        """Return the operator's own bias and the constants that are added behind it."""
        found: list[Slot] = []
        value = self.node.inputs[2] if len(self.node.inputs) > 2 else None
        known = known_constant(value)
        if value is not None and known is not None:
            found.append(Slot(self.node, value, known, self.factor() * self.layout.beta))
        for index, step in enumerate(self.behind):
            if step.constant is not None and step.node.op_type in ADDS and np.all(step.factor == 1):
                known = known_constant(step.constant)
                assert known is not None
                sign = -1.0 if step.node.op_type == "Sub" else 1.0
                gain = product(self.behind[index + 1 :], self.channels) * sign
                found.append(Slot(step.node, step.constant, known, gain))
        return found


def product(steps: Sequence[Affine], channels: int) -> Vector:
    """Return what a chain multiplies with, per channel."""
    result = np.ones(channels)
    for step in steps:
        result = result * step.factor
    return result


def side_of(node: ir.Node) -> Side | None:
    """Return the operator alone, or None if it has no constant weights."""
    layout = layout_of(node)
    weight = known_constant(node.inputs[1]) if len(node.inputs) > 1 else None
    channels = None if layout is None or weight is None else layout.channels(weight.array)
    if layout is None or weight is None or channels is None:
        return None
    return Side(node, layout, weight, channels)


def fits(ours: Side, theirs: Side) -> bool:
    """Tell whether two operators have the same weights in some layout."""
    return (
        ours.layout.family == theirs.layout.family
        and ours.weight.array.size == theirs.weight.array.size
        and ours.channels == theirs.channels
    )


def fixed_offset(theirs: Side, slots: Sequence[Slot]) -> Vector:
    """Return what operators behind the candidate's add that are no bias."""
    result = np.zeros(theirs.channels)
    for index, step in enumerate(theirs.behind):
        if all(step.node is not slot.node for slot in slots):
            result = result + step.offset * product(theirs.behind[index + 1 :], theirs.channels)
    return result
