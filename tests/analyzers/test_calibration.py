from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnxruntime.quantization.calibrate import HistogramCollector

from analyzers.calibration import (
    Extremes,
    bins_of,
    choose_range,
    count_values,
    entropy_range,
    percentile_range,
)
from analyzers.records import CalibrationMethod, QuantizeOptions

finite = st.floats(-1e6, 1e6)


@given(st.lists(finite, min_size=2, max_size=20), st.randoms())
def test_extremes_merge_in_any_order(values: list[float], random: object) -> None:
    singles = [Extremes(v, v) for v in values]
    random.shuffle(singles)  # type: ignore[attr-defined]
    merged = singles[0]
    for single in singles[1:]:
        merged = merged.merge(single)
    assert merged == Extremes(min(values), max(values))


def test_a_nan_in_one_sample_stays_visible() -> None:
    merged = Extremes(-1, 1).merge(Extremes(float("nan"), float("nan"))).merge(Extremes(0, 2))
    assert not merged.is_finite


def test_counts_of_samples_add_up_to_those_of_all() -> None:
    values = np.random.default_rng(0).normal(size=(4, 1000))
    limit = float(np.abs(values).max())
    np.testing.assert_array_equal(
        sum(count_values(v, limit, 2048) for v in values), count_values(values, limit, 2048)
    )
    assert count_values(np.zeros(3), 0.0, 2048).sum() == 0


def test_all_of_the_values_is_the_whole_range() -> None:
    values = np.random.default_rng(0).normal(size=5000)
    limit = float(np.abs(values).max())
    counts = count_values(values, limit, 2048)
    for symmetric in (False, True):
        options = QuantizeOptions("percentile", symmetric=symmetric, percentile=100.0)
        chosen = choose_range(counts, Extremes(float(values.min()), float(values.max())), options)
        assert chosen.low == pytest.approx(values.min(), abs=2 * limit / 2048)
        assert chosen.high == pytest.approx(values.max(), abs=2 * limit / 2048)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_percentile_leaves_out_that_share(symmetric: bool) -> None:
    values = np.random.default_rng(1).normal(size=200_000)
    limit = float(np.abs(values).max())
    low, high = percentile_range(count_values(values, limit, 2048), limit, 99.0, symmetric=symmetric)
    outside = np.mean((values < low) | (values > high))
    assert outside == pytest.approx(0.01, abs=0.001)
    assert (low == -high) is symmetric


def test_a_single_outlier_is_clipped_by_entropy_and_percentile_but_not_by_minmax() -> None:
    values = np.append(np.random.default_rng(2).normal(size=100_000), 100.0)
    counts, extremes = count_values(values, 100.0, 2048), Extremes(float(values.min()), 100.0)
    highs: dict[CalibrationMethod, float] = {}
    for method in ("minmax", "entropy", "percentile"):
        highs[method] = choose_range(
            counts, extremes, QuantizeOptions(method, percentile=99.9, bins=2048)
        ).high
    assert highs["minmax"] == 100.0
    assert highs["entropy"] < 20
    assert highs["percentile"] < 20


def test_a_range_never_exceeds_what_was_seen() -> None:
    values = np.abs(np.random.default_rng(3).normal(size=1000)) + 0.5
    extremes = Extremes(float(values.min()), float(values.max()))
    for method in ("entropy", "percentile"):
        chosen = choose_range(count_values(values, extremes.limit, 2048), extremes, QuantizeOptions(method))
        assert extremes.low <= chosen.low <= chosen.high <= extremes.high


def test_infinite_and_dead_tensors_keep_their_extremes() -> None:
    counts = np.zeros(2048, np.int64)
    for extremes in (Extremes(-np.inf, 1), Extremes(0, 0)):
        for method in ("minmax", "entropy", "percentile"):
            assert choose_range(counts, extremes, QuantizeOptions(method)) == extremes


@pytest.mark.parametrize("seed", range(6))
def test_entropy_agrees_with_onnxruntime_on_the_same_bins(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.standard_t(df=2 + seed, size=4000) if seed % 2 else np.abs(random.laplace(size=4000))
    bins, levels = 256, 32
    limit = float(np.abs(values).max())
    counts, edges = np.histogram(values, bins=bins, range=(-limit, limit))
    collector = HistogramCollector("entropy", False, bins, levels, 99.9, "same")
    theirs = collector.get_entropy_threshold(
        (counts, edges, np.float64(-limit), np.float64(limit), limit), levels
    )
    ours = entropy_range(counts.astype(np.int64), limit, levels)
    assert ours == pytest.approx([float(t) for t in theirs])


def test_entropy_with_as_many_levels_as_bins_keeps_the_whole_range() -> None:
    values = np.append(np.random.default_rng(2).normal(size=10_000), 100.0)
    assert entropy_range(count_values(values, 100.0, 128), 100.0) == (-100.0, 100.0)


def test_an_odd_number_of_bins_is_made_even() -> None:
    assert bins_of(QuantizeOptions("percentile", bins=101)) == 102
    assert bins_of(QuantizeOptions("percentile")) == 2048


def test_wider_entropy_ranges_are_candidates_up_to_the_whole() -> None:
    # Two equal spikes at the ends: clipping either moves half of the mass.
    counts = np.zeros(2048, np.int64)
    counts[0] = counts[-1] = 1000
    assert entropy_range(counts, 1.0) == pytest.approx((-1.0, 1.0))
    widths = [
        entropy_range(count_values(np.random.default_rng(4).normal(size=n), 8.0, 2048), 8.0)[1]
        for n in (100, 10**5)
    ]
    assert all(a <= b for a, b in pairwise(widths))
