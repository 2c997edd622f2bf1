"""Every candidate layer fed with the reference's values, beside the reference, in one model.

The isolated error of all layers then costs about one forward of each side. Only edge quantizers that differ
from the producer's store are applied to a layer's inputs, so the producer's storage error is never charged
to the consumer (DESIGN section 3).

For a diagnosis each layer is also cut at earlier *stages*: before its store, and with the reference's
constants and no quantizers at all, so that errors of operators, constants and stores can be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from analyzers.assembly import Assembler, Made, Recipe
from analyzers.attributes import bounds_of
from analyzers.graph import FLOAT_TYPES, captured_values, is_constant, node_name
from analyzers.levels import limits_of
from analyzers.pairing import nearest_storage
from analyzers.project import Pair
from analyzers.records import INPUT_LAYER, Array, Quantization, TensorPair
from analyzers.skeleton import read_quantization

Stage = Literal["isolated", "operator"]
_SATURATING = frozenset({"Relu", "Clip"})


@dataclass(frozen=True, slots=True, eq=False)
class Isolated:
    """The reference with every candidate layer attached.

    Attributes:
        model: All reference tensors keep their names; graph outputs are the reference's.
        results: Reference tensor -> name of the float value that the isolated candidate layer yields for it.
        computed: Reference tensor -> name of the same before the layer's store; empty without stages.
        operator: Reference tensor -> name of what the candidate's operators make of the reference's values
            and constants, without any quantizer; empty without stages.
        detours: Reference operator -> the tensor that it reads, and the name of what its twin reads instead,
            where operators without a counterpart lie in between; without any quantizer; empty without stages.
    """

    model: ir.Model
    results: dict[str, str]
    computed: dict[str, str] = field(default_factory=dict)
    operator: dict[str, str] = field(default_factory=dict)
    detours: dict[str, tuple[str, str]] = field(default_factory=dict)


def isolate(pair: Pair, *, constants: Mapping[str, Array] | None = None) -> Isolated:
    """Assemble the model; pairs whose candidate layer cannot be cut out are left out of ``results``.

    Args:
        pair: Reference and candidate.
        constants: For the stages: candidate value -> what the reference holds there. Without it there are
            no stages.
    """
    return _Isolation(pair, constants).run()


class _Isolation:
    def __init__(self, pair: Pair, constants: Mapping[str, Array] | None) -> None:
        self.pair = pair
        self.constants = constants
        paired = pair.paired
        self.ours, self.theirs, self.matches = paired.ours, paired.theirs, paired.matches
        self.reference = pair.reference.ir.graph
        self.values = {v.name: v for n in self.reference for v in n.outputs} | {
            v.name: v for v in self.reference.inputs
        }
        self.layer_of = {n: pair.pairing.layers[i].name for n, i in paired.grouping.layer_of.items()}
        self.meaning = {
            twin: value
            for value, twin in self.matches.values.items()
            if value not in self.matches.inner | self.matches.stand_ins and not is_constant(value)
        }
        self.stood_in = {
            (self.layer_of[reader], self.matches.values[value]): value
            for value in self.matches.stand_ins
            for reader in self.ours.readers.get(value, [])
            if reader in self.layer_of
        }
        self.assembler = Assembler(reserved=())
        self._known: dict[str, ir.Value] = {}
        self.inputs = {
            v: ir.Value(name=self.assembler.value_name(v.name or ""), type=v.type, shape=v.shape)
            for v in self.reference.inputs
        }

    def run(self) -> Isolated:
        """Assemble the reference, then each pair's candidate layer."""
        outputs = []
        for node in self.reference:
            self.assembler.resolve(("reference-node", node), self.recipe)
        for value in self.reference.outputs:
            made = self.assembler.resolve(("reference", value), self.recipe)[0]
            assert made is not None
            outputs.append(made)
        results: dict[str, str] = {}
        computed: dict[str, str] = {}
        operator: dict[str, str] = {}
        for pair in self.pair.pairing.pairs:
            made = self._attach(pair)
            if made is not None:
                results[pair.reference] = made.name or ""
            if self.constants is None or pair.layer == INPUT_LAYER:
                continue
            for found, stage in ((computed, "isolated"), (operator, "operator")):
                early = self._attach_stage(pair, stage)
                if early is not None:
                    found[pair.reference] = early.name or ""
        detours = {} if self.constants is None else self._detours()
        sources = [self.pair.reference.ir, self.pair.canonical]
        model = self.assembler.finish(list(self.inputs.values()), outputs, sources, "isolated")
        return Isolated(model, results, computed, operator, detours)

    def _detours(self) -> dict[str, tuple[str, str]]:
        """Return what matched candidate operators read instead of the twin of their input."""
        found: dict[str, tuple[str, str]] = {}
        for node, twin in self.matches.nodes.items():
            layer = self.layer_of.get(node)
            pairs = zip(self.ours.data_inputs(node), self.theirs.data_inputs(twin), strict=False)
            for value, have in pairs if layer is not None else ():
                want = None if value is None else self.matches.values.get(value)
                if value is None or have is None or want is None or have is want or have in self.meaning:
                    continue
                made = self.assembler.resolve(("operator", (layer, have)), self.recipe)[0]
                if made is not None:
                    found[node_name(node)] = (value.name or "", made.name or "")
        return found

    def _attach_stage(self, pair: TensorPair, stage: str) -> ir.Value | None:
        """Return the layer's result before its store.

        Where the candidate left an activation to the store's saturation, the range of the store stands in for
        it, as far as it lets more pass than the activation does: what the range clips besides is the store's
        doing and shows in the next stage.
        """
        value = self.values.get(pair.reference)
        twin = None if value is None else self.matches.values.get(self.ours.core(value))
        if value is None or twin is None:
            return None
        made = self.assembler.resolve((stage, (pair.layer, twin)), self.recipe)[0]
        producer = value.producer()
        is_absorbed = producer is not None and producer.op_type in _SATURATING
        is_absorbed = is_absorbed and producer not in self.matches.nodes
        storage = nearest_storage(self.theirs, twin)
        if made is None or not is_absorbed or storage is None:
            return made
        held = _range(storage.quantization)
        if held is None or twin.dtype is None or producer is None:
            return made
        bounds = bounds_of(producer)
        low, high = (
            self.assembler.array(np.array(b, dtype=twin.dtype.numpy()), f"{pair.reference}_bound")
            for b in (min(held[0], bounds[0]), max(held[1], bounds[1]))
        )
        return self.assembler.emit("Clip", [made, low, high], f"{pair.reference}_saturated", dtype=twin.dtype)

    def _attach(self, pair: TensorPair) -> ir.Value | None:
        value = self.values.get(pair.reference)
        twin = None if value is None else self.matches.values.get(self.ours.core(value))
        if value is None or twin is None:
            return None
        storage = nearest_storage(self.theirs, twin)
        target = twin if storage is None else storage.dequantized
        if pair.layer == INPUT_LAYER and storage is None:
            return None
        made = self.assembler.resolve(("isolated", (pair.layer, target)), self.recipe)[0]
        if made is None or storage is None or storage.permutation is None:
            return made
        inverse = ir.AttrInt64s("perm", [int(i) for i in np.argsort(storage.permutation)])
        return self.assembler.emit("Transpose", [made], f"{pair.reference}_isolated_layout", [inverse])

    def recipe(self, key: Hashable) -> Recipe:
        """Return how to make a key."""
        assert isinstance(key, tuple)
        kind, item = key
        methods: dict[str, Callable[[Any], Recipe]] = {
            "reference": self._reference_value,
            "reference-node": self._reference_node,
            "isolated": self._isolated_value,
            "isolated-node": self._isolated_node,
            "operator": self._operator_value,
            "operator-node": self._operator_node,
        }
        return methods[kind](item)

    def _reference_value(self, value: ir.Value) -> Recipe:
        if value in self.inputs:
            return Recipe((), lambda _: (self.inputs[value],))
        if is_constant(value):
            return Recipe((), lambda _: (self.assembler.constant(value),))
        node, index = value.producer(), value.index()
        assert node is not None
        assert index is not None
        return Recipe((("reference-node", node),), lambda made: (made[0][index],))

    def _reference_node(self, node: ir.Node) -> Recipe:
        values = [*node.inputs, *captured_values(node)]
        needs = tuple(("reference", v) for v in values if v is not None)

        def make(made: Sequence[Made]) -> Made:
            resolved = iter(made)
            return self.assembler.copy_node(node, [None if v is None else next(resolved)[0] for v in values])

        return Recipe(needs, make)

    def _isolated_value(self, item: tuple[str, ir.Value]) -> Recipe:
        """A candidate value inside the layer, computed from the reference's values at the layer's border."""
        layer, value = item
        border = self._border(layer, value)
        if border is not None:
            return Recipe(
                (("reference", border),), lambda made: (self._as_type(made[0][0], border.dtype, value.dtype),)
            )
        source = self._stored_source(layer, value)
        if source is not None:
            return Recipe((("isolated", (layer, source)),), lambda made: (made[0][0],))
        if is_constant(value):
            return Recipe((), lambda _: (self.assembler.constant(value, suffix="_candidate"),))
        node, index = value.producer(), value.index()
        if node is None or index is None:
            return Recipe((), lambda _: (None,))
        return Recipe((("isolated-node", (layer, node)),), lambda made: (made[0][index],))

    def _border(self, layer: str, value: ir.Value) -> ir.Value | None:
        """Return the reference value that stands in for a candidate core outside the layer."""
        meaning = self.stood_in.get((layer, value)) or self.meaning.get(value)
        if meaning is None:
            return None
        producer = meaning.producer()
        is_own = producer is not None and self.layer_of.get(producer) == layer
        return None if is_own else meaning

    def _stored_source(self, layer: str, value: ir.Value) -> ir.Value | None:
        """Return the value before the producer's own store, where ``value`` is read back from that store."""
        node = value.producer()
        if (
            node is None
            or node.op_type != "DequantizeLinear"
            or layer == INPUT_LAYER
            or node.inputs[0] is None
        ):
            return None
        quantizer = node.inputs[0].producer()
        if quantizer is None or quantizer.op_type != "QuantizeLinear":
            return None
        core = self.theirs.core(value)
        storage = nearest_storage(self.theirs, core)
        if storage is None or self._border(layer, core) is None:
            return None
        return quantizer.inputs[0] if _same(storage.quantization, read_quantization(node)) else None

    def _operator_value(self, item: tuple[str, ir.Value]) -> Recipe:
        """The same without quantizers and with the reference's constants."""
        layer, value = item
        border = self._border(layer, value)
        if border is not None:
            return self._isolated_value(item)
        known = None if self.constants is None else self.constants.get(value.name or "")
        if known is not None:
            return Recipe((), lambda _: (self._known_constant(value, known),))
        source = _unquantized(value)
        if source is not None:
            return Recipe((("operator", (layer, source)),), lambda made: (made[0][0],))
        if is_constant(value):
            return self._isolated_value(item)
        node, index = value.producer(), value.index()
        if node is None or index is None:
            return Recipe((), lambda _: (None,))
        return Recipe((("operator-node", (layer, node)),), lambda made: (made[0][index],))

    def _known_constant(self, value: ir.Value, array: Array) -> ir.Value:
        key = f"{value.name}_known"
        if key not in self._known:
            dtype = np.float32 if value.dtype is None else value.dtype.numpy()
            self._known[key] = self.assembler.array(array.astype(dtype), key)
        return self._known[key]

    def _isolated_node(self, item: tuple[str, ir.Node]) -> Recipe:
        return self._node("isolated", item)

    def _operator_node(self, item: tuple[str, ir.Node]) -> Recipe:
        return self._node("operator", item)

    def _node(self, stage: Stage, item: tuple[str, ir.Node]) -> Recipe:
        layer, node = item
        values = [*node.inputs, *captured_values(node)]
        needs = tuple((stage, (layer, v)) for v in values if v is not None)

        def make(made: Sequence[Made]) -> Made:
            resolved = iter(made)
            inputs = [None if v is None else next(resolved)[0] for v in values]
            if any(v is not None and i is None for v, i in zip(values, inputs, strict=True)):
                return (None,) * len(node.outputs)
            return self.assembler.copy_node(node, inputs, suffix=f"_{stage}")

        return Recipe(needs, make)

    def _as_type(
        self, value: ir.Value | None, have: ir.DataType | None, want: ir.DataType | None
    ) -> ir.Value | None:
        if value is None or have == want or have not in FLOAT_TYPES or want not in FLOAT_TYPES:
            return value
        to = ir.AttrInt64("to", want)
        return self.assembler.emit("Cast", [value], f"{value.name}_as_{want.name.lower()}", [to], dtype=want)


def _same(a: Quantization, b: Quantization | None) -> bool:
    if b is None:
        return False
    return (
        a.dtype == b.dtype
        and a.axis == b.axis
        and np.array_equal(a.scale, b.scale)
        and np.array_equal(a.zero_point, b.zero_point)
    )


def _unquantized(value: ir.Value) -> ir.Value | None:
    """Return what was quantized, where ``value`` is read back from a quantizer."""
    node = value.producer()
    if node is None or node.op_type != "DequantizeLinear" or node.inputs[0] is None:
        return None
    quantizer = node.inputs[0].producer()
    if quantizer is None or quantizer.op_type not in {"QuantizeLinear", "DynamicQuantizeLinear"}:
        return None
    return quantizer.inputs[0]


def _range(quantization: Quantization) -> tuple[float, float] | None:
    """Return the lowest and highest value of a store with a single scale."""
    limits = limits_of(quantization.dtype)
    if (
        limits is None
        or quantization.scale.ndim
        or not np.isfinite(quantization.scale)
        or quantization.scale <= 0
    ):
        return None
    low, high = limits
    zero = int(quantization.zero_point)
    scale = float(quantization.scale)
    return (low - zero) * scale, (high - zero) * scale
