"""The contract that every per-tensor metric keeps, and their values by table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analyzers import metrics, moments
from analyzers.measure import measure
from analyzers.metrics import TensorMetric
from analyzers.records import Array, Quantization

UNIT = Quantization(np.array(1.0, np.float32), np.array(0), "int16")
ALL = list(metrics.all_metrics().values())
by_name = pytest.mark.parametrize("metric", ALL, ids=lambda m: m.name)


def score(name: str, a: list[float], b: list[float]) -> float:
    pair = measure(np.array(a, np.float32), np.array(b, np.float32))
    return metrics.value(metrics.all_metrics()[name], pair.whole)


def distance(metric: TensorMetric, value: float) -> float:
    """How far from best, larger is worse."""
    if metric.direction == "closer":
        return abs(value - metric.best)
    return -value if metric.direction == "higher" else value


def test_the_folder_holds_the_metrics_of_a_layer_record() -> None:
    assert [m.name for m in ALL] == [
        "cosine",
        "max_error",
        "mean_error",
        "norm_ratio",
        "rmse_scale",
        "sqnr_db",
    ]


@by_name
def test_equal_tensors_score_best(metric: TensorMetric) -> None:
    a = np.arange(-5, 6)
    whole = measure(a.astype(np.float32), a.astype(np.int16), quantization=UNIT).whole
    assert metrics.value(metric, whole) == pytest.approx(metric.best, abs=1e-15)


@by_name
def test_more_noise_never_scores_better(metric: TensorMetric) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((1, 4, 50)).astype(np.float32) * 100
    noise = np.abs(rng.standard_normal(a.shape)) * np.sign(a)
    found = []
    for size in (2.0, 10.0, 50.0):
        codes = np.rint(a + size * noise + 0.5 * size).astype(np.int16)
        found.append(distance(metric, metrics.value(metric, measure(a, codes, quantization=UNIT).whole)))
    assert found == sorted(found)
    assert found[0] < found[-1]


@by_name
@pytest.mark.parametrize("values", [[], [math.nan, math.inf]], ids=["empty", "nothing finite"])
def test_nothing_to_compare_is_undefined(metric: TensorMetric, values: list[float]) -> None:
    a = np.array(values, np.float32)
    assert math.isnan(metrics.value(metric, measure(a, np.zeros(a.shape, np.int16), quantization=UNIT).whole))


@by_name
def test_a_metric_of_groups_is_the_metric_of_each_group(metric: TensorMetric) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 5, 30)).astype(np.float32) * 100
    channels = measure(a, np.rint(a * 1.1).astype(np.int16), quantization=UNIT).channels
    assert channels is not None
    found = metric.function(channels)
    assert found.shape == (5,)
    assert found.tolist() == [metrics.value(metric, channels[c]) for c in range(5)]


@pytest.mark.parametrize(
    ("name", "a", "b", "wanted"),
    [
        ("cosine", [1, 0], [0, 1], 0.0),
        ("cosine", [1, 2, 3], [2, 4, 6], 1.0),  # blind to gain
        ("cosine", [1, 2, 3], [-1, -2, -3], -1.0),
        ("cosine", [0, 0], [0, 0], math.nan),
        ("cosine", [1, 2], [0, 0], math.nan),
        ("cosine", [3, 3], [7, 7], math.nan),
        ("cosine", [1e-30, -1e-30], [1e-30, 1e-30], 0.0),
        ("sqnr_db", [10, 0], [9, 0], 20.0),
        ("sqnr_db", [1, 2], [0, 0], 0.0),
        ("sqnr_db", [1, 2], [2, 4], 0.0),
        ("sqnr_db", [0, 0], [1, 0], -math.inf),
        ("sqnr_db", [0, 0], [0, 0], math.nan),
        ("sqnr_db", [3], [3], math.inf),
        ("norm_ratio", [3, 4], [6, 8], 2.0),
        ("norm_ratio", [3, 4], [0, 0], 0.0),
        ("norm_ratio", [0, 0], [0, 1], math.inf),
        ("norm_ratio", [0, 0], [0, 0], math.nan),
        ("rmse_scale", [1, 2], [1, 2], math.nan),
        ("mean_error", [1, 2], [2, 5], 2.0),
        ("max_error", [1, 2], [2, -5], 7.0),
        ("max_error", [1, math.nan], [4, 100], 3.0),
    ],
)
def test_values(name: str, a: list[float], b: list[float], wanted: float) -> None:
    assert score(name, a, b) == pytest.approx(wanted, nan_ok=True, abs=1e-12)


def test_ideal_rounding_has_an_error_of_one_over_the_root_of_twelve_steps() -> None:
    a: Array = np.random.default_rng(0).uniform(-1000, 1000, 200_000).astype(np.float32)
    whole = measure(a, np.rint(a).astype(np.int16), quantization=UNIT).whole
    assert metrics.value(metrics.all_metrics()["rmse_scale"], whole) == pytest.approx(12**-0.5, rel=0.01)


def test_a_metric_of_the_neutral_element_is_undefined() -> None:
    assert all(math.isnan(metrics.value(m, moments.empty())) for m in ALL)
