"""Single output channels whose constants are garbage, or zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analyzers.constant_errors import Misfit, by_channel, decibels, misfits
from analyzers.diagnoses.weight_gain import gains_of
from analyzers.evidence import Evidence
from analyzers.suspicions import Detector, Suspicion
from analyzers.wrong_constants import MOST_NAMED, quantized_anew, sources_of, wrong

# A channel is garbage if most of its values are wrong; flipped bits hit some of each.
_MOST = 0.5
# More channels than this share are no single ones any more.
_SINGLE = 0.5
# What is left of a channel that was dropped: nothing but the rounding of zero.
_NOTHING = 1e-4


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect channels that are wrong where the others are right."""
    for node in dict.fromkeys(m.constant.node for m in wrong(evidence)):
        mine = [
            m for m in misfits(evidence) if m.constant.node == node and m.constant.channel_axis is not None
        ]
        counts = {_count(m) for m in mine}
        if len(counts) != 1 or min(counts) < 3:
            continue
        is_wrong = np.any([_wrong_channels(m) for m in mine if m.is_beyond], axis=0)
        if not 0 < is_wrong.mean() <= _SINGLE or any(_is_elsewhere(m, is_wrong) for m in mine):
            continue
        if any(m.constant.role == "weight" and m.is_beyond and _is_scaled(m) for m in mine):
            continue
        yield _suspicion(evidence, [m for m in mine if m.is_beyond], np.flatnonzero(is_wrong), min(counts))


def _count(misfit: Misfit) -> int:
    return int(misfit.constant.reference.shape[misfit.constant.channel_axis or 0])


def _wrong_channels(misfit: Misfit) -> NDArray[np.bool_]:
    off = by_channel(misfit.is_off.astype(np.float64), misfit.constant.channel_axis)
    return np.asarray(off.mean(axis=1) >= _MOST)


def _is_elsewhere(misfit: Misfit, channels: NDArray[np.bool_]) -> bool:
    """Tell whether values of other channels are wrong as well."""
    return misfit.is_beyond and bool(
        by_channel(misfit.is_off.astype(np.float64), misfit.constant.channel_axis)[~channels].any()
    )


def _is_scaled(misfit: Misfit) -> bool:
    """Tell whether factors explain the channels."""
    return gains_of(misfit, misfit.constant.channel_axis) is not None


def _suspicion(
    evidence: Evidence, wrong_ones: list[Misfit], channels: NDArray[np.int64], count: int
) -> Suspicion:
    constant = wrong_ones[0].constant
    kept, held = 0.0, 0.0
    for misfit in wrong_ones:
        axis = misfit.constant.channel_axis
        held += float((by_channel(misfit.constant.reference, axis)[channels] ** 2).sum())
        kept += float((by_channel(misfit.constant.candidate, axis)[channels] ** 2).sum())
    is_dropped = kept <= _NOTHING * held
    cause = "channel_dropped" if is_dropped else "channel_garbage"
    roles = " and ".join(dict.fromkeys(m.constant.role for m in wrong_ones))
    named = ", ".join(map(str, channels[:MOST_NAMED]))
    what = "zero" if is_dropped else "not the reference's"
    noise = max(m.noise for m in wrong_ones)
    return Suspicion(
        cause=cause,
        layers=(constant.layer,),
        sources=sources_of(evidence, constant.node),
        message=(
            f"{roles.capitalize()} of '{constant.node}' are {what} in output channel"
            f"{'s' if channels.size > 1 else ''} {named} of {count}; the other channels are right"
        ),
        evidence={
            "node": constant.node,
            "channels": tuple(int(i) for i in channels[:MOST_NAMED]),
            "wrong_channels": int(channels.size),
            "all_channels": count,
            "sqnr_db": decibels(noise),
            "roles": roles,
        },
        fix="Convert this layer again; look whether these channels lie beyond the device's alignment",
        specificity=62,
        is_fault=True,
        repairs=quantized_anew(evidence, constant),
    )


ENTRY = Detector(
    name="channel_garbage",
    looks_at="weights and biases that are wrong, channel by channel",
    causes=("channel_garbage", "channel_dropped"),
    find=find,
)
