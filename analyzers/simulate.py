"""Simulate a plan: a model in which some layers compute as the reference does and the rest as the candidate.

The model is assembled from both graphs. Layers of the fallback set are the reference's nodes; everything else
is the candidate's own nodes, weights and quantizers. Where the two meet, the storage rule (DESIGN section 4)
says which form of a tensor is read. In FP16, constants and stored tensors are rounded by explicit
float32 -> float16 -> float32 Cast pairs; products are accumulated in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from analyzers.assembly import Assembler, Made, Recipe, to_half
from analyzers.errors import PairingError
from analyzers.graph import FLOAT_TYPES, captured_values, is_constant, is_float
from analyzers.layers import is_pass_through
from analyzers.pairing import nearest_storage
from analyzers.project import Pair
from analyzers.records import Array, Plan

_ACCUMULATES = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization"})


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """A plan as a model.

    Attributes:
        model: Inputs, outputs and their names are the reference's.
        half_values: Name of each half-precision tensor (as float32 after rounding) -> its layer.
    """

    model: ir.Model
    half_values: dict[str, str]


def simulate(pair: Pair, plan: Plan) -> ir.Model:
    """Return the model of a plan; see ``simulate_plan``."""
    return simulate_plan(pair, plan).model


def simulate_plan(pair: Pair, plan: Plan) -> Simulated:
    """Assemble the model of a plan.

    Raises:
        ValueError: The plan names a layer that does not exist or that may not be in a fallback set.
        PairingError: A border has no paired tensor.
    """
    return Simulation(pair, plan).run()


class Simulation:
    """The assembly of one plan; ``analyzers.switches`` builds all plans of a pair into one model with it."""

    def __init__(self, pair: Pair, plan: Plan) -> None:
        self.pair, self.plan = pair, plan
        self.paired = pair.paired
        self.ours, self.theirs, self.matches = self.paired.ours, self.paired.theirs, self.paired.matches
        self.reference = pair.reference.ir.graph
        self.is_half = plan.precision == "fp16"
        outputs = [v.name or "" for v in self.reference.outputs]
        self.assembler = Assembler(reserved=outputs)
        self.half_values: dict[ir.Value, str] = {}
        self.names = {n: pair.pairing.layers[i].name for n, i in self.paired.grouping.layer_of.items()}
        self.fallback_nodes = self._fallback_nodes()
        self.replaced = self._replaced_cores()
        self.rewired = self._rewired_reads()
        self.inputs = self._inputs()

    def _fallback_nodes(self) -> frozenset[ir.Node]:
        """Return the reference nodes that run in the fallback precision, pass-through followers included."""
        known = {layer.name for layer in self.pair.pairing.layers}
        unknown = sorted(self.plan.fallback - known)
        if unknown:
            raise ValueError(f"no such layer: {', '.join(unknown)}")
        chosen: set[ir.Node] = set()
        for node in self.reference:
            name = self.names.get(node)
            if name is None:
                continue
            if is_pass_through(node):
                source = node.inputs[0]
                producer = None if source is None else source.producer()
                if (producer is None and source in self.reference.inputs) or producer in chosen:
                    chosen.add(node)
            elif name in self.plan.fallback:
                chosen.add(node)
        return frozenset(chosen)

    def _replaced_cores(self) -> dict[ir.Value, ir.Value]:
        """Return candidate core -> reference value that stands in for it."""
        replaced: dict[ir.Value, ir.Value] = {}
        for node in self.reference:
            if node not in self.fallback_nodes or self._is_input_copy(node):
                continue
            for value in node.outputs:
                core = self.ours.core(value)
                twin = self.matches.values.get(core)
                if twin is not None and core not in self.matches.inner | self.matches.stand_ins:
                    replaced.setdefault(twin, value)
        return replaced

    def _rewired_reads(self) -> dict[tuple[ir.Node, ir.Value], ir.Value]:
        """Return what single candidate nodes read instead: results of nodes that the candidate lost.

        Others read the same candidate value and mean an earlier tensor, so the value itself stays.
        """
        found: dict[tuple[ir.Node, ir.Value], ir.Value] = {}
        for value in self.matches.stand_ins:
            producer = value.producer()
            if producer not in self.fallback_nodes:
                continue
            for reader in self.ours.readers.get(value, []):
                twin = self.matches.nodes.get(reader)
                for read in () if twin is None else twin.inputs:
                    if read is not None and self.theirs.core(read) is self.matches.values[value]:
                        assert twin is not None
                        found[twin, read] = value
        return found

    def _is_input_copy(self, node: ir.Node) -> bool:
        """Return True for pass-through nodes that only read graph inputs: both sides keep their own."""
        while is_pass_through(node):
            source = node.inputs[0]
            assert source is not None
            producer = source.producer()
            if producer is None:
                return source in self.reference.inputs
            node = producer
        return False

    def _inputs(self) -> dict[ir.Value, ir.Value]:
        made: dict[ir.Value, ir.Value] = {}
        for value in self.reference.inputs:
            name = self.assembler.value_name(value.name or "input")
            made[value] = ir.Value(name=name, type=value.type, shape=value.shape)
        return made

    def run(self) -> Simulated:
        """Assemble and return the model."""
        outputs: list[ir.Value] = []
        for value in self.reference.outputs:
            made = self.assembler.resolve(self._output_key(value), self.recipe)[0]
            assert made is not None
            outputs.append(self._named_output(made, value, outputs))
        sources = [self.pair.reference.ir, self.pair.canonical]
        model = self.assembler.finish(list(self.inputs.values()), outputs, sources, "plan")
        halves = {v.name or "": layer for v, layer in self.half_values.items()}
        return Simulated(model, halves)

    def _named_output(self, made: ir.Value, value: ir.Value, outputs: list[ir.Value]) -> ir.Value:
        result = self._as_type(made, made.dtype, value.dtype)
        assert result is not None
        if result.producer() is None or result in outputs:
            result = self.assembler.emit("Identity", [result], f"{value.name}_copy")
        result.name = value.name
        result.type = value.type if value.type is not None else result.type
        if result.shape is None:
            result.shape = value.shape
        return result

    def _output_key(self, value: ir.Value) -> Hashable:
        producer = value.producer()
        if producer is None or producer in self.fallback_nodes or producer not in self.names:
            return ("reference", value)
        twin = self.pair.pairing.outputs.get(value.name or "")
        for candidate in self.pair.canonical.graph.outputs:
            if candidate.name == twin:
                return ("candidate", candidate)
        return ("border", value)

    def recipe(self, key: Hashable) -> Recipe:
        """Return how to make a key; the kinds are explained at each method."""
        assert isinstance(key, tuple)
        kind, item = key
        methods: dict[str, Callable[[Any], Recipe]] = {
            "reference": self._reference_value,
            "reference-node": self._reference_node,
            "half": self._half_value,
            "border": self._border_value,
            "candidate": self._candidate_value,
            "candidate-node": self._candidate_node,
        }
        return methods[kind](item)

    def _reference_value(self, value: ir.Value) -> Recipe:
        """A reference tensor as the fallback layers store it."""
        if value in self.inputs:
            if not (self.is_half and is_float(value) and value.dtype != ir.DataType.FLOAT16):
                return Recipe((), lambda _: (self.inputs[value],))
            return Recipe((), lambda _: (self._round(self.inputs[value], value.name or "input", ""),))
        if is_constant(value):
            return Recipe((), lambda _: (self._constant(value),))
        node = value.producer()
        assert node is not None, f"value {value.name} has no producer"
        index = value.index()
        assert index is not None
        return Recipe((("reference-node", node),), lambda made: (made[0][index],))

    def _reference_node(self, node: ir.Node) -> Recipe:
        """A copy of a reference node with rounded outputs."""
        values = [*node.inputs, *captured_values(node)]
        needs = tuple(self._read_key(v, node) for v in values if v is not None)

        def make(made: Sequence[Made]) -> Made:
            resolved = iter(made)
            inputs = [None if v is None else next(resolved)[0] for v in values]
            copies = self.assembler.copy_node(node, inputs, suffix="" if node in self.names else "_side")
            return tuple(self._stored(node, old, new) for old, new in zip(node.outputs, copies, strict=True))

        return Recipe(needs, make)

    def _read_key(self, value: ir.Value, reader: ir.Node) -> Hashable:
        """Return the form in which a fallback node reads a reference tensor."""
        producer = value.producer()
        if producer is None or producer not in self.names:
            if self.plan.rule == "nodes-to-exclude" and value in self.inputs and self._stays_quantized(value):
                return ("border", value)
            return ("reference", value)
        if producer in self.fallback_nodes:
            if self.plan.rule == "nodes-to-exclude" and self._stays_quantized(value):
                return ("border", value)
            return ("reference", value)
        if self.names[producer] == self.names.get(reader):
            return ("reference", value)
        core = self.ours.core(value)
        if core not in self.matches.values or core in self.matches.inner:
            return ("reference", value)  # unpaired: the reference's own computation stands in
        return ("half" if self.is_half else "border", value)

    def _stays_quantized(self, value: ir.Value) -> bool:
        twin = self.matches.values.get(self.ours.core(value))
        if twin is None or nearest_storage(self.theirs, twin) is None:
            return False
        return any(u.node in self.names and u.node not in self.fallback_nodes for u in value.uses())

    def _half_value(self, value: ir.Value) -> Recipe:
        """A candidate tensor dequantized into half precision."""
        name = f"{value.name}_read"
        if value.dtype == ir.DataType.FLOAT16:
            return Recipe((("border", value),), lambda made: (made[0][0],))
        return Recipe((("border", value),), lambda made: (self._round(made[0][0], name, ""),))

    def _border_value(self, value: ir.Value) -> Recipe:
        """A reference tensor as the candidate stores it, in the reference's layout."""
        twin = self.matches.values.get(self.ours.core(value))
        if twin is None:
            raise PairingError(
                "unpaired_border",
                f"Tensor '{value.name}' has no candidate twin, so no plan can end there",
                where=value.name or "",
                hint="Upload a name map or choose other layers",
            )
        storage = nearest_storage(self.theirs, twin)
        stored = twin if storage is None else storage.dequantized
        layout = None if storage is None else storage.permutation

        def make(made: Sequence[Made]) -> Made:
            result = made[0][0]
            if layout is not None:
                inverse = ir.AttrInt64s("perm", [int(i) for i in np.argsort(layout)])
                result = self.assembler.emit("Transpose", [result], f"{value.name}_layout", [inverse])
            return (self._as_type(result, stored.dtype, value.dtype),)

        return Recipe((("candidate", stored),), make)

    def _candidate_value(self, value: ir.Value) -> Recipe:
        """A candidate value; where a fallback layer makes it, the reference's stands in."""
        replacement = self.replaced.get(value)
        core = self.theirs.core(value)
        if replacement is None and self.plan.rule == "hybrid" and is_float(value):
            replacement = self.replaced.get(core)
        if replacement is not None:
            source = replacement
            return Recipe(
                (("reference", source),), lambda made: (self._as_type(made[0][0], source.dtype, value.dtype),)
            )
        if is_constant(value):
            return Recipe((), lambda _: (self.assembler.constant(value),))
        node = value.producer()
        if node is None:
            return Recipe((), lambda _: (self._candidate_input(value),))
        index = value.index()
        assert index is not None
        return Recipe((("candidate-node", node),), lambda made: (made[0][index],))

    def _as_type(
        self, value: ir.Value | None, have: ir.DataType | None, want: ir.DataType | None
    ) -> ir.Value | None:
        """Cast between the float types of the two graphs where they differ."""
        if value is None or have == want or have not in FLOAT_TYPES or want not in FLOAT_TYPES:
            return value
        attribute = ir.AttrInt64("to", want)
        return self.assembler.emit(
            "Cast", [value], f"{value.name}_as_{want.name.lower()}", [attribute], dtype=want
        )

    def _candidate_input(self, value: ir.Value) -> ir.Value:
        for ours, made in self.inputs.items():
            if self.matches.values.get(ours) is value:
                given = self._as_type(made, ours.dtype, value.dtype)
                assert given is not None
                return given
        raise PairingError(
            "wrong_input_name",
            f"The candidate's input '{value.name}' has no counterpart in the reference",
            where=value.name or "",
            hint="Export both models with the same inputs",
        )

    def _candidate_node(self, node: ir.Node) -> Recipe:
        """A copy of a candidate node."""
        values = [*node.inputs, *captured_values(node)]
        needs = tuple(
            ("reference", self.rewired[node, v]) if (node, v) in self.rewired else ("candidate", v)
            for v in values
            if v is not None
        )

        def make(made: Sequence[Made]) -> Made:
            resolved = iter(made)
            inputs = [None if v is None else next(resolved)[0] for v in values]
            if _is_int8_weight(node):
                inputs = self._as_uint8(node)
            return self.assembler.copy_node(node, inputs)

        return Recipe(needs, make)

    def _as_uint8(self, node: ir.Node) -> list[ir.Value | None]:
        """Return the inputs of a weight's DequantizeLinear with the same values written as uint8.

        Processors without VNNI add pairs of uint8 x int8 products in 16 bits and saturate, which no NPU does.
        With uint8 x uint8 onnxruntime takes exact kernels, so the simulation is the same on every machine.
        """
        integers, scale = node.inputs[0], node.inputs[1]
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        assert integers is not None
        assert scale is not None
        shifted = self.assembler.constant(integers, suffix="_uint8", change=_shift_to_uint8)
        if zero is not None:
            zero_point = self.assembler.constant(zero, suffix="_uint8", change=_shift_to_uint8)
        else:
            zero_point = self.assembler.constant(scale, suffix="_uint8_zero_point", change=_middle_of_uint8)
        return [shifted, self.assembler.constant(scale), zero_point]

    def _constant(self, value: ir.Value) -> ir.Value:
        if (
            self.is_half
            and value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
            and not self._is_parameter(value)
        ):
            return self.assembler.constant(value, suffix="_half", change=to_half)
        return self.assembler.constant(value, suffix="_reference")

    def _is_parameter(self, value: ir.Value) -> bool:
        """Return True for constants that steer an operator (Resize scales) and are not data."""
        return all(u.node.op_type in {"Resize", "Upsample"} for u in value.uses())

    def _stored(self, node: ir.Node, old: ir.Value, new: ir.Value | None) -> ir.Value | None:
        if (
            new is None
            or not self.is_half
            or node not in self.names
            or not is_float(old)
            or is_pass_through(node)
        ):
            return new
        if old.dtype == ir.DataType.FLOAT16 or not (old.uses() or old.is_graph_output()):
            return new
        if node.op_type in _ACCUMULATES and self._is_fused_inside(old):
            return new
        return self._round(new, f"{old.name}_half", self.names[node])

    def _is_fused_inside(self, value: ir.Value) -> bool:
        """Return True if only followers in the same layer read it and the candidate does not store it."""
        readers = {u.node for u in value.uses()}
        producer = value.producer()
        layer = None if producer is None else self.names.get(producer)
        twin = self.matches.values.get(self.ours.core(value))
        is_stored = (
            twin is not None
            and self.ours.core(value) not in self.matches.inner
            and twin in self.theirs.storage
        )
        return len(readers) == 1 and not is_stored and all(self.names.get(r) == layer for r in readers)

    def _round(self, value: ir.Value | None, name: str, layer: str) -> ir.Value:
        assert value is not None
        half = self.assembler.emit(
            "Cast", [value], f"{name}_float16", [ir.AttrInt64("to", ir.DataType.FLOAT16)]
        )
        back = self.assembler.emit(
            "Cast",
            [half],
            f"{name}_float32",
            [ir.AttrInt64("to", ir.DataType.FLOAT)],
            dtype=ir.DataType.FLOAT,
        )
        back.shape = value.shape
        if layer:
            self.half_values[back] = layer
        return back


def _is_int8_weight(node: ir.Node) -> bool:
    """Return True for the DequantizeLinear of an int8 weight that uint8 activations are multiplied with."""
    weight = node.inputs[0] if node.op_type == "DequantizeLinear" else None
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    if weight is None or not is_constant(weight) or weight.dtype != ir.DataType.INT8:
        return False
    if "block_size" in node.attributes or (zero is not None and not is_constant(zero)):
        return False
    uses = node.outputs[0].uses()
    return bool(uses) and all(u.idx == 1 and _reads_uint8(u.node) for u in uses)


def _reads_uint8(node: ir.Node) -> bool:
    source = node.inputs[0]
    producer = None if source is None else source.producer()
    if (
        node.op_type not in {"Conv", "Gemm", "MatMul"}
        or producer is None
        or producer.op_type != "DequantizeLinear"
    ):
        return False
    return producer.inputs[0] is not None and producer.inputs[0].dtype == ir.DataType.UINT8


def _shift_to_uint8(integers: Array) -> Array:
    return (integers.astype(np.int16) + 128).astype(np.uint8)


def _middle_of_uint8(scale: Array) -> Array:
    return np.full(scale.shape, 128, np.uint8)
