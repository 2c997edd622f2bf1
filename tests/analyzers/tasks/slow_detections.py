"""Detections computed one box at a time, with nothing shared with the code under test."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from analyzers.records import Array, Letterbox

Box = tuple[float, float, float, float]


def overlap(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def slow_detections(
    candidates: Sequence[tuple[Box, float, int]],
    image: Letterbox,
    *,
    score_threshold: float,
    nms_iou: float,
    max_detections: int,
) -> Array:
    """Filter ``(box in input pixels, score, class)`` rows as a person would with a pencil."""
    usable = []
    for (x1, y1, x2, y2), score, label in candidates:
        if not score > score_threshold:
            continue
        left, right = ((x - image.pad_x) / image.scale_x for x in (x1, x2))
        top, bottom = ((y - image.pad_y) / image.scale_y for y in (y1, y2))
        if not all(math.isfinite(v) for v in (left, top, right, bottom)):
            continue
        left, right = (min(max(x, 0.0), float(image.width)) for x in (left, right))
        top, bottom = (min(max(y, 0.0), float(image.height)) for y in (top, bottom))
        usable.append(((left, top, right, bottom), score, label))
    usable.sort(key=lambda row: -row[1])
    kept: list[tuple[Box, float, int]] = []
    for box, score, label in usable:
        if all(label != other or overlap(box, best) <= nms_iou for best, _, other in kept):
            kept.append((box, score, label))
    rows = [[*box, score, label] for box, score, label in kept[:max_detections]]
    return np.array(rows, np.float64).reshape(-1, 6)


def assert_same(found: Array, expected: Array) -> None:
    """Compare detections; the test is void without any."""
    assert len(expected) > 3
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
