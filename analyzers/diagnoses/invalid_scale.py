"""Scales that no arithmetic survives: NaN, infinite, negative, or denormal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analyzers.evidence import ConstantPair, Evidence, Store
from analyzers.store_ranges import culprit, own_stores, range_repairs
from analyzers.suspicions import Detector, Source, Suspicion

_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect every store and constant with such a scale."""
    for store in own_stores(evidence):
        scales = [store.quantization.scale, *(r.quantization.scale for r in store.readers)]
        fault = next((f for f in map(fault_of, scales) if f), "")
        if fault:
            yield _store(evidence, store, fault)
    for constant in evidence.constants:
        stored = constant.quantization
        fault = "" if stored is None else fault_of(stored.scale)
        if fault and constant.role in ("weight", "bias") and np.any(constant.reference):
            yield _constant(constant, fault)


def fault_of(scale: NDArray[np.float32]) -> str:
    """Say what is wrong with a scale; "" where nothing is. Zero is another matter."""
    kinds = {
        "NaN": np.isnan(scale),
        "infinite": np.isinf(scale),
        "negative": scale < 0,
        "denormal": (scale > 0) & (scale < _SMALLEST_NORMAL),
    }
    return next((name for name, found in kinds.items() if np.any(found)), "")


def _store(evidence: Evidence, store: Store, fault: str) -> Suspicion:
    return Suspicion(
        cause="invalid_scale",
        layers=(culprit(evidence, store),),
        sources=(Source("store", store.tensor),),
        message=f"'{store.tensor}', made by '{store.node}', is stored with a {fault} scale",
        evidence={"tensor": store.tensor, "producer": store.node, "fault": fault},
        fix="Calibrate this tensor again; let the toolchain hold to a smallest range",
        specificity=95,
        is_fault=True,
        repairs=range_repairs(evidence, store),
    )


def _constant(constant: ConstantPair, fault: str) -> Suspicion:
    return Suspicion(
        cause="invalid_scale",
        layers=(constant.layer,),
        sources=(Source("weight" if constant.role == "weight" else "bias", constant.node),),
        message=f"The {constant.role} of '{constant.node}' is stored with a {fault} scale",
        evidence={"node": constant.node, "role": constant.role, "fault": fault},
        fix="Quantize the weights again; let the toolchain hold to a smallest scale",
        specificity=95,
        is_fault=True,
    )


ENTRY = Detector(
    name="invalid_scale",
    looks_at="scales of stored tensors and constants: NaN, infinite, negative, denormal",
    causes=("invalid_scale",),
    find=find,
)
