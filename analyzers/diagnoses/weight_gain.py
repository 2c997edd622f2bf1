"""Weights and biases that are right but for a factor: a scale that belongs to something else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.array_relations import UNEXPLAINED, Values, unexplained
from analyzers.channel_maps import in_axis
from analyzers.constant_errors import FEW_CLIPPED, Misfit, by_channel, decibels
from analyzers.evidence import ConstantPair, Evidence
from analyzers.suspicions import Detector, Suspicion
from analyzers.wrong_constants import MOST_NAMED, quantized_anew, sources_of, wrong

# A factor nearer to one is what rounding and clipping of a few values leave.
LEAST_GAIN = 0.05
# A factor next to zero is none: those values are lost.
LOST = 1e-2
# A channel counts as scaled if the factor leaves less than this of its own energy unexplained (13 dB).
_CHANNEL_UNEXPLAINED = 0.05


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect constants that are multiples of the reference's, as a whole or channel by channel."""
    for misfit in wrong(evidence):
        axes = {"output channels": misfit.constant.channel_axis, "input channels": in_axis(misfit.constant)}
        found = {what: gains_of(misfit, axis) for what, axis in axes.items()}
        what = next((w for w, g in found.items() if g is not None and np.any(np.abs(g - 1) > LEAST_GAIN)), "")
        gains = found.get(what)
        if gains is not None:
            yield _suspicion(evidence, misfit, gains, what)
        elif misfit.clipped > FEW_CLIPPED:
            yield _clipped(evidence, misfit)


def gains_of(misfit: Misfit, axis: int | None, reference: Values | None = None) -> Values | None:
    """Return the factor of each channel, if factors explain the difference."""
    constant = misfit.constant
    base = constant.reference if reference is None else reference
    if constant.role == "bias":
        gain = _common(base, constant.candidate)
        fits = (
            constant.reference.size > 1
            and abs(gain) >= LOST
            and unexplained(base * gain, constant.candidate) <= UNEXPLAINED
        )
        return np.array([gain]) if fits else None
    if axis is None and not np.any(base):
        return None
    ours, theirs = (by_channel(a, axis) for a in (base, constant.candidate))
    if ours.shape[1] < 2 or not np.all(np.isfinite(theirs)):
        return None
    allowed = max(UNEXPLAINED, 4 * misfit.rounding)
    common = _common(ours, theirs)
    if abs(common - 1) > LEAST_GAIN and abs(common) >= LOST and unexplained(ours * common, theirs) <= allowed:
        return np.full(len(ours), common)
    gains = np.array([_common(a, b) for a, b in zip(ours, theirs, strict=True)])
    scaled = ours * gains[:, None]
    if np.any(np.abs(gains) < LOST) or unexplained(scaled, theirs) > allowed:
        return None
    off = np.abs(gains - 1) > LEAST_GAIN
    energy = (theirs**2).sum(axis=1)
    left = ((theirs - scaled) ** 2).sum(axis=1)
    is_scaled = left[off] <= max(_CHANNEL_UNEXPLAINED, 4 * misfit.rounding) * energy[off]
    return gains if np.all(is_scaled) else None


def _common(reference: Values, candidate: Values) -> float:
    energy = float((reference**2).sum())
    return float((reference * candidate).sum()) / energy if energy > 0 else 1.0


def _suspicion(evidence: Evidence, misfit: Misfit, gains: Values, what: str) -> Suspicion:
    constant = misfit.constant
    off = np.flatnonzero(np.abs(gains - 1) > LEAST_GAIN)
    gain = float(np.median(gains[off]))
    is_common = bool(np.all(np.abs(gains / gain - 1) <= LEAST_GAIN))
    channels = () if is_common else tuple(int(i) for i in off[:MOST_NAMED])
    if is_common:
        words = f"{gain:.4g} times the reference's"
    else:
        where = f"{what} {', '.join(map(str, channels))}{' ...' if off.size > MOST_NAMED else ''}"
        words = f"off by factors from {gains[off].min():.3g} to {gains[off].max():.3g} in {where}"
    return Suspicion(
        cause="scale_gain_error",
        layers=(constant.layer,),
        sources=sources_of(evidence, constant.node),
        message=f"The {constant.role} of '{constant.node}' is {words}; cosine is blind to it",
        evidence={
            "node": constant.node,
            "role": constant.role,
            "gain": gain,
            "channels": channels,
            "wrong_channels": int(off.size),
            "weight_sqnr_db": misfit.sqnr_db,
            "cosine": _cosine(constant),
        },
        fix="Correct the scale of this constant, and look for what its scale belongs to",
        specificity=70 if is_common else 66,
        is_fault=True,
        repairs=quantized_anew(evidence, constant),
    )


def _cosine(constant: ConstantPair) -> float:
    norm = float(np.linalg.norm(constant.reference) * np.linalg.norm(constant.candidate))
    return float((constant.reference * constant.candidate).sum()) / norm if norm > 0 else 0.0


def _clipped(evidence: Evidence, misfit: Misfit) -> Suspicion:
    constant = misfit.constant
    largest = float(np.abs(constant.reference).max())
    held = float(np.abs(constant.candidate).max())
    return Suspicion(
        cause="scale_gain_error",
        layers=(constant.layer,),
        sources=sources_of(evidence, constant.node),
        message=(
            f"The scale of the {constant.role} of '{constant.node}' is too small: {misfit.clipped:.0%} of "
            f"its values are cut off at {held:.3g}, they reach {largest:.3g}"
        ),
        evidence={
            "node": constant.node,
            "clipped_share": misfit.clipped,
            "largest": largest,
            "held": held,
            "weight_sqnr_db": decibels(misfit.noise),
        },
        fix="Choose the scale from the largest weight, or from a percentile that cuts off few values",
        specificity=60,
        is_fault=True,
        repairs=quantized_anew(evidence, constant),
    )


ENTRY = Detector(
    name="weight_gain",
    looks_at="factors between each constant that is wrong and the reference's, as a whole and per channel",
    causes=("scale_gain_error",),
    find=find,
)
