"""The small negative side of SiLU, HardSwish, GELU and the like, with next to no levels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from analyzers.activations import lobe_of
from analyzers.evidence import Evidence, Look, Store
from analyzers.store_noise import decibels
from analyzers.store_ranges import own_stores, range_of, range_repairs, seen_range, step_of
from analyzers.suspicions import Detector, Source, Suspicion

FEWEST_LEVELS = 8.0
# Where few values are negative, or they are kept well enough, the lobe is not what hurts.
LEAST_SHARE = 0.2
COARSE_DB = 15.0
# The lobe alone is what is wrong: it is cut off.
MOST_NOISE = 0.9
_LOOKS = 8  # each look runs the reference again


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stores of activations whose negative values share a handful of levels."""
    coarse: list[tuple[float, Store, str]] = []
    for store in own_stores(evidence):
        lobe, step = lobe_of(evidence, store), step_of(store.quantization)
        seen, held = seen_range(evidence, store.tensor), range_of(store.quantization)
        if lobe and step is not None and seen is not None and held is not None and seen.low < 0:
            levels = max(0.0, -max(seen.low, held.low) / step)
            if levels < FEWEST_LEVELS:
                coarse.append((levels, store, lobe))
    coarse.sort(key=lambda item: item[0])
    for levels, store, lobe in coarse[:_LOOKS]:
        yield from _judge(evidence, store, lobe, levels)


def _judge(evidence: Evidence, store: Store, lobe: str, levels: float) -> Iterator[Suspicion]:
    share, ratio, noise_share = _negative_side(evidence.look_at_store(store.tensor))
    seen = seen_range(evidence, store.tensor)
    if not share >= LEAST_SHARE or not ratio < COARSE_DB or seen is None:
        return
    yield Suspicion(
        cause="negative_lobe",
        layers=(store.layer,),
        sources=(Source("store", store.tensor),),
        message=(
            f"{share:.0%} of the values of '{store.tensor}' lie in the negative lobe of {lobe}, "
            f"{seen.low:.3g} .. 0, which has {levels:.1f} levels of the store's range up to {seen.high:.3g}: "
            f"{ratio:.1f} dB there"
        ),
        evidence={
            "tensor": store.tensor,
            "activation": lobe,
            "levels": levels,
            "lowest": seen.low,
            "highest": seen.high,
            "negative_share": share,
            "negative_sqnr_db": ratio,
            "negative_share_of_noise": noise_share,
        },
        fix=(
            "Clip the range from above (percentile) so that the lobe gets levels, correct the shift of the "
            "negative side in the next bias, or store this tensor in 16 bits"
        ),
        specificity=63 if noise_share >= MOST_NOISE else 43,
        repairs=range_repairs(evidence, store),
    )


def _negative_side(looks: Sequence[Look]) -> tuple[float, float, float]:
    """Return the share of negative values, their SQNR in dB and their share of all noise; else nan."""
    count = negative = signal = noise = total = 0.0
    for look in looks:
        if look.stored is None or look.stored.shape != look.reference.shape:
            return math.nan, math.nan, math.nan
        mask = np.isfinite(look.reference) & np.isfinite(look.stored)
        below = mask & (look.reference < 0)
        values = look.reference[below].astype(np.float64)
        count += float(mask.sum())
        negative += float(values.size)
        signal += float(np.square(values).sum())
        noise += float(np.square(values - look.stored[below]).sum())
        total += float(np.square(look.reference[mask].astype(np.float64) - look.stored[mask]).sum())
    if count == 0 or total == 0:
        return math.nan, math.nan, math.nan
    return negative / count, decibels(signal, noise), noise / total


ENTRY = Detector(
    name="negative_lobe",
    looks_at="levels for the negative side of SiLU, HardSwish, GELU, PRelu and the like",
    causes=("negative_lobe",),
    find=find,
)
