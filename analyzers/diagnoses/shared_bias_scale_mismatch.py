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
    for misfit in wrong(evidence, "bias"):
        owner = _owner(misfit, biases)
        if owner is not None:
            yield _suspicion(evidence, misfit, owner)


def _owner(misfit: Misfit, biases: dict[str, ConstantPair]) -> ConstantPair | None:
    """Return the reader that the integers were made for; the operator itself where there is just no other."""
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


def _suspicion(evidence: Evidence, misfit: Misfit, owner: ConstantPair) -> Suspicion:
    constant = misfit.constant
    assert constant.quantization is not None
    assert owner.quantization is not None
    factors = np.broadcast_to(constant.quantization.scale, owner.quantization.scale.shape)
    factor = float(np.median(factors / owner.quantization.scale))
    form = constant.quantization
    return Suspicion(
        cause="shared_bias_scale_mismatch",
        layers=(constant.layer,),
        sources=sources_of(evidence, constant.node),
        message=(
            f"The bias of '{constant.node}' is shared by {', '.join(constant.shared_by)} and was quantized "
            f"for '{owner.node}': here a step is worth {factor:.3g} times as much"
        ),
        evidence={
            "node": constant.node,
            "shared_by": constant.shared_by,
            "quantized_for": owner.node,
            "factor": factor,
            "bias_sqnr_db": misfit.sqnr_db,
        },
        fix="Give each operator a bias of its own, quantized with its input scale times its weight scale",
        specificity=82,
        is_fault=True,
        repairs=(
            Repair(
                f"'{constant.node}' with a bias of its own in its own scale",
                (Change(Source("bias", constant.node), quantization=form),),
            ),
        ),
    )


ENTRY = Detector(
    name="shared_bias_scale_mismatch",
    looks_at="integer biases that several operators read, with the scales of each",
    causes=("shared_bias_scale_mismatch",),
    find=find,
)
