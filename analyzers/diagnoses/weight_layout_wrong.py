"""Weights whose values are all there, but at other places: transposed, turned round, permuted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from analyzers.array_relations import Relation, find_relation
from analyzers.channel_maps import axis_names
from analyzers.constant_errors import Misfit, decibels
from analyzers.evidence import Evidence
from analyzers.suspicions import Detector, Suspicion
from analyzers.wrong_constants import quantized_anew, sources_of, wrong


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect weights that equal the reference's in another order."""
    for misfit, relation in relations(evidence).items():
        if relation is not None and relation.kind != "shift":
            yield _suspicion(evidence, misfit, relation)


@lru_cache(maxsize=1)
def relations(evidence: Evidence) -> dict[Misfit, Relation | None]:
    """Return the exact relation between both sides for every wrong weight."""
    return {misfit: _relation(misfit) for misfit in wrong(evidence, "weight")}


def _relation(misfit: Misfit) -> Relation | None:
    constant = misfit.constant
    is_stored = constant.quantization is not None and bool(np.all(misfit.step > 0))
    levels = (constant.reference / misfit.step, constant.candidate / misfit.step) if is_stored else None
    return find_relation(constant.reference, constant.candidate, levels, axis_names(constant))


def _suspicion(evidence: Evidence, misfit: Misfit, relation: Relation) -> Suspicion:
    constant = misfit.constant
    return Suspicion(
        cause="weight_layout_wrong",
        layers=(constant.layer,),
        sources=sources_of(evidence, constant.node),
        message=(
            f"The weight of '{constant.node}' is {relation.words}: then it equals the reference's to "
            f"{decibels(relation.unexplained):.0f} dB, as it is only to {misfit.sqnr_db:.1f} dB"
        ),
        evidence={
            "node": constant.node,
            "shape": constant.reference.shape,
            "relation": relation.words,
            "order": relation.order or None,
            "weight_sqnr_db": misfit.sqnr_db,
            "sqnr_db_if_undone": decibels(relation.unexplained),
            "integers_were_moved": relation.is_in_levels,
        },
        fix="Undo it where the weight is written, or tell the converter the layout of this layer",
        specificity=75,
        is_fault=True,
        repairs=quantized_anew(evidence, constant),
    )


ENTRY = Detector(
    name="weight_layout_wrong",
    looks_at="weights that are wrong, against every order of the reference's axes and channels",
    causes=("weight_layout_wrong",),
    find=find,
)
