"""Few bits for a weight, and a few large values that leave even fewer to the rest."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analyzers.channel_maps import in_axis
from analyzers.constant_errors import Misfit, by_channel, decibels, misfits
from analyzers.evidence import ConstantPair, Evidence
from analyzers.levels import limits_of
from analyzers.records import Quantization
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion
from analyzers.weight_forms import blocked, per_channel
from analyzers.wrong_constants import MOST_NAMED

# What a weight of eight bits loses where single large values leave the rest few levels: its bulk keeps less.
LEAST_DB = 15.0
# Four bits with one scale per row of a hundred or a thousand normal values keep 16 to 20 dB: worth a look.
LEAST_DB_OF_FEW_BITS = 20.0
# The largest of a thousand normal values is 3.5 times the size of their bulk, of a million 6.
OUTLIER = 6.0
_BULK = 3.0  # times the median magnitude, that is twice the root mean square of normal values
_BLOCKS = (32, 16)
_FEW_BITS = 6


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect weights that lose much to rounding though each row or block has its own scale."""
    for misfit in misfits(evidence):
        stored = misfit.constant.quantization
        if misfit.constant.role != "weight" or stored is None or misfit.is_beyond:
            continue
        if misfit.constant.channel_axis is None or misfit.constant.reference.ndim < 2:
            continue
        has_few_bits = _bits(stored) <= _FEW_BITS
        if not has_few_bits and stored.scale.ndim == 0:
            continue
        bulk = bulk_of(misfit.constant)
        kept = _kept_db(misfit, bulk)
        if kept < (LEAST_DB_OF_FEW_BITS if has_few_bits else LEAST_DB):
            yield _suspicion(misfit, bulk, kept)


def bulk_of(constant: ConstantPair) -> NDArray[np.float64]:
    """Return the root mean square of each output channel without its zeros and its few large values."""
    rows = np.abs(by_channel(constant.reference, constant.channel_axis))
    rows = np.where(rows > 0, rows, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows without a single value
        limit = _BULK * np.nanmedian(rows, axis=1, keepdims=True)
        bulk = np.sqrt(np.nanmean(np.where(rows <= limit, rows, np.nan) ** 2, axis=1))
    return np.asarray(np.nan_to_num(bulk))


def _kept_db(misfit: Misfit, bulk: NDArray[np.float64]) -> float:
    """Return signal to noise of the bulk of all channels, in dB."""
    noise = float((misfit.error**2).mean())
    signal = float((bulk**2).mean())
    return decibels(noise / signal) if signal > 0 else 200.0


def _bits(stored: Quantization) -> int:
    limits = limits_of(stored.dtype)
    return 32 if limits is None else int(limits[1] - limits[0] + 1).bit_length() - 1


def _suspicion(misfit: Misfit, bulk: NDArray[np.float64], kept: float) -> Suspicion:
    constant = misfit.constant
    stored = constant.quantization
    assert stored is not None
    largest = np.abs(by_channel(constant.reference, constant.channel_axis)).max(axis=1)
    crests = largest / np.where(bulk > 0, bulk, np.inf)
    far = np.flatnonzero(crests >= OUTLIER)
    far = far[np.argsort(-crests[far])]
    bits = _bits(stored)
    if far.size:
        why = (
            f"{far.size} of {crests.size} output channels hold values of up to {crests.max():.0f} times "
            "the size of the rest"
        )
    else:
        why = "no single values stand out"
    return Suspicion(
        cause="weight_outlier_low_bits",
        layers=(constant.layer,),
        sources=(Source("weight", constant.node),),
        message=(
            f"The weight of '{constant.node}' has {bits} bits, which keep {kept:.1f} dB of its bulk: {why}"
        ),
        evidence={
            "node": constant.node,
            "bits": bits,
            "block_size": stored.block_size,
            "bulk_sqnr_db": kept,
            "weight_sqnr_db": misfit.sqnr_db,
            "channels": tuple(int(i) for i in far[:MOST_NAMED]),
            "largest_over_bulk": float(crests.max()),
            "median_largest_over_bulk": float(np.median(crests)),
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
