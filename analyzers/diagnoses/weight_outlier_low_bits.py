"""Few bits for a weight, and a few large values that leave even fewer to the rest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analyzers.channel_maps import in_axis
from analyzers.constant_errors import Misfit, by_channel, misfits
from analyzers.evidence import ConstantPair, Evidence
from analyzers.levels import limits_of
from analyzers.records import Quantization
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion
from analyzers.weight_forms import blocked, per_channel
from analyzers.wrong_constants import MOST_NAMED

# Four bits with one scale per row of a hundred or a thousand normal values keep 16 to 20 dB.
LEAST_DB = 15.0
# The largest of a thousand normal values is 3.3 times their root mean square, of a million 5.
OUTLIER = 5.5
_BLOCKS = (32, 16)
_LOW_BITS = 6


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect weights that lose much to rounding though each row or block has its own scale."""
    for misfit in misfits(evidence):
        stored = misfit.constant.quantization
        if misfit.constant.role != "weight" or stored is None or misfit.is_beyond:
            continue
        crests = _crests(misfit)
        has_own_scales = stored.scale.ndim > 0 or _bits(stored) <= _LOW_BITS
        if misfit.sqnr_db < LEAST_DB and has_own_scales and crests is not None:
            yield _suspicion(misfit, crests)


def _bits(stored: Quantization) -> int:
    limits = limits_of(stored.dtype)
    return 32 if limits is None else int(limits[1] - limits[0] + 1).bit_length() - 1


def _crests(misfit: Misfit) -> NDArray[np.float64] | None:
    """Return the largest value of each output channel over its root mean square."""
    constant = misfit.constant
    if constant.channel_axis is None:
        return None
    rows = by_channel(constant.reference, constant.channel_axis)
    size = np.sqrt((rows**2).mean(axis=1))
    return np.asarray(np.abs(rows).max(axis=1) / np.where(size > 0, size, np.inf))


def _suspicion(misfit: Misfit, crests: NDArray[np.float64]) -> Suspicion:
    constant = misfit.constant
    stored = constant.quantization
    assert stored is not None
    far = np.flatnonzero(crests >= OUTLIER)
    far = far[np.argsort(-crests[far])]
    bits = _bits(stored)
    if far.size:
        why = (
            f"{far.size} of {crests.size} output channels hold values of up to {crests.max():.0f} times "
            "their root mean square"
        )
    else:
        why = "no single values stand out"
    return Suspicion(
        cause="weight_outlier_low_bits",
        layers=(constant.layer,),
        sources=(Source("weight", constant.node),),
        message=(f"The weight of '{constant.node}' has {bits} bits and keeps {misfit.sqnr_db:.1f} dB: {why}"),
        evidence={
            "node": constant.node,
            "bits": bits,
            "block_size": stored.block_size,
            "weight_sqnr_db": misfit.sqnr_db,
            "channels": tuple(int(i) for i in far[:MOST_NAMED]),
            "largest_over_rms": float(crests.max()),
            "median_largest_over_rms": float(np.median(crests)),
        },
        fix="Give this weight smaller blocks, else eight bits",
        specificity=58 if far.size else 40,
        repairs=tuple(_repairs(constant, stored, bits)),
    )


def _repairs(constant: ConstantPair, stored: Quantization, bits: int) -> Iterator[Repair]:
    source = Source("weight", constant.node)
    axis = in_axis(constant)
    for size in _BLOCKS if axis is not None else ():
        if stored.block_size and stored.block_size <= size:
            continue
        form = blocked(constant, stored.dtype, axis or 0, size)
        if form is not None:
            yield Repair(f"'{constant.node}' in blocks of {size}", (Change(source, quantization=form),))
    if bits < 8:
        form = per_channel(constant, "int8")
        if form is not None:
            yield Repair(f"'{constant.node}' in 8 bits per channel", (Change(source, quantization=form),))


ENTRY = Detector(
    name="weight_outlier_low_bits",
    looks_at="what rounding leaves of each weight, and single large values in its rows",
    causes=("weight_outlier_low_bits",),
    find=find,
)
