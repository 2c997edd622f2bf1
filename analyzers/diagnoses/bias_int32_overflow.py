"""Biases that do not fit into their integer type, since the scales of input and weight are so small."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analyzers.constant_errors import Misfit, misfits, scales_of
from analyzers.diagnoses.zero_range_scale import VANISHING
from analyzers.evidence import ConstantPair, Evidence
from analyzers.levels import limits_of
from analyzers.records import Quantization
from analyzers.store_ranges import range_of, seen_range
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion
from analyzers.weight_forms import per_channel
from analyzers.wrong_constants import MOST_NAMED, sources_of

# Float32 cannot hold 2**31 - 1: integers that were clipped in it end up to 128 below.
_NEAR_LIMIT = 128


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect biases that lie beyond the range of their integers, whether cut off or wrapped around."""
    for misfit in misfits(evidence):
        constant = misfit.constant
        if constant.role != "bias" or constant.quantization is None or constant.integers is None:
            continue
        if _reads_a_vanishing_range(evidence, constant.node):
            continue  # the scale of its input is at fault, and told as such
        over = _over(misfit, constant.quantization)
        if over is not None and over.any() and misfit.is_beyond:
            yield _suspicion(evidence, misfit, constant.quantization, over)


def _reads_a_vanishing_range(evidence: Evidence, node: str) -> bool:
    for store in evidence.stores.values():
        if all(reader.node != node for reader in store.readers):
            continue
        held, seen = range_of(store.quantization), seen_range(evidence, store.tensor)
        if held is not None and seen is not None and held.span < VANISHING * seen.span:
            return True
    return False


def _over(misfit: Misfit, stored: Quantization) -> NDArray[np.bool_] | None:
    """Return the channels whose bias does not fit and therefore is wrong."""
    limits = limits_of(stored.dtype)
    scale = scales_of(stored, misfit.constant.reference.shape)
    if limits is None or scale is None or not np.all(scale > 0):
        return None
    levels = misfit.constant.reference / scale
    return np.asarray(((levels > limits[1]) | (levels < limits[0])) & misfit.is_off)


def _suspicion(
    evidence: Evidence, misfit: Misfit, stored: Quantization, over: NDArray[np.bool_]
) -> Suspicion:
    constant = misfit.constant
    assert constant.integers is not None
    limits = limits_of(stored.dtype)
    scale = scales_of(stored, constant.reference.shape)
    assert limits is not None
    assert scale is not None
    channels = np.flatnonzero(over.reshape(-1))
    ends = constant.integers.reshape(-1)[channels]
    slack = _NEAR_LIMIT if limits[1] > 1 << 24 else 0
    is_saturated = (ends >= limits[1] - slack) | (ends <= limits[0] + slack + 1)
    needed = float(np.abs(constant.reference / scale)[over].max())
    named = ", ".join(map(str, channels[:MOST_NAMED]))
    how = f"stands at {int(ends[0])}" if is_saturated.all() else f"wrapped around to {int(ends[0])}"
    return Suspicion(
        cause="bias_int32_overflow",
        layers=(constant.layer,),
        sources=sources_of(evidence, constant.node) or (Source("bias", constant.node),),
        message=(
            f"The bias of '{constant.node}' overflows {stored.dtype} in channel {named}: it needs "
            f"{needed:.3g} steps of input scale times weight scale, and {how}"
        ),
        evidence={
            "node": constant.node,
            "channels": tuple(int(i) for i in channels[:MOST_NAMED]),
            "needed_steps": needed,
            "limit": float(limits[1]),
            "integers": tuple(int(i) for i in ends[:MOST_NAMED]),
            "is_saturated": bool(is_saturated.all()),
            "bias": float(constant.reference.reshape(-1)[channels[0]]),
            "held": float(constant.candidate.reshape(-1)[channels[0]]),
        },
        fix="Raise the weight scale of these channels until the bias fits; else keep this bias in float",
        specificity=85,
        is_fault=True,
        repairs=_repairs(evidence, constant, channels, needed / float(limits[1])),
    )


def _repairs(
    evidence: Evidence, bias: ConstantPair, channels: NDArray[np.int64], excess: float
) -> tuple[Repair, ...]:
    """Return the weight with coarser scales in these channels, and the bias that then fits."""
    weight = next((c for c in evidence.constants if c.node == bias.node and c.role == "weight"), None)
    bias_change = Change(Source("bias", bias.node))
    plain = Repair(f"The bias of '{bias.node}' in float", (bias_change,))
    if weight is None or weight.quantization is None or weight.channel_axis is None:
        return (plain,)
    form = per_channel(weight, weight.quantization.dtype)
    if form is None or form.scale.size <= int(channels.max()):
        return (plain,)
    own = np.broadcast_to(weight.quantization.scale, form.scale.shape)
    scale = np.array(form.scale)
    scale[channels] = own[channels] * np.float32(excess * 1.01)
    raised = Quantization(scale, form.zero_point, form.dtype, form.axis)
    change = Change(Source("weight", weight.node), quantization=raised)
    how = f"The weight scale of '{bias.node}' raised {excess * 1.01:.3g} times in these channels"
    return (Repair(how, (change, bias_change)), plain)


ENTRY = Detector(
    name="bias_int32_overflow",
    looks_at="biases in steps of their scale, against the range of their integer type",
    causes=("bias_int32_overflow",),
    find=find,
)
