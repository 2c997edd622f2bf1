"""A candidate that was made from other weights than the reference's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.consequences import consequences
from analyzers.constant_errors import misfits
from analyzers.diagnoses.weight_corrupted import correlation
from analyzers.diagnoses.weight_gain import gains_of
from analyzers.diagnoses.weight_layout_wrong import relations
from analyzers.evidence import Evidence
from analyzers.likeness import MULTIPLIES
from analyzers.suspicions import Detector, Source, Suspicion
from analyzers.wrong_constants import sources, wrong

# Layers whose weights must be wrong, of those that have any: one network has one checkpoint.
MOST_LAYERS = 0.6
FEWEST_LAYERS = 3
_FEWEST_WEIGHTS = 8  # fewer than that show nothing
# Weights of one network before and after more training still point the same way.
_RELATED = 0.5


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect the checkpoint if most weights are other weights, not changed ones."""
    weights = [
        m
        for m in misfits(evidence)
        if m.constant.role == "weight"
        and m.constant.op_type in MULTIPLIES
        and m.constant.reference.size >= _FEWEST_WEIGHTS
    ]
    others = {id(m) for m in wrong(evidence, "weight")}
    different = [m for m in weights if id(m) in others]
    if len(different) < max(FEWEST_LAYERS, MOST_LAYERS * len(weights)):
        return
    known = relations(evidence)
    different = [m for m in different if known[m] is None and gains_of(m, m.constant.channel_axis) is None]
    if len(different) < max(FEWEST_LAYERS, MOST_LAYERS * len(weights)):
        return
    likeness = float(np.median([correlation(m) for m in different]))
    what = (
        "another state of this network's training" if likeness >= _RELATED else "another network's training"
    )
    constants = [m.constant for m in misfits(evidence)]
    first = evidence.operators.get(different[0].constant.node)
    misled = consequences(evidence, first.outputs[0], with_itself=True) if first is not None else ()
    yield Suspicion(
        cause="different_checkpoint",
        layers=(),
        sources=(*sources(constants), *(Source("store", tensor) for tensor in misled)),
        message=(
            f"{len(different)} of {len(weights)} weights are not the reference's (median correlation "
            f"{likeness:.2f}): the candidate was made from {what}"
        ),
        evidence={
            "different_weights": len(different),
            "weights": len(weights),
            "median_correlation": likeness,
            "median_weight_sqnr_db": float(np.median([m.sqnr_db for m in different])),
        },
        fix="Convert the candidate again from the same checkpoint as the reference",
        specificity=68,
        is_fault=True,
        scope="network",
    )


ENTRY = Detector(
    name="different_checkpoint",
    looks_at="how many of the network's weights are other weights",
    causes=("different_checkpoint",),
    find=find,
)
