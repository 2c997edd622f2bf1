"""A store without a range, as calibration leaves it for a tensor that never was active."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.evidence import Evidence
from analyzers.store_families import Family, families, for_all, spoiled_biases, with_biases
from analyzers.store_noise import own_db
from analyzers.store_ranges import (
    culprit,
    range_in,
    range_of,
    range_repairs,
    seen_range,
    was_inactive,
)
from analyzers.suspicions import Detector, Suspicion

# A range under this share of the values was not measured on anything like them.
VANISHING = 1e-4
# Dead in calibration, but well kept all the same: a default range happened to fit.
HARM_DB = 25.0


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stores with scale zero, with a vanishing range, and those calibrated on a dead tensor."""
    for family in families(evidence):
        store = family.head
        seen = seen_range(evidence, store.tensor)
        if seen is None or seen.span == 0:
            continue  # nothing to store: any scale will do
        scale = store.quantization.scale
        held = range_of(store.quantization)
        if np.any(scale == 0):
            count = int((scale == 0).sum())
            which = "the scale 0" if scale.ndim == 0 else f"the scale 0 in {count} of {scale.size} channels"
            yield _suspicion(evidence, family, f"is stored with {which}: it is dead at run time", 92)
        elif held is not None and held.span < VANISHING * seen.span:
            words = f"is stored with the range {held.words()} but reaches {seen.words()}"
            yield _suspicion(evidence, family, words, 92)
        elif was_inactive(evidence, store) and not own_db(evidence, store.tensor) >= HARM_DB:
            words = f"never was active in the calibration set but has values from {seen.words()} now"
            yield _suspicion(evidence, family, words, 91)


def _suspicion(evidence: Evidence, family: Family, words: str, specificity: int) -> Suspicion:
    store = family.head
    biases = spoiled_biases(evidence, family.stores)
    seen = seen_range(evidence, store.tensor)
    assert seen is not None
    scale = store.quantization.scale
    facts: dict[str, float | str | tuple[float, ...]] = {
        "tensor": store.tensor,
        "producer": store.node,
        "scale": float(scale.min()),
        "seen": (seen.low, seen.high),
    }
    calibrated = range_in(evidence.calibration.get(store.tensor))
    if calibrated is not None:
        facts["calibrated"] = (calibrated.low, calibrated.high)
    return Suspicion(
        cause="zero_range_scale",
        layers=(culprit(evidence, store),),
        sources=(*family.sources, *biases),
        message=f"'{store.tensor}' {words}",
        evidence=dict(facts),
        fix=(
            f"Calibrate with data that activate '{store.layer}', or give it a range by hand "
            f"({seen.words()}); let the toolchain hold to a smallest range"
        ),
        specificity=specificity,
        is_fault=True,
        repairs=with_biases(for_all(family, range_repairs(evidence, store)), biases),
    )


ENTRY = Detector(
    name="zero_range_scale",
    looks_at="scales of zero, vanishing ranges, and tensors that were never active in the calibration",
    causes=("zero_range_scale",),
    find=find,
)
