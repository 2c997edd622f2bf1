"""Which detections found an object, image by image, so that AP of any resample needs no model run.

COCO's evaluators match within an image and only then accumulate over images. Keeping the first step makes
AP of a weighted set of images (a bootstrap resample, a half) a matter of milliseconds.
Source: ``COCOeval.evaluateImg`` and ``accumulate`` of https://github.com/cocodataset/cocoapi.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.records import Array
from analyzers.tasks.coco import IOU_THRESHOLDS, MAX_DETECTIONS, Truth

_THRESHOLDS = np.asarray(IOU_THRESHOLDS)[:, None]
_RECALLS = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True, slots=True, eq=False)
class ImageMatches:
    """The detections of one image, matched; sizes of objects play no role.

    Attributes:
        scores: ``(N,)``, best first within a category.
        categories: ``(N,)`` category ids.
        is_found: ``(10, N)``: at each IoU threshold, the detection found an object.
        is_ignored: ``(10, N)``: it lies on a crowd, and counts neither as right nor as wrong.
        objects: Category id -> number of objects to find.
    """

    scores: NDArray[np.float64]
    categories: NDArray[np.int64]
    is_found: NDArray[np.bool_]
    is_ignored: NDArray[np.bool_]
    objects: dict[int, int]


def match_image(truth: Truth, image_id: int, detections: Array) -> ImageMatches:
    """Match the detections of one image with its objects.

    Args:
        truth: Ground truth that holds the image.
        image_id: The image.
        detections: ``(N, 6)``: x1, y1, x2, y2 in pixels, score, category id.
    """
    rows = np.flatnonzero(truth.image_ids == image_id)
    parts = []
    for category in np.unique(detections[:, 5]).astype(np.int64).tolist():
        mine = detections[detections[:, 5] == category]
        mine = mine[np.argsort(-mine[:, 4], kind="stable")][:MAX_DETECTIONS]
        found, ignored = _match(mine, truth, rows[truth.category_ids[rows] == category])
        parts.append((mine[:, 4], np.full(len(mine), category), found, ignored))
    to_find = truth.category_ids[rows[~truth.is_crowd[rows]]]
    categories, counts = np.unique(to_find, return_counts=True)
    empty = (np.empty(0), np.empty(0, np.int64), *(np.empty((len(_THRESHOLDS), 0), np.bool_),) * 2)
    scores, labels, found, ignored = (np.concatenate(p, axis=-1) for p in zip(empty, *parts, strict=True))
    return ImageMatches(
        scores, labels, found, ignored, dict(zip(categories.tolist(), counts.tolist(), strict=True))
    )


def average_precision(matches: Sequence[ImageMatches], weights: Sequence[float] | None = None) -> float:
    """Return COCO AP over IoU 0.50 to 0.95 of a weighted set of images.

    Args:
        matches: One record for each image.
        weights: How often each image counts; once without.

    Returns:
        AP in 0..1, the mean over categories with objects; ``nan`` if there is none.
    """
    weight = np.ones(len(matches)) if weights is None else np.asarray(weights, np.float64)
    return prepared_precision(matches)(weight)


def prepared_precision(matches: Sequence[ImageMatches]) -> Callable[[NDArray[np.float64]], float]:
    """Return AP as a function of how often each image counts; sorting is done once for all weights."""
    if not matches:
        return lambda _: float("nan")
    owners = np.repeat(np.arange(len(matches)), [len(m.scores) for m in matches])
    scores, categories, found, ignored = (
        np.concatenate([getattr(m, name) for m in matches], axis=-1)
        for name in ("scores", "categories", "is_found", "is_ignored")
    )
    order = np.argsort(-scores, kind="stable")
    tables = []
    for category in sorted({category for m in matches for category in m.objects}):
        mine = order[categories[order] == category]
        right = (found[:, mine] & ~ignored[:, mine]).astype(np.float64)
        wrong = (~found[:, mine] & ~ignored[:, mine]).astype(np.float64)
        objects = np.array([m.objects.get(category, 0) for m in matches], np.float64)
        tables.append((owners[mine], right, wrong, objects))

    def score(weights: NDArray[np.float64]) -> float:
        values = []
        for owner, right, wrong, objects in tables:
            total = float(objects @ weights)
            if total > 0:
                times = weights[owner]
                counted = times > 0
                kept = times[counted]
                values.append(_mean_precision(right[:, counted] * kept, wrong[:, counted] * kept, total))
        return float(np.mean(values)) if values else float("nan")

    return score


def _match(detections: Array, truth: Truth, rows: Array) -> tuple[Array, Array]:
    """Give each detection, best first, the object that it overlaps most and that is still free."""
    found = np.zeros((len(_THRESHOLDS), len(detections)), np.bool_)
    ignored = np.zeros_like(found)
    if not len(rows):
        return found, ignored
    crowd = truth.is_crowd[rows]
    overlaps = _overlaps(detections[:, :4], truth.boxes[rows], crowd)
    taken = np.zeros((len(_THRESHOLDS), len(rows)), np.bool_)
    levels = np.arange(len(_THRESHOLDS))
    for column, overlap in enumerate(overlaps):
        is_free = (~taken | crowd) & (overlap >= _THRESHOLDS)
        # Objects come before crowds; of equal overlaps the last one is taken, as COCO does.
        rank = np.where(is_free, overlap + np.where(crowd, 0.0, 2.0), -1.0)
        best = len(rows) - 1 - np.argmax(rank[:, ::-1], axis=1)
        is_match = is_free[levels, best]
        taken[levels[is_match], best[is_match]] = True
        found[:, column] = is_match
        ignored[:, column] = is_match & crowd[best]
    return found, ignored


def _overlaps(boxes: Array, objects: Array, crowd: Array) -> Array:
    """Return ``(N, M)`` intersection over union; over the detection's own area for crowds."""
    corner = np.concatenate([objects[:, :2], objects[:, :2] + objects[:, 2:]], axis=1)[None]
    sides = np.minimum(boxes[:, None, 2:], corner[..., 2:]) - np.maximum(boxes[:, None, :2], corner[..., :2])
    shared = np.prod(np.maximum(sides, 0.0), axis=-1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)[:, None]
    union = np.where(crowd, areas, areas + np.prod(objects[:, 2:], axis=1) - shared)
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def _mean_precision(right: Array, wrong: Array, objects: float) -> float:
    """Return the mean interpolated precision over recalls and IoU thresholds."""
    true, false = np.cumsum(right, axis=1), np.cumsum(wrong, axis=1)
    recall = true / objects
    precision = true / np.maximum(true + false, np.spacing(1.0))
    precision = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    padded = np.concatenate([precision, np.zeros((len(precision), 1))], axis=1)
    sampled = [row[np.searchsorted(r, _RECALLS, side="left")] for row, r in zip(padded, recall, strict=True)]
    return float(np.mean(sampled))
