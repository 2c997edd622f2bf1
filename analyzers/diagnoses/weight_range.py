"""Weight scales that are far too large for the weights, so that few levels are left, or none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.constant_errors import Misfit, by_channel, misfits
from analyzers.evidence import Evidence
from analyzers.levels import limits_of
from analyzers.suspicions import Detector, Source, Suspicion
from analyzers.wrong_constants import MOST_NAMED, quantized_anew

# Honest scales come from the largest weight, which then stands at the end of the range; power-of-two scales
# lose up to half of it, asymmetric ranges of one sign another half. Less than an eighth is none of these.
LEAST_USED = 1 / 8


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect weights whose own scales are far larger than they need."""
    for misfit in misfits(evidence):
        stored = misfit.constant.quantization
        limits = None if stored is None else limits_of(stored.dtype)
        if misfit.constant.role != "weight" or stored is None or limits is None or stored.block_size:
            continue
        if misfit.is_beyond or not np.all(np.isfinite(misfit.step)) or np.any(misfit.step <= 0):
            continue
        axis = None if stored.scale.ndim == 0 else stored.axis
        used = by_channel(np.abs(misfit.constant.reference) / misfit.step, axis).max(axis=1)
        used = used / ((limits[1] - limits[0]) / 2)
        is_poor = (used < LEAST_USED) & (used > 0)
        if is_poor.any():
            yield _suspicion(evidence, misfit, np.flatnonzero(is_poor), float(used[is_poor].min()), axis)


def _suspicion(
    evidence: Evidence,
    misfit: Misfit,
    channels: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    used: float,
    axis: int | None,
) -> Suspicion:
    constant = misfit.constant
    where = "" if axis is None else f" of channel {', '.join(map(str, channels[:MOST_NAMED]))}"
    return Suspicion(
        cause="range_too_wide",
        layers=(constant.layer,),
        sources=(Source("weight", constant.node),),
        message=(
            f"The weight scale{where} of '{constant.node}' is far too large: the weights use {used:.2%} of "
            f"its range, which keeps {misfit.sqnr_db:.1f} dB"
        ),
        evidence={
            "node": constant.node,
            "channels": () if axis is None else tuple(int(i) for i in channels[:MOST_NAMED]),
            "least_used": used,
            "weight_sqnr_db": misfit.sqnr_db,
        },
        fix="Take the scale from the largest weight of the channel",
        specificity=57,
        is_fault=True,
        repairs=quantized_anew(evidence, constant),
    )


ENTRY = Detector(
    name="weight_range",
    looks_at="how much of its integer range each weight uses",
    causes=("range_too_wide",),
    find=find,
)
