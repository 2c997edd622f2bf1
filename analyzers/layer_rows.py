"""From moments to the rows of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzers import metrics, moments
from analyzers.measure import PairMoments
from analyzers.metrics.cosine import cosine
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.moments import Moments, Values
from analyzers.records import LayerRecord, Operator, Similarity, Slice, SliceError, TensorPair, WorstSample

CLIPPING_FRACTION = 1e-3  # new samples exceed a calibrated range a little; this is more than a little
_SHARE_OF_NOISE = 0.01  # a channel without a signal is shown only if it holds this share of the noise


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What a comparison keeps of one tensor pair.

    Attributes:
        pair: Which tensors.
        pooled: Moments over all samples.
        isolated: Moments of the isolated layer over all samples; None where not measured.
        slices: The parts that ``pooled.slices`` holds.
        samples: Names of the samples.
        by_sample: float64 ``(2, samples)``: cosine and SQNR in dB of each.
        broken: Per sample, whether one side alone held NaN or infinite values.
    """

    pair: TensorPair
    pooled: PairMoments
    isolated: Moments | None
    slices: tuple[Slice, ...]
    samples: tuple[str, ...]
    by_sample: Values
    broken: tuple[bool, ...]


def threshold_db(threshold: float) -> float:
    """Return the SQNR at which noise that has nothing to do with the signal leaves this cosine."""
    if not 0 < threshold < 1:
        return -math.inf if threshold <= 0 else math.inf
    return 10 * math.log10(threshold**2 / (1 - threshold**2))


def is_below(whole: Moments, threshold: float) -> bool:
    """Tell whether a pair is under the threshold: by direction, by size of the error, or broken."""
    return (
        float(whole.one_sided) > 0
        or float(cosine(whole)) < threshold
        or float(sqnr_db(whole)) < threshold_db(threshold)
    )


def layer_row(
    operator: Operator, measured: Measured | None, *, is_unpaired: bool, threshold: float
) -> LayerRecord:
    """Return the row of an operator; without a measured pair its numbers are undefined."""
    if measured is None:
        return _row_without_pair(operator, is_unpaired=is_unpaired)
    whole = measured.pooled.whole
    channel = _worst_channel(measured.pooled.channels)
    part = _worst_slice(measured)
    return LayerRecord(
        layer=operator.layer,
        node=operator.name,
        op_type=operator.op_type,
        reference_tensor=measured.pair.reference,
        candidate_tensor=measured.pair.candidate,
        evidence=measured.pair.evidence,
        **_numbers(whole),
        reference=moments.reference_stats(whole),
        candidate=moments.candidate_stats(whole),
        isolated=None if measured.isolated is None else similarity(measured.isolated),
        worst_sample=_worst_sample(measured),
        p95_sqnr_db=_reached_by(measured.by_sample[1], 0.95),
        worst_channel=channel,
        worst_slice=part or channel,
        flags=_flags(whole, part, threshold),
    )


def similarity(whole: Moments) -> Similarity:
    """Return cosine and SQNR of a pair."""
    return Similarity(float(cosine(whole)), float(sqnr_db(whole)))


def _row_without_pair(operator: Operator, *, is_unpaired: bool) -> LayerRecord:
    return LayerRecord(
        layer=operator.layer,
        node=operator.name,
        op_type=operator.op_type,
        reference_tensor=operator.outputs[0],
        candidate_tensor=None,
        evidence="",
        **_numbers(moments.empty()),
        reference=None,
        candidate=None,
        isolated=None,
        worst_sample=None,
        p95_sqnr_db=math.nan,
        worst_channel=None,
        worst_slice=None,
        flags=("unpaired" if is_unpaired else "inner",),
    )


def _numbers(whole: Moments) -> dict[str, float]:
    found = metrics.all_metrics()
    names = ("cosine", "sqnr_db", "norm_ratio", "rmse_scale", "max_error")
    count = float(whole.count)
    return {name: metrics.value(found[name], whole) for name in names} | {
        "clipped_fraction": float(whole.outside) / count if count else math.nan
    }


def _flags(whole: Moments, part: SliceError | None, threshold: float) -> tuple[str, ...]:
    angle, ratio = float(cosine(whole)), float(sqnr_db(whole))
    is_low = ratio < threshold_db(threshold)
    count = float(whole.count)
    found = {
        "fallback_candidate": angle < threshold or (math.isnan(angle) and is_low),
        "low_sqnr": is_low,
        "slice_lost": part is not None and not is_low and part.sqnr_db < threshold_db(threshold),
        "nan": float(whole.one_sided_nan) > 0,
        "inf": float(whole.one_sided_inf) > 0,
        "constant": bool(whole.is_constant),
        "clipping": count > 0 and float(whole.outside) / count >= CLIPPING_FRACTION,
    }
    return tuple(name for name, holds in found.items() if holds)


def _worst_sample(measured: Measured) -> WorstSample | None:
    keys = np.where(measured.broken, -np.inf, measured.by_sample[1])
    if np.isnan(keys).all():
        return None
    worst = int(np.nanargmin(keys))
    angle, ratio = measured.by_sample[:, worst]
    return WorstSample(measured.samples[worst], float(angle), float(ratio))


def _reached_by(values: Values, share: float) -> float:
    """Return the largest value that at least this share of the defined values reaches or exceeds."""
    defined = np.sort(values[~np.isnan(values)])
    if defined.size == 0:
        return math.nan
    return float(defined[math.floor(round((1 - share) * defined.size, 9))])


def _worst_channel(channels: Moments | None) -> SliceError | None:
    if channels is None or channels.table.shape[1] < 2:
        return None
    ratios = sqnr_db(channels)
    is_silent = np.isneginf(ratios) & (channels.noise < _SHARE_OF_NOISE * channels.noise.sum())
    keys = np.where(channels.one_sided > 0, -np.inf, np.where(is_silent, np.nan, ratios))
    if np.isnan(keys).all():
        return None
    worst = int(np.nanargmin(keys))
    found = similarity(channels[worst])
    return SliceError(1, worst, worst + 1, found.cosine, found.sqnr_db)


def _worst_slice(measured: Measured) -> SliceError | None:
    parts = measured.pooled.slices
    keys = [-math.inf if float(p.one_sided) > 0 else float(sqnr_db(p)) for p in parts]
    defined = [i for i, key in enumerate(keys) if not math.isnan(key)]
    if not defined:
        return None
    return slice_errors(measured.slices, parts)[min(defined, key=lambda i: keys[i])]


def slice_errors(slices: Sequence[Slice], measured: Sequence[Moments]) -> tuple[SliceError, ...]:
    """Return the error of every part, in the order given."""
    errors = []
    for part, whole in zip(slices, measured, strict=True):
        found = similarity(whole)
        errors.append(SliceError(part.axis, part.start, part.stop, found.cosine, found.sqnr_db, part.name))
    return tuple(errors)
