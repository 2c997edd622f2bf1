"""Layers that would have to leave INT8 and cannot go to FP16: their values end in infinity there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from analyzers.evidence import Evidence, Store
from analyzers.records import INPUT_LAYER
from analyzers.store_ranges import culprit, own_stores, requantized, seen_range
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion

LARGEST_HALF = 65504.0
# New samples go a little further than these.
NEARLY = 50000.0
# A normalization squares its input, or what is left without the mean; squares overflow from here on.
LARGEST_SQUARED = 255.9
_SQUARES = frozenset(
    "LayerNormalization SimplifiedLayerNormalization SkipLayerNormalization RMSNormalization "
    "InstanceNormalization GroupNormalization LpNormalization ReduceL2 ReduceSumSquare".split()
)
_FIX = (
    "Leave INT8 with FP32, BF16 or INT16, not with FP16; or scale the values down before they are squared or "
    "summed"
)


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stored tensors beyond the range of half precision, alone and with their neighbours."""
    unsafe = {store.tensor: store for store in own_stores(evidence) if _is_unsafe(evidence, store)}
    groups = [group for group in _neighbours(evidence, unsafe) if len(group) > 1]
    for group in [*groups, *([store] for store in unsafe.values())]:
        yield _suspicion(evidence, group)
    yield from _notices(evidence, set(unsafe))


def _largest(evidence: Evidence, tensor: str) -> float:
    seen = seen_range(evidence, tensor)
    return 0.0 if seen is None else max(abs(seen.low), abs(seen.high))


def is_beyond_half(evidence: Evidence, tensor: str) -> bool:
    """Tell whether half precision cannot hold a reference tensor."""
    return _largest(evidence, tensor) > LARGEST_HALF


def _squared(evidence: Evidence, store: Store) -> float:
    """Return the largest value that is squared inside the operator; 0 for those that square nothing."""
    operator, layer = evidence.operators.get(store.node), evidence.layers.get(store.layer)
    if operator is None or layer is None or operator.op_type not in _SQUARES:
        return 0.0
    spreads = []
    for tensor in layer.inputs:
        measured = evidence.measured.get(tensor)
        mean = 0.0 if measured is None else float(measured.pooled.whole.reference_mean)
        seen = seen_range(evidence, tensor)
        if seen is not None:
            spreads.append(max(abs(seen.low - mean), abs(seen.high - mean)))
    return max(spreads, default=0.0)


def _is_unsafe(evidence: Evidence, store: Store) -> bool:
    if store.layer == INPUT_LAYER:
        return False
    return is_beyond_half(evidence, store.tensor) or _squared(evidence, store) > LARGEST_SQUARED


def _neighbours(evidence: Evidence, unsafe: dict[str, Store]) -> list[list[Store]]:
    """Return the stores in groups that follow each other, topological."""
    groups: list[list[Store]] = []
    for store in unsafe.values():
        layer = evidence.layers.get(store.layer)
        read = set() if layer is None else set(layer.inputs)
        joined = [g for g in groups if any(other.tensor in read for other in g)]
        groups = [g for g in groups if g not in joined]
        groups.append([*(other for g in joined for other in g), store])
    return groups


def _suspicion(evidence: Evidence, group: Sequence[Store]) -> Suspicion:
    tensors = tuple(store.tensor for store in group)
    values = [_largest(evidence, tensor) for tensor in tensors]
    squares = [_squared(evidence, store) for store in group]
    words = [
        f"'{store.tensor}' reaches {value:.4g}"
        if value > LARGEST_HALF
        else f"'{store.tensor}' is made by squaring values up to {square:.4g}"
        for store, value, square in zip(group, values, squares, strict=True)
    ]
    return Suspicion(
        cause="fp16_overflow_risk",
        layers=tuple(dict.fromkeys(culprit(evidence, store) for store in group)),
        sources=tuple(Source("store", tensor) for tensor in tensors),
        message=(
            f"8 bits are too coarse here, and FP16 is no way out: {', '.join(words)}, and half precision "
            f"ends at {LARGEST_HALF:.0f}, so an FP16 fallback gives infinite values"
        ),
        evidence={
            "tensors": tensors,
            "largest": tuple(values),
            "largest_squared_input": tuple(squares),
            "largest_half": LARGEST_HALF,
        },
        fix=_FIX,
        specificity=57,
        is_fault=True,
        repairs=_in_16_bits(evidence, group),
    )


def _in_16_bits(evidence: Evidence, group: Sequence[Store]) -> tuple[Repair, ...]:
    changes = []
    for store in group:
        seen = seen_range(evidence, store.tensor)
        wide = None if seen is None else requantized(store.quantization, seen, bits=16)
        if wide is None:
            return ()
        changes.append(Change(Source("store", store.tensor), quantization=wide))
    return (Repair("stored in 16 bits", tuple(changes)),)


def _notices(evidence: Evidence, suspected: set[str]) -> Iterator[Suspicion]:
    """Say which other layers are near the end of half precision or beyond it."""
    near = {
        row.reference_tensor: (row.node, value)
        for row in evidence.comparison.layers
        if row.reference_tensor not in suspected
        and np.isfinite(value := _largest(evidence, row.reference_tensor))
        and value > NEARLY
    }
    if near:
        names = tuple(dict.fromkeys(node for node, _ in near.values()))
        largest = max(value for _, value in near.values())
        yield Suspicion(
            cause="fp16_overflow_risk",
            layers=(),
            sources=(),
            message=(
                f"{len(names)} operators have values near {LARGEST_HALF:.0f} or beyond it (up to "
                f"{largest:.4g}): {', '.join(names[:5])}. They are no candidates for FP16"
            ),
            evidence={"operators": names, "largest": largest, "largest_half": LARGEST_HALF},
            fix=_FIX,
            unproved="info",
        )


ENTRY = Detector(
    name="fp16_overflow_risk",
    looks_at="the largest values of the reference, also where they are squared, against half precision",
    causes=("fp16_overflow_risk",),
    find=find,
)
