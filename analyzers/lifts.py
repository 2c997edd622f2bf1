"""What-if models: the candidate with some of its sources lifted or changed (DESIGN section 1).

Causes are tested by lifts. A lifted source is computed as in the reference and read unquantized by all; a
changed one is stored or computed with other parameters, which simulates a fix that is cheaper than FP16.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import onnx_ir as ir

from analyzers.assembly import Recipe
from analyzers.evidence import ConstantPair
from analyzers.layers import is_pass_through
from analyzers.levels import limits_of
from analyzers.levels import quantize as to_codes
from analyzers.project import Pair
from analyzers.records import Array, Plan, Quantization
from analyzers.simulate import Simulation
from analyzers.skeleton import Storage, dequantize
from analyzers.suspicions import Change


class UnknownSourceError(ValueError):
    """A change names a source that the models do not have."""


def changed_model(pair: Pair, changes: Sequence[Change], constants: Sequence[ConstantPair]) -> ir.Model:
    """Return the candidate with these changes; inputs, outputs and their names are the reference's.

    A changed store takes those of pass-through operators behind it along, which have its parameters.

    Args:
        pair: Reference and candidate.
        changes: What to change, each source once.
        constants: The constants that exist on both sides.

    Raises:
        UnknownSourceError: There is no such store, constant or layer.
        PairingError: A border has no paired tensor.
    """
    layers = frozenset(c.source.name for c in changes if c.source.kind == "layer")
    others = [c for c in changes if c.source.kind != "layer"]
    return _Lifting(pair, layers, others, constants).run().model


class _Lifting(Simulation):
    """Assembles the hybrid of some layers, and looks at each candidate value for a change."""

    def __init__(
        self,
        pair: Pair,
        layers: frozenset[str],
        changes: Sequence[Change],
        constants: Sequence[ConstantPair],
    ) -> None:
        self._layers = layers
        super().__init__(pair, Plan(layers, "fp32", "hybrid"))
        self._stores: dict[ir.Value, Change] = {}
        self._constants: dict[str, Array] = {}
        self._added: dict[Hashable, ir.Value] = {}
        by_name = _reference_values(pair)
        for change in changes:
            if change.source.kind == "store":
                for tensor in self._same_store(by_name.get(change.source.name)):
                    self._stores[self._twin(tensor, change.source.name)] = change
            else:
                self._constants.update(_replacements(change, constants))

    def _fallback_nodes(self) -> frozenset[ir.Node]:
        """Return the nodes that compute as in the reference, lifted pass-through operators among them."""
        own = {node for node, name in self.names.items() if name in self._layers}
        return super()._fallback_nodes() | own

    def _same_store(self, value: ir.Value | None) -> list[ir.Value | None]:
        """Return a tensor and those that pass-through operators make of it under the same parameters."""
        found: list[ir.Value | None] = [value]
        frontier = [] if value is None else [value]
        while frontier:
            current = frontier.pop()
            for reader in self.ours.readers.get(self.ours.core(current), []):
                output = reader.outputs[0]
                if is_pass_through(reader) and self._is_stored_alike(current, output):
                    found.append(output)
                    frontier.append(output)
        return found

    def _is_stored_alike(self, first: ir.Value, second: ir.Value) -> bool:
        a, b = self._storages(first), self._storages(second)
        return bool(a) and bool(b) and same(a[0].quantization, b[0].quantization)

    def _storages(self, value: ir.Value) -> list[Storage]:
        twin = self.matches.values.get(self.ours.core(value))
        return [] if twin is None else self.theirs.storage.get(twin, [])

    def _twin(self, value: ir.Value | None, wanted: str) -> ir.Value:
        twin = None if value is None else self.matches.values.get(self.ours.core(value))
        if twin is None or twin not in self.theirs.storage:
            raise UnknownSourceError(f"the candidate does not store '{wanted}'")
        return twin

    def _candidate_value(self, value: ir.Value) -> Recipe:
        known = self._constants.get(value.name or "")
        if known is not None:
            return Recipe((), lambda _: (self._array(value, known),))
        core = self.theirs.core(value)
        change = self._stores.get(core)
        if change is None or core is value or not _is_read_back(value):
            return super()._candidate_value(value)
        source = _before(value)
        permutation = _layout_of(self.theirs.storage[core], value)
        if change.quantization is None:
            return Recipe((("candidate", source),), lambda made: (self._saturated(core, source, made[0][0]),))
        stored = change.quantization
        return Recipe(
            (("candidate", source),),
            lambda made: (self._stored_anew(made[0][0], stored, value, permutation),),
        )

    def _saturated(self, core: ir.Value, source: ir.Value, made: ir.Value | None) -> ir.Value | None:
        """Apply what the candidate left to the saturation of the store that is lifted."""
        absorbed = self._absorbed(core)
        if made is None or absorbed is None:
            return made
        key = (core, source, "saturated")
        if key not in self._added:
            low, high = (
                None if b is None else self.assembler.array(b, f"{source.name}_bound") for b in absorbed
            )
            self._added[key] = self.assembler.emit(
                "Clip", [made, low, high], f"{source.name}_saturated", dtype=source.dtype
            )
        return self._added[key]

    def _absorbed(self, core: ir.Value) -> tuple[Array | None, Array | None] | None:
        """Return the bounds of the reference's activation that the candidate has no operator for."""
        for ours, theirs in self.matches.values.items():
            if theirs is not core or ours in self.matches.inner:
                continue
            node = ours.producer()
            if node is None or node in self.matches.nodes:
                return None
            if node.op_type == "Relu":
                return np.array(0, np.float32), None
            if node.op_type == "Clip":
                bounds = [v.const_value for v in node.inputs[1:] if v is not None]
                arrays = [np.asarray(b.numpy()) for b in bounds if b is not None]
                if len(arrays) == 2 and len(node.inputs) == 3:
                    return arrays[0], arrays[1]
        return None

    def _stored_anew(
        self,
        made: ir.Value | None,
        stored: Quantization,
        value: ir.Value,
        permutation: tuple[int, ...] | None,
    ) -> ir.Value:
        """Quantize and dequantize with other parameters, in arithmetic that every type has.

        A 16-bit QuantizeLinear needs a newer opset than the models may have, so the levels are computed:
        round, clip, scale.
        """
        assert made is not None
        key = (value, "stored")
        if key in self._added:
            return self._added[key]
        limits = limits_of(stored.dtype)
        assert limits is not None
        shape = _broadcast_shape(stored, value, permutation)
        scale = stored.scale.astype(np.float32).reshape(shape)
        zero = stored.zero_point.astype(np.float32).reshape(shape)
        name = f"{value.name}_anew"
        emit, array = self.assembler.emit, self.assembler.array
        scaled = emit("Div", [made, array(scale, f"{name}_scale")], f"{name}_scaled")
        rounded = emit("Round", [scaled], f"{name}_rounded")
        low, high = (array((limit - zero).astype(np.float32), f"{name}_bound") for limit in limits)
        clipped = emit("Min", [emit("Max", [rounded, low], f"{name}_low"), high], f"{name}_clipped")
        result = emit("Mul", [clipped, array(scale, f"{name}_scale")], name, dtype=value.dtype)
        self._added[key] = result
        return result

    def _array(self, value: ir.Value, array: Array) -> ir.Value:
        if value not in self._added:
            dtype = np.float32 if value.dtype is None else value.dtype.numpy()
            self._added[value] = self.assembler.array(array.astype(dtype), f"{value.name}_changed")
        return self._added[value]


def same(a: Quantization, b: Quantization) -> bool:
    """Tell whether two tensors are stored with the same parameters."""
    return (
        a.dtype == b.dtype and np.array_equal(a.scale, b.scale) and np.array_equal(a.zero_point, b.zero_point)
    )


def _reference_values(pair: Pair) -> dict[str, ir.Value]:
    graph = pair.reference.ir.graph
    return {v.name or "": v for v in graph.inputs} | {v.name or "": v for n in graph for v in n.outputs}


def _replacements(change: Change, constants: Sequence[ConstantPair]) -> dict[str, Array]:
    """Return candidate value -> what to compute with instead."""
    source = change.source
    found: dict[str, Array] = {}
    for constant in constants:
        if constant.node != source.name or constant.role != source.kind:
            continue
        array = constant.reference if change.array is None else change.array
        if change.quantization is not None:
            array = dequantize(to_codes(array, change.quantization), change.quantization)
        found[constant.value] = array
    if not found:
        raise UnknownSourceError(f"'{source.name}' has no {source.kind} on both sides")
    return found


def _is_read_back(value: ir.Value) -> bool:
    node = value.producer()
    if node is None or node.op_type != "DequantizeLinear" or node.inputs[0] is None:
        return False
    quantizer = node.inputs[0].producer()
    return quantizer is not None and quantizer.op_type == "QuantizeLinear"


def _before(value: ir.Value) -> ir.Value:
    """Return what was quantized."""
    node = value.producer()
    assert node is not None
    assert node.inputs[0] is not None
    quantizer = node.inputs[0].producer()
    assert quantizer is not None
    assert quantizer.inputs[0] is not None
    return quantizer.inputs[0]


def _layout_of(storages: Sequence[Storage], value: ir.Value) -> tuple[int, ...] | None:
    return next((s.permutation for s in storages if s.dequantized is value), None)


def _broadcast_shape(
    stored: Quantization, value: ir.Value, permutation: tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the shape of the parameters so that they broadcast; axes are the reference's."""
    if stored.scale.ndim == 0:
        return ()
    rank = len(value.shape) if value.shape is not None else 4
    axis = (stored.axis or 0) % rank
    place = axis if permutation is None else permutation.index(axis)
    return tuple(-1 if d == place else 1 for d in range(rank))
