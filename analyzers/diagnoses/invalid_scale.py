"""Scales that no arithmetic survives: NaN, infinite, negative, or denormal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analyzers.evidence import ConstantPair, Evidence
from analyzers.store_families import Family, families, for_all, spoiled_biases, with_biases
from analyzers.store_ranges import culprit, range_repairs
from analyzers.suspicions import Detector, Source, Suspicion

_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect every store and constant with such a scale."""
    for family in families(evidence):
        scales = [r.quantization.scale for store in family.stores for r in store.readers]
        faults = [fault_of(scale) for scale in (family.head.quantization.scale, *scales)]
        if any(faults):
            yield _store(evidence, family, next(fault for fault in faults if fault))
    for constant in evidence.constants:
        stored = constant.quantization
        fault = "" if stored is None else fault_of(stored.scale)
        if fault == "negative" and constant.role == "weight":
            continue  # symmetric four bits of onnxruntime map the largest weight to -8, whatever its sign
        if fault and constant.role in ("weight", "bias") and np.any(constant.reference):
            if constant.role == "bias" and _has_it_from_input(constant):
                continue
            yield _constant(constant, fault)


def _has_it_from_input(constant: ConstantPair) -> bool:
    """Tell whether a bias has a bad scale only because the store that its operator reads has one."""
    return constant.input_scale is not None and fault_of(np.asarray(constant.input_scale)) != ""


def fault_of(scale: NDArray[np.float32]) -> str:
    """Say what is wrong with a scale; "" where nothing is. Zero is another matter."""
    kinds = {
        "NaN": np.isnan(scale),
        "infinite": np.isinf(scale),
        "negative": scale < 0,
        "denormal": (scale > 0) & (scale < _SMALLEST_NORMAL),
    }
    return next((name for name, found in kinds.items() if np.any(found)), "")


def _store(evidence: Evidence, family: Family, fault: str) -> Suspicion:
    store = family.head
    biases = spoiled_biases(evidence, family.stores)
    return Suspicion(
        cause="invalid_scale",
        layers=(culprit(evidence, store),),
        sources=(*family.sources, *biases),
        message=f"'{store.tensor}', made by '{store.node}', is stored with a {fault} scale",
        evidence={"tensor": store.tensor, "producer": store.node, "fault": fault},
        fix="Calibrate this tensor again; let the toolchain hold to a smallest range",
        specificity=95,
        is_fault=True,
        repairs=with_biases(for_all(family, range_repairs(evidence, store)), biases),
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
