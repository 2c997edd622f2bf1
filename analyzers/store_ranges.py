"""What range a store can hold, and what range the tensor in it has."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from analyzers import moments
from analyzers.evidence import Evidence, Store
from analyzers.graph import node_name
from analyzers.levels import limits_of
from analyzers.lifts import same
from analyzers.moments import Moments
from analyzers.records import INPUT_LAYER, Quantization
from analyzers.suspicions import Change, Repair, Source

# Operators whose values lie between 0 and 1 whatever they are given.
BETWEEN_0_AND_1 = frozenset({"Sigmoid", "HardSigmoid", "Softmax"})


@dataclass(frozen=True, slots=True)
class Range:
    """A closed range of real values."""

    low: float
    high: float

    @property
    def span(self) -> float:
        """Its width with zero inside, which every integer store holds exactly."""
        return max(self.high, 0.0) - min(self.low, 0.0)

    def words(self) -> str:
        """Return it for a message."""
        return f"{self.low:.3g} .. {self.high:.3g}"


def step_of(quantization: Quantization) -> float | None:
    """Return the distance of two levels; None where there are several or none that means something."""
    if quantization.scale.ndim or limits_of(quantization.dtype) is None:
        return None
    step = float(quantization.scale)
    return step if math.isfinite(step) and step > 0 else None


def range_of(quantization: Quantization) -> Range | None:
    """Return the lowest and the highest value that a store with a single scale holds."""
    step, limits = step_of(quantization), limits_of(quantization.dtype)
    if step is None or limits is None:
        return None
    zero = int(quantization.zero_point)
    return Range((limits[0] - zero) * step, (limits[1] - zero) * step)


def bits_of(quantization: Quantization) -> int | None:
    """Return how many bits a value takes; None where it is no integer."""
    limits = limits_of(quantization.dtype)
    return None if limits is None else int(limits[1] - limits[0] + 1).bit_length() - 1


def range_in(found: Moments | None) -> Range | None:
    """Return the range of the reference's finite values; None where there are none."""
    if found is None or float(found.count) == 0:
        return None
    low, high = found.table[moments.REFERENCE_MIN], found.table[moments.REFERENCE_MAX]
    return Range(float(low), float(high))


def seen_range(evidence: Evidence, tensor: str) -> Range | None:
    """Return the range of a reference tensor over all compared samples."""
    measured = evidence.measured.get(tensor)
    return None if measured is None else range_in(measured.pooled.whole)


def usual_use(evidence: Evidence) -> float:
    """Return the median share of their ranges that the tensors of the network use; 1 without any."""
    shares = []
    for store in own_stores(evidence):
        held, seen = range_of(store.quantization), seen_range(evidence, store.tensor)
        if held is not None and seen is not None and seen.span > 0:
            shares.append(min(1.0, seen.span / held.span))
    return float(np.median(shares)) if shares else 1.0


def was_inactive(evidence: Evidence, store: Store) -> bool:
    """Tell whether a tensor held one value all through the calibration and does not now.

    One that was only faint is clipped, which is another matter.
    """
    calibrated = range_in(evidence.calibration.get(store.tensor))
    seen = seen_range(evidence, store.tensor)
    if calibrated is None or seen is None:
        return False
    return calibrated.high == calibrated.low and seen.high > seen.low


def own_stores(evidence: Evidence) -> tuple[Store, ...]:
    """Return the stores that somebody chose: not those which a pass-through operator hands on."""
    handed_on = {t for t in evidence.stores if _is_handed_on(evidence, t)}
    return tuple(store for tensor, store in evidence.stores.items() if tensor not in handed_on)


def _is_handed_on(evidence: Evidence, tensor: str) -> bool:
    store = evidence.stores[tensor]
    layer = evidence.layers.get(store.layer)
    if layer is None or not layer.is_pass_through:
        return False
    before = stored_before(evidence, tensor)
    return before is not None and same(evidence.stores[before].quantization, store.quantization)


def stored_before(evidence: Evidence, tensor: str) -> str | None:
    """Return the nearest stored tensor that pass-through operators make this one of, itself excluded."""
    producers = producers_of(evidence)
    node = producers.get(tensor)
    while node is not None:
        layer = evidence.layers.get(_layer_name(evidence, node))
        if layer is None or not layer.is_pass_through or not node.inputs or node.inputs[0] is None:
            return None
        tensor = node.inputs[0].name or ""
        if tensor in evidence.stores:
            return tensor
        node = producers.get(tensor)
    return None


def producers_of(evidence: Evidence) -> dict[str, ir.Node]:
    """Return the node that makes each reference tensor of the main graph."""
    graph = evidence.pair.reference.ir.graph
    return {value.name or "": node for node in graph for value in node.outputs}


def _layer_name(evidence: Evidence, node: ir.Node) -> str:
    operator = evidence.operators.get(node_name(node))
    return "" if operator is None else operator.layer


def culprit(evidence: Evidence, store: Store) -> str:
    """Return what to blame for a store: the layer, or the operator where the tensor is inside a layer."""
    layer = evidence.layers.get(store.layer)
    if layer is None or store.layer == INPUT_LAYER or store.tensor in layer.outputs:
        return store.layer
    return store.node


def requantized(quantization: Quantization, wanted: Range, *, bits: int | None = None) -> Quantization | None:
    """Return a store for this range in the same style; None where the range is a single point.

    Args:
        quantization: What is used now: its type, and whether it is symmetric, are kept.
        wanted: The range to hold.
        bits: Take a type of this width instead.
    """
    dtype = quantization.dtype
    if bits is not None:
        dtype = f"uint{bits}" if dtype.startswith("u") else f"int{bits}"
    limits = limits_of(dtype)
    if limits is None or wanted.span <= 0 or not math.isfinite(wanted.span):
        return None
    lowest, highest = limits
    is_symmetric = lowest < 0 and not np.any(quantization.zero_point)
    if is_symmetric:
        scale, zero = max(abs(wanted.low), abs(wanted.high)) / highest, 0
    else:
        scale = wanted.span / (highest - lowest)
        zero = int(np.clip(round(lowest - min(wanted.low, 0.0) / scale), lowest, highest))
    return Quantization(np.array(scale, np.float32), np.array(zero, np.int64), dtype)


def range_repairs(evidence: Evidence, store: Store) -> tuple[Repair, ...]:
    """Return what is cheaper than a float layer: the right range, then 16 bits."""
    repairs: list[Repair] = []
    seen = seen_range(evidence, store.tensor)
    if seen is None:
        return ()
    if op_type_of(evidence, store) in BETWEEN_0_AND_1 and seen.span > 0.5:
        fixed = Range(0.0, 255 / 256)
        add_repair(repairs, store, fixed, "stored with the fixed range 0 .. 1 (scale 1/256 in 8 bits)")
    add_repair(repairs, store, seen, f"stored with the range that the samples have, {seen.words()}")
    if (bits_of(store.quantization) or 16) < 16:
        add_repair(repairs, store, seen, f"stored in 16 bits with the range {seen.words()}", bits=16)
    return tuple(repairs)


def add_repair(
    repairs: list[Repair], store: Store, wanted: Range, how: str, *, bits: int | None = None
) -> None:
    """Append the repair that stores a tensor with another range, where there is one."""
    quantization = requantized(store.quantization, wanted, bits=bits)
    if quantization is not None:
        change = Change(Source("store", store.tensor), quantization=quantization)
        repairs.append(Repair(how, (change,)))


def same_parameters(store: Store) -> Repair:
    """Return the repair that reads a tensor with the parameters that it is written with."""
    change = Change(Source("store", store.tensor), quantization=store.quantization)
    return Repair("read with the parameters that it is written with", (change,))


def op_type_of(evidence: Evidence, store: Store) -> str:
    """Return the type of the operator that makes the stored tensor."""
    operator = evidence.operators.get(store.node)
    return "" if operator is None else operator.op_type
