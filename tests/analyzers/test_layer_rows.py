"""Rows from hand-made tensors: thresholds, worst parts, percentiles, flags."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analyzers.layer_rows import Measured, is_below, layer_row, threshold_db
from analyzers.measure import measure, merge
from analyzers.metrics.cosine import cosine
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.records import Array, LayerRecord, Operator, Quantization, Slice, TensorPair

OPERATOR = Operator("conv", "Conv", "conv", ("t",))
CODES = Quantization(np.array(1.0, np.float32), np.array(0), "int8")
SIGNAL: Array = np.random.default_rng(0).standard_normal((1, 4, 100)).astype(np.float32)
NOISE: Array = np.random.default_rng(1).standard_normal((1, 4, 100)).astype(np.float32)


def row(
    *samples: tuple[Array, Array],
    slices: tuple[Slice, ...] = (),
    quantization: Quantization | None = None,
    threshold: float = 0.99,
) -> LayerRecord:
    """The row of a tensor pair with these samples."""
    records = [measure(a, b, quantization=quantization, slices=slices) for a, b in samples]
    pooled = records[0]
    for record in records[1:]:
        pooled = merge(pooled, record)
    measured = Measured(
        pair=TensorPair("t", "t_dq", "t_q", quantization, "conv", "conv", "name"),
        pooled=pooled,
        isolated=None,
        slices=slices,
        samples=tuple(f"s{i}" for i in range(len(samples))),
        by_sample=np.array([[float(cosine(r.whole)), float(sqnr_db(r.whole))] for r in records]).T,
        broken=tuple(float(r.whole.one_sided) > 0 for r in records),
    )
    return layer_row(OPERATOR, measured, is_unpaired=False, threshold=threshold)


@pytest.mark.parametrize(("threshold", "wanted"), [(0.99, 16.92), (0.98, 13.85), (0.999, 26.99)])
def test_cosine_and_decibels_are_one_scale(threshold: float, wanted: float) -> None:
    assert threshold_db(threshold) == pytest.approx(wanted, abs=0.01)
    noise = np.sqrt(1 / threshold**2 - 1)
    whole = measure(
        np.tile(SIGNAL, (1, 1, 500)), np.tile(SIGNAL, (1, 1, 500)) + noise * _white(200_000)
    ).whole
    assert float(sqnr_db(whole)) == pytest.approx(wanted, abs=0.3)
    assert float(cosine(whole)) == pytest.approx(threshold, abs=1e-3)


def _white(count: int) -> Array:
    noise = np.random.default_rng(2).standard_normal((1, 4, count // 4))
    energy: float = float(np.square(SIGNAL).mean())
    return (noise * math.sqrt(energy)).astype(np.float32)


@pytest.mark.parametrize(("threshold", "wanted"), [(0.0, -math.inf), (1.0, math.inf), (1.5, math.inf)])
def test_a_threshold_without_a_finite_twin_asks_for_nothing_or_for_everything(
    threshold: float, wanted: float
) -> None:
    assert threshold_db(threshold) == wanted


def test_a_gain_error_is_below_the_threshold_although_its_cosine_is_one() -> None:
    found = row((SIGNAL, SIGNAL * 2))
    assert found.cosine == pytest.approx(1.0)
    assert found.norm_ratio == pytest.approx(2.0)
    assert is_below(measure(SIGNAL, SIGNAL * 2).whole, 0.99)
    assert found.flags == ("low_sqnr",)


def test_low_cosine_makes_a_fallback_candidate() -> None:
    assert "fallback_candidate" in row((SIGNAL, SIGNAL + NOISE)).flags
    assert row((SIGNAL, SIGNAL + 0.01 * NOISE)).flags == ()
    assert "fallback_candidate" in row((SIGNAL, SIGNAL + 0.01 * NOISE), threshold=0.999999).flags


def test_a_dead_candidate_has_no_cosine_and_is_a_fallback_candidate_all_the_same() -> None:
    found = row((SIGNAL, np.zeros_like(SIGNAL)))
    assert math.isnan(found.cosine)
    assert found.sqnr_db == 0.0
    assert "fallback_candidate" in found.flags


def test_two_zero_tensors_are_undefined_and_not_blamed() -> None:
    zero = np.zeros_like(SIGNAL)
    found = row((zero, zero))
    assert math.isnan(found.cosine)
    assert math.isnan(found.sqnr_db)
    assert found.worst_sample is None
    assert math.isnan(found.p95_sqnr_db)
    assert found.worst_channel is None
    assert found.flags == ("constant",)


def test_statistics_of_both_sides_are_pooled_over_samples() -> None:
    found = row((SIGNAL, SIGNAL * 2), (SIGNAL + 10, SIGNAL))
    both = np.concatenate([SIGNAL, SIGNAL + 10])
    assert found.reference is not None
    assert found.reference.mean == pytest.approx(float(both.mean()), rel=1e-5)
    assert found.reference.std == pytest.approx(float(both.std()), rel=1e-5)
    assert (found.reference.min, found.reference.max) == (float(both.min()), float(both.max()))


def test_the_pooled_ratio_is_total_energy_over_total_noise_and_not_a_mean_of_ratios() -> None:
    found = row((SIGNAL, SIGNAL + NOISE), (SIGNAL * 100, SIGNAL * 100 + NOISE))
    signal = np.square(SIGNAL, dtype=np.float64).sum() * (1 + 100**2)
    assert found.sqnr_db == pytest.approx(10 * math.log10(signal / (2 * np.square(NOISE).sum())), abs=1e-3)


def test_the_worst_sample_is_named_and_95_percent_of_the_samples_reach_the_percentile() -> None:
    scales = [0.5, *(0.001 * (i + 1) for i in range(39))]
    found = row(*((SIGNAL, SIGNAL + s * NOISE) for s in scales))
    ratios = sorted(float(sqnr_db(measure(SIGNAL, SIGNAL + s * NOISE).whole)) for s in scales)
    assert found.worst_sample is not None
    assert found.worst_sample.sample == "s0"
    assert found.worst_sample.sqnr_db == ratios[0]
    assert found.p95_sqnr_db == ratios[2]  # 38 of 40 samples reach it


def test_a_sample_that_breaks_is_the_worst() -> None:
    broken = SIGNAL.copy()
    broken[0, 0, 0] = np.nan
    found = row((SIGNAL, SIGNAL + NOISE), (SIGNAL, broken), (SIGNAL, SIGNAL + NOISE))
    assert found.worst_sample is not None
    assert found.worst_sample.sample == "s1"
    assert "nan" in found.flags
    assert "inf" not in found.flags


def test_nan_at_the_same_place_on_both_sides_is_no_fault() -> None:
    both = SIGNAL.copy()
    both[0, 0, 0] = np.nan
    assert row((both, both)).flags == ()


def test_the_worst_channel_is_found_and_serves_as_the_worst_slice_where_nothing_was_joined() -> None:
    b = SIGNAL + 0.01 * NOISE
    b[:, 2] = 0
    found = row((SIGNAL, b))
    assert found.worst_channel is not None
    assert (found.worst_channel.axis, found.worst_channel.start, found.worst_channel.stop) == (1, 2, 3)
    assert found.worst_channel.sqnr_db == 0.0
    assert found.worst_slice == found.worst_channel


def test_the_worst_part_of_a_join_beats_the_worst_channel() -> None:
    b = SIGNAL + 0.01 * NOISE
    b[..., 90:] += NOISE[..., 90:]
    found = row((SIGNAL, b), slices=(Slice(2, 0, 90, "boxes"), Slice(2, 90, 100, "scores")))
    assert found.worst_slice is not None
    assert (found.worst_slice.axis, found.worst_slice.start, found.worst_slice.name) == (2, 90, "scores")


def test_a_lost_part_is_flagged_although_the_whole_looks_fine() -> None:
    a = SIGNAL.copy()
    a[..., :90] *= 1000
    b = a.copy()
    b[..., 90:] = 0
    parts = (Slice(2, 0, 90, "boxes"), Slice(2, 90, 100, "scores"))
    assert row((a, b), slices=parts).flags == ("slice_lost",)
    assert row((a, b)).flags == ()
    assert row((a, a), slices=parts).flags == ()


def test_rounding_in_a_silent_channel_does_not_make_it_the_worst() -> None:
    a = SIGNAL.copy()
    a[:, 1] = 0
    b = a + 0.1 * NOISE
    b[:, 1] = 1e-6
    found = row((a, b))
    assert found.worst_channel is not None
    assert found.worst_channel.start != 1
    b[:, 1] = 3.0
    found = row((a, b))
    assert found.worst_channel is not None
    assert found.worst_channel.start == 1


def test_clipping_counts_what_lies_outside_the_range_and_not_what_sits_on_its_limit() -> None:
    a = np.full((1, 4, 100), -128.0, np.float32)
    a[..., ::2] = 5
    codes = np.clip(a, -128, 127).astype(np.int8)
    assert row((a, codes), quantization=CODES).clipped_fraction == 0.0
    a[0, 0, :2] = 300
    codes = np.clip(a, -128, 127).astype(np.int8)
    found = row((a, codes), quantization=CODES)
    assert found.clipped_fraction == pytest.approx(2 / 400)
    assert "clipping" in found.flags
    assert math.isnan(row((a, a)).clipped_fraction)


@pytest.mark.parametrize(("is_unpaired", "flag"), [(True, "unpaired"), (False, "inner")])
def test_an_operator_without_a_pair_has_undefined_numbers(is_unpaired: bool, flag: str) -> None:
    found = layer_row(OPERATOR, None, is_unpaired=is_unpaired, threshold=0.99)
    assert found.candidate_tensor is None
    assert all(math.isnan(v) for v in (found.cosine, found.sqnr_db, found.max_error, found.p95_sqnr_db))
    assert found.flags == (flag,)
