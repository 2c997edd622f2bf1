"""Integer biases that were quantized for another operator than the one that reads them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.array_relations import UNEXPLAINED, Values, unexplained
from analyzers.constant_errors import Misfit, scales_of
from analyzers.evidence import ConstantPair, Evidence
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion
from analyzers.wrong_constants import sources_of, wrong


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect biases whose integers give the reference's values with the scales of another reader."""
    biases = {c.node: c for c in evidence.constants if c.role == "bias"}
    found: dict[tuple[str, ...], list[tuple[Misfit, ConstantPair]]] = {}
    for misfit in wrong(evidence, "bias"):
        owner = _owner(misfit, biases)
        if owner is not None:
            found.setdefault(misfit.constant.shared_by, []).append((misfit, owner))
    for readers in found.values():
        yield _suspicion(evidence, readers)


def _owner(misfit: Misfit, biases: dict[str, ConstantPair]) -> ConstantPair | None:
    """Return the other reader that the integers were made for."""
    constant = misfit.constant
    if constant.integers is None or constant.quantization is None:
        return None
    for name in constant.shared_by:
        other = biases.get(name)
        if other is None or other is constant:
            continue
        values = _with_scale_of(constant, other)
        if values is not None and unexplained(constant.reference, values) <= UNEXPLAINED:
            return other
    return None


def _with_scale_of(constant: ConstantPair, other: ConstantPair) -> Values | None:
    if other.quantization is None or constant.integers is None:
        return None
    scale = scales_of(other.quantization, constant.reference.shape)
    return None if scale is None else np.asarray(constant.integers * scale)


def _suspicion(evidence: Evidence, readers: list[tuple[Misfit, ConstantPair]]) -> Suspicion:
    constants = [m.constant for m, _ in readers]
    owner = readers[0][1]
    factors = [_factor(c, owner) for c in constants]
    where = ", ".join(f"'{c.node}' ({f:.3g} times)" for c, f in zip(constants, factors, strict=True))
    changes = tuple(Change(Source("bias", c.node), quantization=c.quantization) for c in constants)
    return Suspicion(
        cause="shared_bias_scale_mismatch",
        layers=tuple(dict.fromkeys(c.layer for c in constants)),
        sources=tuple(dict.fromkeys(s for c in constants for s in sources_of(evidence, c.node))),
        message=(
            f"The bias that {', '.join(owner.shared_by)} share was quantized for '{owner.node}'; its steps "
            f"are worth something else in {where}"
        ),
        evidence={
            "nodes": tuple(c.node for c in constants),
            "shared_by": owner.shared_by,
            "quantized_for": owner.node,
            "factors": tuple(factors),
            "bias_sqnr_db": tuple(m.sqnr_db for m, _ in readers),
        },
        fix="Give each operator a bias of its own, quantized with its input scale times its weight scale",
        specificity=82,
        is_fault=True,
        repairs=(Repair("A bias for each of them, quantized with its own scales", changes),),
    )


def _factor(constant: ConstantPair, owner: ConstantPair) -> float:
    """Return how much a step is worth here, compared with the operator that it was made for."""
    assert constant.quantization is not None
    assert owner.quantization is not None
    return float(np.median(constant.quantization.scale / owner.quantization.scale))


ENTRY = Detector(
    name="shared_bias_scale_mismatch",
    looks_at="integer biases that several operators read, with the scales of each",
    causes=("shared_bias_scale_mismatch",),
    find=find,
)
