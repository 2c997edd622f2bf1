"""Signal to noise of outputs and their parts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analyzers.errors import TaskError
from analyzers.records import Array, Sample, Score, Slice
from analyzers.tasks.kinds import MetricSetup
from analyzers.tasks.metrics.slice_sqnr import SliceSqnrOptions
from analyzers.tasks.metrics.sqnr import SqnrOptions
from analyzers.tasks.noise import sqnr_db


def score_of(
    reference: list[dict[str, Array]],
    candidate: list[dict[str, Array]],
    slices: dict[str, tuple[Slice, ...]] | None = None,
) -> Score:
    setup = MetricSetup(("a",), tuple(reference[0]), slices or {})
    metric = (SqnrOptions() if slices is None else SliceSqnrOptions()).make(setup)
    assert metric.needs_reference
    seen = [metric.observe(Sample("s", {}), c, r) for r, c in zip(reference, candidate, strict=True)]
    return metric.score(["s"] * len(seen), seen)


def noisy(shape: tuple[int, ...], noise: float, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    signal = rng.normal(size=shape).astype(np.float32)
    return signal, (signal + noise * rng.normal(size=shape)).astype(np.float32)


def test_samples_are_pooled_and_the_lowest_output_counts() -> None:
    pairs = {(o, s): noisy((1, 5, 8), n, 10 * s + o) for o, n in ((0, 0.01), (1, 0.3)) for s in range(3)}
    reference = [{"a": pairs[0, s][0], "b": pairs[1, s][0]} for s in range(3)]
    candidate = [{"a": pairs[0, s][1], "b": pairs[1, s][1]} for s in range(3)]
    signal = sum(float((pairs[1, s][0].astype(float) ** 2).sum()) for s in range(3))
    noise = sum(float(((pairs[1, s][0].astype(float) - pairs[1, s][1]) ** 2).sum()) for s in range(3))
    score = score_of(reference, candidate)
    assert score.value == pytest.approx(10 * math.log10(signal / noise))
    assert (score.metric, score.unit, set(score.details)) == ("sqnr", "dB", {"a", "b"})
    assert score.details["a"] > 30 > score.value


def test_a_lost_slice_shows_where_the_whole_output_looks_healthy() -> None:
    rng = np.random.default_rng(0)
    boxes, scores = rng.uniform(0, 1500, (1, 4, 50)), rng.uniform(0, 1, (1, 3, 50))
    reference = np.concatenate([boxes, scores], axis=1)
    candidate = reference.copy()
    candidate[:, 4:] = 0.0
    cuts = {"y": (Slice(1, 0, 4, "boxes"), Slice(1, 4, 7, "scores"))}
    assert score_of([{"y": reference}], [{"y": candidate}]).value > 50
    score = score_of([{"y": reference}], [{"y": candidate}], cuts)
    assert score.value == pytest.approx(0.0)
    assert score.metric == "slice-sqnr"
    assert score.details["y[scores]"] == score.value
    assert score.details["y[boxes]"] == math.inf
    last = np.moveaxis(reference, 1, -1), np.moveaxis(candidate, 1, -1)
    cuts = {"y": (Slice(-1, 4, 7, ""),)}
    assert score_of([{"y": last[0]}], [{"y": last[1]}], cuts).value == pytest.approx(0.0)


def test_of_parts_that_share_a_name_the_lowest_is_shown_and_counts() -> None:
    reference, candidate = noisy((1, 6, 10), 0.01, 3)
    candidate[:, :2] += 1.0
    parts = tuple(Slice(1, i, i + 2, "same") for i in (0, 2, 4))
    score = score_of([{"y": reference}], [{"y": candidate}], {"y": parts})
    alone = score_of([{"y": reference}], [{"y": candidate}], {"y": parts[:1]})
    assert score.value == score.details["y[same]"] == alone.value < 5


def test_values_undefined_on_both_sides_are_left_out() -> None:
    reference, candidate = noisy((1, 40), 0.1, 1)
    expected = score_of([{"y": reference[:, :30]}], [{"y": candidate[:, :30]}]).value
    reference[:, 30:] = candidate[:, 30:] = np.nan
    reference[:, 35] = -np.inf
    assert score_of([{"y": reference}], [{"y": candidate}]).value == pytest.approx(expected)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_values_undefined_on_one_side_are_the_worst_there_is(value: float, side: int) -> None:
    pair = noisy((1, 40), 0.1, 1)
    pair[side][0, 3] = value
    assert score_of([{"y": pair[0]}], [{"y": pair[1]}]).value == -math.inf


@pytest.mark.parametrize(
    ("signal", "noise", "expected"),
    [(100.0, 1.0, 20.0), (1.0, 0.0, math.inf), (0.0, 1.0, -math.inf), (1e-30, 1e3, -330.0)],
)
def test_decibels(signal: float, noise: float, expected: float) -> None:
    assert sqnr_db(signal, noise) == pytest.approx(expected)


def test_nothing_on_both_sides_is_undefined_and_does_not_hide_other_outputs() -> None:
    assert math.isnan(sqnr_db(0.0, 0.0))
    zero = np.zeros((1, 4))
    reference, candidate = noisy((1, 40), 0.1, 1)
    score = score_of([{"y": reference, "z": zero}], [{"y": candidate, "z": zero}])
    assert math.isnan(score.details["z"])
    assert score.value == score.details["y"]
    assert math.isnan(score_of([{"z": zero}], [{"z": zero}]).value)


def test_class_numbers_are_measured_only_where_there_is_nothing_else() -> None:
    signal, noisy_signal = noisy((1, 40), 0.1, 1)
    numbers, others = np.arange(40), np.arange(40)[::-1]
    score = score_of([{"y": signal, "n": numbers}], [{"y": noisy_signal, "n": others}])
    assert score.value == score.details["y"]
    assert math.isnan(score.details["n"])
    assert score_of([{"n": numbers}], [{"n": others}]).value < 3


def test_large_values_do_not_overflow() -> None:
    reference = np.full((1, 4), 3e30, np.float32)
    assert score_of([{"y": reference}], [{"y": reference * np.float32(1.1)}]).value == pytest.approx(
        20.0, abs=0.01
    )


def test_outputs_that_cannot_be_subtracted_are_refused() -> None:
    for candidate, code in (({"y": np.zeros((1, 5))}, "output_shapes_differ"), ({"x": 0}, "output_missing")):
        with pytest.raises(TaskError) as caught:
            score_of([{"y": np.zeros((1, 4))}], [candidate])  # type: ignore[list-item]
        assert caught.value.code == code
