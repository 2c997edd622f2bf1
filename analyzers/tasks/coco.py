"""COCO's average precision, computed by faster-coco-eval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from faster_coco_eval import COCO, COCOeval_faster
from numpy.typing import NDArray

from analyzers.records import Array
from analyzers.tasks.annotations import AnnotatedImage, Annotations

MAX_DETECTIONS = 100  # per image and class
IOU_THRESHOLDS: tuple[float, ...] = tuple(np.linspace(0.5, 0.95, 10).tolist())
_ALL, _SMALL, _MEDIUM, _LARGE = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """Ground truth of the images that can be scored.

    Attributes:
        categories: Category id -> name.
        image_ids: ``(N,)`` image of each object.
        category_ids: ``(N,)``.
        boxes: ``(N, 4)`` x, y, width, height in image pixels.
        areas: ``(N,)`` square pixels.
        is_crowd: ``(N,)``.
    """

    categories: dict[int, str]
    image_ids: NDArray[np.int64]
    category_ids: NDArray[np.int64]
    boxes: NDArray[np.float64]
    areas: NDArray[np.float64]
    is_crowd: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class CocoResult:
    """COCO's numbers in 0..1; ``nan`` where no object counts.

    Attributes:
        ap: Mean over IoU 0.50 to 0.95.
        ap50: At IoU 0.50.
        ap75: At IoU 0.75.
        small: AP of objects under 32 x 32 pixels.
        medium: AP of objects up to 96 x 96.
        large: AP of larger ones.
        recall: Average recall at 100 detections.
        classes: Category id -> AP.
    """

    ap: float
    ap50: float
    ap75: float
    small: float
    medium: float
    large: float
    recall: float
    classes: dict[int, float]


def make_truth(annotations: Annotations, images: Iterable[AnnotatedImage]) -> Truth:
    """Return the ground truth of some images."""
    rows = np.isin(annotations.image_ids, [image.id for image in images])
    return Truth(
        categories=annotations.categories,
        image_ids=annotations.image_ids[rows],
        category_ids=annotations.category_ids[rows],
        boxes=annotations.boxes[rows],
        areas=annotations.areas[rows],
        is_crowd=annotations.is_crowd[rows],
    )


def evaluate(truth: Truth, image_ids: Sequence[int], detections: Sequence[Array]) -> CocoResult:
    """Score detections.

    Args:
        truth: Ground truth of at least these images.
        image_ids: The images, each once.
        detections: For each image ``(M, 6)``: x1, y1, x2, y2 in pixels, score, category id.
    """
    images = [{"id": i} for i in image_ids]
    categories = [{"id": i, "name": name} for i, name in truth.categories.items()]
    parts = {"images": images, "categories": categories}
    objects = COCO({**parts, "annotations": _objects(truth, image_ids)})
    found = COCO({**parts, "annotations": _found(image_ids, detections)})
    evaluator = COCOeval_faster(objects, found, "bbox", separate_eval=True)
    evaluator.params.maxDets = [MAX_DETECTIONS]
    evaluator.evaluate()  # type: ignore[no-untyped-call]
    evaluator.accumulate()  # type: ignore[no-untyped-call]
    precision = np.asarray(evaluator.eval["precision"])[..., 0]  # IoU, recall, class, area
    recall = np.asarray(evaluator.eval["recall"])[..., 0]  # IoU, class, area
    return CocoResult(
        ap=_mean(precision[..., _ALL]),
        ap50=_mean(precision[0, ..., _ALL]),
        ap75=_mean(precision[5, ..., _ALL]),
        small=_mean(precision[..., _SMALL]),
        medium=_mean(precision[..., _MEDIUM]),
        large=_mean(precision[..., _LARGE]),
        recall=_mean(recall[..., _ALL]),
        classes={c: _mean(precision[:, :, k, _ALL]) for k, c in enumerate(sorted(truth.categories))},
    )


def details(result: CocoResult) -> dict[str, float]:
    """Return the numbers over all classes under COCO's names, for ``Score.details``."""
    return {
        "AP": result.ap,
        "AP50": result.ap50,
        "AP75": result.ap75,
        "APs": result.small,
        "APm": result.medium,
        "APl": result.large,
        "AR100": result.recall,
    }


def _objects(truth: Truth, image_ids: Sequence[int]) -> list[dict[str, object]]:
    """Return annotations numbered from 1: the evaluators take id 0 for "unmatched"."""
    rows = np.flatnonzero(np.isin(truth.image_ids, list(image_ids))).tolist()
    return [
        {
            "id": number,
            "image_id": int(truth.image_ids[row]),
            "category_id": int(truth.category_ids[row]),
            "bbox": truth.boxes[row].tolist(),
            "area": float(truth.areas[row]),
            "iscrowd": int(truth.is_crowd[row]),
        }
        for number, row in enumerate(rows, start=1)
    ]


def _found(image_ids: Sequence[int], detections: Sequence[Array]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for image_id, rows in zip(image_ids, detections, strict=True):
        for x1, y1, x2, y2, score, category in rows.tolist():
            found.append(
                {
                    "id": len(found) + 1,
                    "image_id": image_id,
                    "category_id": int(category),
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "area": (x2 - x1) * (y2 - y1),
                    "score": score,
                    "iscrowd": 0,
                }
            )
    return found


def _mean(values: Array) -> float:
    """Return the mean of what is defined; the evaluator marks the rest with -1."""
    defined = values[values > -1]
    return float(defined.mean()) if defined.size else float("nan")
