"""All plans of a pair in one model: an input says for each layer which side counts.

Both sides of every layer are computed, and a ``Where`` behind each picks one; so one session answers for any
plan in float32, and hundreds of plans cost no session of their own. Searches that only look at the output
(ranking, bisect) run on it. Results are those of ``simulate`` with precision "fp32" in literal mode.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from analyzers.assembly import Recipe
from analyzers.graph import is_constant, is_float
from analyzers.layers import is_pass_through
from analyzers.project import Pair
from analyzers.records import Array, Plan, Rule
from analyzers.simulate import Simulation

MASK_NAME = "fallback_mask"


@dataclass(frozen=True, slots=True, eq=False)
class Switched:
    """A model with a switch for each layer.

    Attributes:
        model: Inputs are the reference's, then the mask; outputs and their names are the reference's.
        mask: Name of the mask input: ``(layers,)`` bool, true where the reference counts.
        layers: The layers that have a switch, in the order of the mask.
    """

    model: ir.Model
    mask: str
    layers: tuple[str, ...]


def switch_layers(pair: Pair, layers: Sequence[str], *, rule: Rule = "per-edge") -> Switched:
    """Build the model; layers without a switch are computed as the candidate does.

    Raises:
        ValueError: A layer does not exist, or the rule is one that no switch can follow.
        PairingError: A border has no paired tensor.
    """
    if rule == "nodes-to-exclude":
        # Whether a tensor is quantized then depends on its neighbours' switches, not only on two of them.
        raise ValueError("there are no switches for the rule nodes-to-exclude")
    return _Switches(pair, tuple(layers), rule).build()


def mask_of(layers: Sequence[str], fallback: frozenset[str]) -> Array:
    """Return the mask in which these layers count as the reference computes them."""
    return np.array([layer in fallback for layer in layers], dtype=bool)


class _Switches(Simulation):
    """Assembles the plan in which all layers fall back, and puts the candidate's side behind each switch."""

    def __init__(self, pair: Pair, layers: tuple[str, ...], rule: Rule) -> None:
        super().__init__(pair, Plan(frozenset(layers), "fp32", rule))
        self.layers = layers
        self.mask = ir.Value(
            name=self.assembler.value_name(MASK_NAME),
            type=ir.TensorType(ir.DataType.BOOL),
            shape=ir.Shape([len(layers)]),
        )
        self._place = {layer: index for index, layer in enumerate(layers)}
        self._switches: dict[str, ir.Value] = {}

    def build(self) -> Switched:
        """Assemble and return the model."""
        outputs: list[ir.Value] = []
        for value in self.reference.outputs:
            made = self.assembler.resolve(("output", value), self.recipe)[0]
            assert made is not None
            outputs.append(self._named_output(made, value, outputs))
        sources = [self.pair.reference.ir, self.pair.canonical]
        model = self.assembler.finish([*self.inputs.values(), self.mask], outputs, sources, "switches")
        return Switched(model, self.mask.name or "", self.layers)

    def recipe(self, key: Hashable) -> Recipe:
        """Return how to make a key; those of ``Simulation`` and three more."""
        assert isinstance(key, tuple)
        kind, item = key
        if kind == "mixed":
            return self._mixed_value(item)
        if kind == "computed":
            return self._computed_value(item)
        if kind == "output":
            return self._output_value(item)
        return super().recipe(key)

    def _read_key(self, value: ir.Value, reader: ir.Node) -> Hashable:
        """A fallback node reads other layers' tensors as whatever side their switch picks."""
        key = super()._read_key(value, reader)
        producer = value.producer()
        if key != ("reference", value) or producer not in self.fallback_nodes:
            return key
        layer = self._switched_layer(value)
        core = self.ours.core(value)
        is_paired = core in self.matches.values and core not in self.matches.inner
        is_own = layer == self.names.get(reader) or self.names[producer] == self.names.get(reader)
        if layer is None or is_own or not is_paired or not is_float(value):
            return key
        return ("mixed", value)

    def _mixed_value(self, value: ir.Value) -> Recipe:
        """A reference tensor, or in its place what the candidate stores."""
        return Recipe(
            (("reference", value), ("border", value)),
            lambda made: (self._pick(value, made[0][0], made[1][0], f"{value.name}_mixed"),),
        )

    def _candidate_value(self, value: ir.Value) -> Recipe:
        """A candidate value, or in its place what the reference computes."""
        source = self._stand_in(value)
        if source is None or self._switched_layer(source) is None or not is_float(value):
            return super()._candidate_value(value)
        return Recipe(
            (("reference", source), ("computed", value)),
            lambda made: (
                self._pick(
                    source,
                    self._as_type(made[0][0], source.dtype, value.dtype),
                    made[1][0],
                    f"{value.name}_switched",
                ),
            ),
        )

    def _stand_in(self, value: ir.Value) -> ir.Value | None:
        source = self.replaced.get(value)
        if source is None and self.plan.rule == "hybrid" and is_float(value):
            source = self.replaced.get(self.theirs.core(value))
        return source

    def _computed_value(self, value: ir.Value) -> Recipe:
        """A candidate value as the candidate computes it."""
        if is_constant(value):
            return Recipe((), lambda _: (self.assembler.constant(value),))
        node, index = value.producer(), value.index()
        if node is None or index is None:
            return Recipe((), lambda _: (self._candidate_input(value),))
        return Recipe((("candidate-node", node),), lambda made: (made[0][index],))

    def _output_value(self, value: ir.Value) -> Recipe:
        twin = self.pair.pairing.outputs.get(value.name or "")
        theirs = next((v for v in self.pair.canonical.graph.outputs if v.name == twin), None)
        if theirs is None or self._switched_layer(value) is None or not is_float(value):
            return Recipe((self._output_key(value),), lambda made: (made[0][0],))
        return Recipe(
            (("reference", value), ("candidate", theirs)),
            lambda made: (
                self._pick(
                    value,
                    made[0][0],
                    self._as_type(made[1][0], theirs.dtype, value.dtype),
                    f"{value.name}_picked",
                ),
            ),
        )

    def _switched_layer(self, value: ir.Value) -> str | None:
        """Return the layer whose switch decides on a reference tensor; pass-through nodes follow theirs."""
        node = value.producer()
        while node is not None and is_pass_through(node):
            source = node.inputs[0]
            node = None if source is None else source.producer()
        layer = None if node is None else self.names.get(node)
        return layer if layer in self._place else None

    def _pick(self, value: ir.Value, ours: ir.Value | None, theirs: ir.Value | None, name: str) -> ir.Value:
        layer = self._switched_layer(value)
        assert layer is not None
        if layer not in self._switches:
            place = self.assembler.array(np.array(self._place[layer], dtype=np.int64), f"{layer}_place")
            self._switches[layer] = self.assembler.emit(
                "Gather", [self.mask, place], f"{layer}_switch", dtype=ir.DataType.BOOL
            )
        dtype = None if ours is None else ours.dtype
        return self.assembler.emit("Where", [self._switches[layer], ours, theirs], name, dtype=dtype)
