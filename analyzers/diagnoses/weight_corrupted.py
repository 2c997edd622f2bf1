"""Weights that are not the reference's: flipped bits, random bytes, another training run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.constant_errors import Misfit
from analyzers.diagnoses.weight_layout_wrong import relations
from analyzers.evidence import Evidence
from analyzers.records import Fact
from analyzers.suspicions import Detector, Suspicion
from analyzers.wrong_constants import quantized_anew, sources_of, wrong

_SPARSE = 0.2  # share of wrong elements up to which single ones are wrong, not the tensor


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect every weight that is beyond honest rounding."""
    for misfit in wrong(evidence, "weight"):
        yield _suspicion(evidence, misfit)


def _suspicion(evidence: Evidence, misfit: Misfit) -> Suspicion:
    constant = misfit.constant
    facts: dict[str, Fact] = {
        "node": constant.node,
        "weight_sqnr_db": misfit.sqnr_db,
        "rounding_sqnr_db": misfit.rounding_db,
        "wrong_share": misfit.off_share,
        "correlation": correlation(misfit),
        "largest_error_in_steps": _largest(misfit),
    }
    relation = relations(evidence)[misfit]
    shift = relation.words if relation is not None and relation.kind == "shift" else ""
    facts["relation"] = shift
    return Suspicion(
        cause="weight_corrupted",
        layers=(constant.layer,),
        sources=sources_of(evidence, constant.node),
        message=(
            f"The weight of '{constant.node}' is not the reference's: {_how(misfit, shift)}, "
            f"{misfit.sqnr_db:.1f} dB where rounding would leave {misfit.rounding_db:.1f} dB"
        ),
        evidence=facts,
        fix="Convert this layer again from the reference, and compare the weights in the file",
        specificity=65 if shift else 50,
        is_fault=True,
        repairs=quantized_anew(evidence, constant),
    )


def _how(misfit: Misfit, shift: str) -> str:
    if shift:
        return f"it is {shift}"
    if misfit.off_share <= _SPARSE:
        return f"{misfit.off_share:.1%} of its values are wrong, by up to {_largest(misfit):.0f} steps"
    return f"{misfit.off_share:.0%} of its values are wrong, with a correlation of {correlation(misfit):.2f}"


def correlation(misfit: Misfit) -> float:
    """Return the cosine between both sides."""
    a, b = misfit.constant.reference, misfit.constant.candidate
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum() / norm) if norm > 0 and np.isfinite(norm) else 0.0


def _largest(misfit: Misfit) -> float:
    step = np.where(misfit.step > 0, misfit.step, np.inf)
    return float(np.nan_to_num(np.abs(misfit.error) / step).max(initial=0.0))


ENTRY = Detector(
    name="weight_corrupted",
    looks_at="each weight against the reference's, element by element, beyond rounding and clipping",
    causes=("weight_corrupted",),
    find=find,
)
