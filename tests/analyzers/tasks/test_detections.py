"""Threshold, image pixels, suppression."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.records import Array, Letterbox
from analyzers.tasks.detections import MAX_CANDIDATES, detect, suppress
from tests.analyzers.tasks.slow_detections import assert_same, slow_detections

WHOLE = Letterbox(200, 300, 1.0, 1.0, 0.0, 0.0, 200, 300)


def crowd(count: int, seed: int, spread: float = 6.0) -> Array:
    """Boxes that overlap in heaps, some of them outside the image."""
    rng = np.random.default_rng(seed)
    heaps = rng.uniform(-10, 310, (max(1, count // 12), 2))
    centres = heaps[rng.integers(0, len(heaps), count)] + rng.normal(0, spread, (count, 2))
    sizes = rng.uniform(5, 60, (count, 2))
    return np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)


@pytest.mark.parametrize("count", [1, 60, 400])
def test_detections_are_what_a_loop_finds(count: int) -> None:
    rng = np.random.default_rng(count)
    boxes, scores = crowd(count, count), rng.random((count, 3))
    image = Letterbox(150, 120, 1.3, 0.9, 7.0, 3.0, 200, 300)
    found = detect(boxes, scores, image, score_threshold=0.3, nms_iou=0.4, max_detections=60)
    rows = [(tuple(b.tolist()), float(scores[i, c]), c) for i, b in enumerate(boxes) for c in range(3)]
    expected = slow_detections(rows, image, score_threshold=0.3, nms_iou=0.4, max_detections=60)
    if count == 1:
        np.testing.assert_allclose(found, expected)
    else:
        assert_same(found, expected)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(0, 300), iou=st.sampled_from([0.2, 0.5, 0.8]))
def test_suppression_keeps_no_two_boxes_that_overlap_and_drops_none_without_cause(
    seed: int, count: int, iou: float
) -> None:
    rng = np.random.default_rng(seed)
    boxes = crowd(count, seed)
    scores = rng.integers(0, 20, count) / 20.0  # many ties
    classes = rng.integers(0, 2, count)
    kept = suppress(boxes, scores, classes, iou=iou, limit=10_000).tolist()
    rows = [(tuple(boxes[i].tolist()), float(scores[i]), int(classes[i])) for i in range(count)]
    image = Letterbox(10**6, 10**6, 1.0, 1.0, -(10.0**5), -(10.0**5))  # moves all boxes inside
    expected = slow_detections(rows, image, score_threshold=-1.0, nms_iou=iou, max_detections=10_000)
    np.testing.assert_array_equal(scores[kept], expected[:, 4])
    np.testing.assert_array_equal(classes[kept], expected[:, 5])
    np.testing.assert_allclose(boxes[kept] + 10.0**5, expected[:, :4])


def test_the_limit_is_a_prefix() -> None:
    boxes, scores = crowd(300, 1), np.random.default_rng(1).random(300)
    classes = np.zeros(300, int)
    everything = suppress(boxes, scores, classes, iou=0.5, limit=10_000)
    assert len(everything) > 20
    np.testing.assert_array_equal(suppress(boxes, scores, classes, iou=0.5, limit=20), everything[:20])


def test_the_best_candidates_enter_when_there_are_too_many() -> None:
    count = MAX_CANDIDATES + 500
    boxes = np.tile(np.array([[0.0, 0.0, 10.0, 10.0]]), (count, 1))
    scores = np.linspace(0.1, 0.9, count)[:, None]
    found = detect(boxes, scores, WHOLE, score_threshold=0.0, nms_iou=1.0, max_detections=count)
    np.testing.assert_allclose(found[:, 4], scores[::-1, 0][:MAX_CANDIDATES])


def test_values_that_are_no_numbers_are_no_detections() -> None:
    boxes = np.array([[0, 0, 10, 10], [np.nan, 0, 10, 10], [0, 0, np.inf, 10], [20, 20, 30, 30.0]])
    scores = np.array([[0.9], [0.9], [0.9], [np.nan]])
    found = detect(boxes, scores, WHOLE, score_threshold=0.1, nms_iou=0.5, max_detections=10)
    # An infinite corner is cut at the border of the image, as any box that leaves it.
    np.testing.assert_array_equal(found[:, :4], [[0, 0, 10, 10], [0, 0, 300, 10]])


def test_nothing_found_is_an_empty_table() -> None:
    found = detect(
        np.empty((0, 4)), np.empty((0, 3)), WHOLE, score_threshold=0.1, nms_iou=0.5, max_detections=5
    )
    assert found.shape == (0, 6)
