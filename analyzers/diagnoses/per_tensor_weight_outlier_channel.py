"""One scale for all channels of a weight, set by a few channels that are much larger than the rest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analyzers.constant_errors import Misfit, by_channel, misfits
from analyzers.evidence import Evidence
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion
from analyzers.weight_forms import per_channel
from analyzers.wrong_constants import MOST_NAMED

# The largest channel over the median one. Trained layers reach four to eight; sixteen takes four of eight
# bits from half of the channels.
WIDE = 16.0
# Below this many steps up to the largest weight a channel has less than four bits.
STARVED_STEPS = 8.0
# Share of starved channels from which the layer suffers even where no single channel stands out.
MANY_STARVED = 0.25


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect weights with one scale whose channels differ much in size."""
    for misfit in misfits(evidence):
        constant = misfit.constant
        stored = constant.quantization
        if constant.role != "weight" or stored is None or stored.scale.ndim or constant.channel_axis is None:
            continue
        if misfit.is_beyond or not np.isfinite(stored.scale) or stored.scale <= 0:
            continue
        largest = np.abs(by_channel(constant.reference, constant.channel_axis)).max(axis=1)
        alive = largest[largest > 0]
        if alive.size < 2:
            continue
        steps = largest / float(stored.scale)
        starved = (steps < STARVED_STEPS) & (largest > 0)
        ratio = float(largest.max() / np.median(alive))
        if starved.any() and (ratio >= WIDE or starved.mean() >= MANY_STARVED):
            yield _suspicion(misfit, largest, starved, ratio)


def _suspicion(
    misfit: Misfit, largest: NDArray[np.float64], starved: NDArray[np.bool_], ratio: float
) -> Suspicion:
    constant = misfit.constant
    assert constant.quantization is not None
    median = float(np.median(largest[largest > 0]))
    wide = np.flatnonzero(largest >= WIDE * median)
    if not wide.size:
        wide = np.array([int(largest.argmax())])
    wide = wide[np.argsort(-largest[wide])]
    form = per_channel(constant, constant.quantization.dtype)
    change = Change(Source("weight", constant.node), quantization=form)
    repairs = (
        () if form is None else (Repair(f"'{constant.node}' with one scale per output channel", (change,)),)
    )
    named = ", ".join(map(str, wide[:MOST_NAMED]))
    return Suspicion(
        cause="per_tensor_weight_outlier_channel",
        layers=(constant.layer,),
        sources=(Source("weight", constant.node),),
        message=(
            f"The weight of '{constant.node}' has one scale, set by channel {named}: its largest weight is "
            f"{ratio:.0f} times that of the median channel, and {int(starved.sum())} of {largest.size} "
            f"channels have less than {STARVED_STEPS:.0f} steps"
        ),
        evidence={
            "node": constant.node,
            "channels": tuple(int(i) for i in wide[:MOST_NAMED]),
            "largest_over_median": ratio,
            "starved_channels": int(starved.sum()),
            "all_channels": int(largest.size),
            "median_channel_steps": float(median / float(constant.quantization.scale)),
            "weight_sqnr_db": misfit.sqnr_db,
            "median_channel_sqnr_db": _median_db(misfit),
        },
        fix="Quantize this weight with one scale per output channel; else equalize it with its neighbours",
        specificity=64,
        repairs=repairs,
    )


def _median_db(misfit: Misfit) -> float:
    axis = misfit.constant.channel_axis
    signal = (by_channel(misfit.constant.reference, axis) ** 2).sum(axis=1)
    noise = (by_channel(misfit.error, axis) ** 2).sum(axis=1)
    alive = (signal > 0) & (noise > 0)
    return float(np.median(10 * np.log10(signal[alive] / noise[alive]))) if alive.any() else 200.0


ENTRY = Detector(
    name="per_tensor_weight_outlier_channel",
    looks_at="sizes of the channels of each weight that has one scale",
    causes=("per_tensor_weight_outlier_channel",),
    find=find,
)
