"""An activation that was deleted as if the store's range did its work, where the range does not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from analyzers.attributes import bounds_of
from analyzers.evidence import Evidence, Store
from analyzers.graph import node_name
from analyzers.levels import limits_of
from analyzers.operator_faults import OperatorFault, operator_faults
from analyzers.records import Fact, Quantization
from analyzers.store_ranges import range_of, seen_range, step_of
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion

_ACTIVATIONS = frozenset(
    "Relu Clip LeakyRelu PRelu Elu Selu Celu ThresholdedRelu Sigmoid HardSigmoid HardSwish Tanh Softplus "
    "Softsign Mish Gelu Swish".split()
)


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect activations without a counterpart in layers that compute something else without them."""
    for fault in operator_faults(evidence):
        lost = [n for n in fault.parts.lost if n.op_type in _ACTIVATIONS]
        if lost and not _is_done_by_store(evidence.stores.get(fault.tensor), lost[-1]):
            yield _suspicion(evidence, fault, lost[-1])


def _is_done_by_store(store: Store | None, node: ir.Node) -> bool:
    """Tell whether the store's range lets nothing pass that the activation holds back."""
    held = None if store is None else range_of(store.quantization)
    step = None if store is None else step_of(store.quantization)
    bounds = _bounds(node)
    if held is None or step is None or bounds is None:
        return False
    return held.low >= bounds[0] - step / 2 and held.high <= bounds[1] + step / 2


def _suspicion(evidence: Evidence, fault: OperatorFault, node: ir.Node) -> Suspicion:
    name, bounds = node_name(node), _bounds(node)
    store = evidence.stores.get(fault.tensor)
    held = None if store is None else range_of(store.quantization)
    seen = seen_range(evidence, fault.tensor)
    facts: dict[str, Fact] = {
        "tensor": fault.tensor,
        "activation": node.op_type,
        "operator_sqnr_db": fault.operator_db,
        "isolated_sqnr_db": fault.isolated_db,
    }
    leak = f"The candidate has nothing that computes {node.op_type} '{name}'"
    repairs: tuple[Repair, ...] = ()
    if bounds is not None:
        facts["bounds"] = bounds
    if held is not None and bounds is not None and store is not None:
        facts["range"] = (held.low, held.high)
        leak += (
            f", and '{fault.tensor}' is stored with the range {held.words()}, so values beyond "
            f"{_words(bounds)} leak through"
        )
        stored = _saturating(store.quantization, bounds, None if seen is None else seen.high)
        if stored is not None:
            how = f"stored with the range {_words(bounds)}, which then does the activation's work"
            repairs = (Repair(how, (Change(Source("store", fault.tensor), quantization=stored),)),)
    return Suspicion(
        cause="activation_function_lost",
        layers=(name,),
        sources=fault.sources,
        message=f"{leak}; {fault.numbers}",
        evidence=facts,
        fix=(
            f"Keep {node.op_type} '{name}' in the quantized graph"
            + (f", or store '{fault.tensor}' with the range {_words(bounds)}" if bounds is not None else "")
        ),
        specificity=76,
        is_fault=True,
        repairs=repairs,
    )


def _bounds(node: ir.Node) -> tuple[float, float] | None:
    """Return the values between which the activation lets pass, if saturation can do its work."""
    return bounds_of(node) if node.op_type in {"Relu", "Clip"} else None


def _words(bounds: tuple[float, float]) -> str:
    low, high = bounds
    if math.isinf(high):
        return f"{low:g} (from below)"
    return f"{low:g} .. {high:g}"


def _saturating(
    quantization: Quantization, bounds: tuple[float, float], highest: float | None
) -> Quantization | None:
    """Return a store whose range ends where the activation does."""
    limits = limits_of(quantization.dtype)
    high = bounds[1] if math.isfinite(bounds[1]) else highest
    if limits is None or quantization.scale.ndim or high is None or not high > bounds[0] or bounds[0] > 0:
        return None
    levels = limits[1] - limits[0]
    scale = np.float32((high - bounds[0]) / levels)
    zero = limits[0] - round(bounds[0] / float(scale))
    return Quantization(np.asarray(scale), np.asarray(zero, dtype=np.int64), quantization.dtype)


ENTRY = Detector(
    name="activation_function_lost",
    looks_at="activations without a counterpart, and whether the range of the store does their work",
    causes=("activation_function_lost",),
    find=find,
)
