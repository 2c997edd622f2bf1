"""Outputs that are shifted: by a bias that is wrong, or by rounding that does not average out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.constant_errors import Misfit, decibels, misfits
from analyzers.evidence import ConstantPair, Evidence
from analyzers.moments import Moments
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion
from analyzers.wrong_constants import sources_of, wrong

# A channel's error is a shift if its mean is more than half of its spread ...
SHIFTED = 0.5
# ... and rounding does not average out if that holds for every tenth channel or more.
MANY_CHANNELS = 0.1
# Shifts matter if they are at least this share of the layer's own error.
LEAST_SHARE = 0.25
# A layer that keeps this much has no error to speak of.
HARM_DB = 25.0
# The operators are not to blame if with the reference's constants they make no more than this of the error.
EXACT_SHARE = 0.1
# Fewer values of a channel have no mean worth speaking of.
FEWEST_VALUES = 16


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect biases that are wrong, and layers whose computed values are shifted channel by channel."""
    wrong_ones = wrong(evidence, "bias")
    for misfit in wrong_ones:
        yield _wrong_bias(evidence, misfit)
    known = {m.constant.layer for m in misfits(evidence) if m.is_beyond}
    for constant in evidence.constants:
        if constant.role == "weight" and constant.layer not in known and constant.channel_axis is not None:
            moments = _computed(evidence, constant)
            if moments is not None:
                yield from _not_averaged(evidence, constant, moments)


def _wrong_bias(evidence: Evidence, misfit: Misfit) -> Suspicion:
    constant = misfit.constant
    shift = float(np.abs(misfit.error).max())
    what = "has no bias in the candidate" if not constant.value else "has a bias that is not the reference's"
    return Suspicion(
        cause="bias_shift",
        layers=(constant.layer,),
        sources=sources_of(evidence, constant.node),
        message=(
            f"'{constant.node}' {what}: its outputs are shifted by up to {shift:.3g} "
            f"({misfit.sqnr_db:.1f} dB)"
        ),
        evidence={
            "node": constant.node,
            "largest_shift": shift,
            "wrong_share": misfit.off_share,
            "bias_sqnr_db": misfit.sqnr_db,
            "is_absent": not constant.value,
        },
        fix="Write the reference's bias, in steps of input scale times weight scale",
        specificity=48,
        is_fault=True,
    )


def _computed(evidence: Evidence, constant: ConstantPair) -> Moments | None:
    """Return the moments by channel of what the layer computes before it stores, if constants spoil it."""
    layer = evidence.layers.get(constant.layer)
    for tensor in () if layer is None else layer.outputs:
        anatomy = evidence.anatomy.get(tensor)
        computed = None if anatomy is None else anatomy.computed
        exact = None if anatomy is None else anatomy.operator
        if computed is None or computed.channels is None or exact is None:
            continue
        if float(exact.whole.noise) < EXACT_SHARE * float(computed.whole.noise):
            return computed.channels
    return None


def _not_averaged(evidence: Evidence, constant: ConstantPair, moments: Moments) -> Iterator[Suspicion]:
    count = np.maximum(moments.count, 1)
    if count.min() < FEWEST_VALUES:
        return
    mean = moments.candidate_mean - moments.reference_mean
    power = moments.noise / count
    spread = np.sqrt(np.maximum(power - mean**2, 0))
    total, energy = float(moments.noise.sum()), float(moments.reference_energy.sum())
    shifted = np.abs(mean) > SHIFTED * spread
    share = float((mean**2 * count).sum()) / total if total > 0 else 0.0
    loss = decibels(total / energy) if energy > 0 else 200.0
    if shifted.mean() < MANY_CHANNELS or share < LEAST_SHARE or loss >= HARM_DB:
        return
    yield Suspicion(
        cause="bias_shift",
        layers=(constant.layer,),
        sources=(Source("weight", constant.node),),
        message=(
            f"Rounding of the weight of '{constant.node}' does not average out: "
            f"{int(shifted.sum())} of {shifted.size} channels are shifted, which is {share:.0%} of the error"
        ),
        evidence={
            "node": constant.node,
            "shifted_channels": int(shifted.sum()),
            "all_channels": int(shifted.size),
            "share_of_error": share,
            "largest_shift": float(np.abs(mean).max()),
            "computed_sqnr_db": loss,
        },
        fix="Correct the bias by the mean error of each channel (bias correction)",
        specificity=30,
        repairs=_corrected(evidence, constant, mean),
    )


def _corrected(
    evidence: Evidence, weight: ConstantPair, mean: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> tuple[Repair, ...]:
    """Return the bias that takes the mean error away."""
    for misfit in misfits(evidence):
        bias = misfit.constant
        if (
            bias.layer == weight.layer
            and bias.role == "bias"
            and bias.value
            and bias.reference.size == mean.size
        ):
            array = bias.candidate - mean.reshape(bias.reference.shape)
            change = Change(Source("bias", bias.node), array=array)
            return (Repair(f"The bias of '{bias.node}' corrected by the mean errors", (change,)),)
    return ()


ENTRY = Detector(
    name="bias_shift",
    looks_at="biases against the reference's, and mean errors of each channel before the store",
    causes=("bias_shift",),
    find=find,
)
