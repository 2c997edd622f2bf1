"""Score the sample detector without the product: NumPy decoding and pycocotools.

The model card's second column comes from here, so nothing of ``analyzers`` is used.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from sample_models import priors

Floats = NDArray[np.float32]
LEAST_SCORE = 0.01
NMS_IOU = 0.5
MOST_DETECTIONS = 100


def read_input(path: Path) -> Floats:
    """Return a picture as the networks read it: (1, 3, H, W) RGB, (value - 127.5) / 127.5."""
    return to_input(np.asarray(cv2.imread(str(path))))


def to_input(image: NDArray[np.uint8]) -> Floats:
    """Return a BGR picture (H, W, 3) as network input."""
    rgb = image[:, :, ::-1].astype(np.float32)
    return np.ascontiguousarray(((rgb - 127.5) / 127.5).transpose(2, 0, 1)[None])


def decode(loc: Floats, prior: Floats, *, size: float = priors.INPUT_SIZE) -> Floats:
    """Return boxes (N, 4) xyxy in pixels from coded boxes and priors, both (N, 4)."""
    centre = loc[:, :2] * priors.VARIANCES[0] * prior[:, 2:] + prior[:, :2]
    half = np.exp(loc[:, 2:] * priors.VARIANCES[1]) * prior[:, 2:] / 2
    return np.asarray(np.concatenate([centre - half, centre + half], 1) * np.float32(size), np.float32)


def suppress(boxes: Floats, scores: Floats) -> NDArray[np.int64]:
    """Return the indices of at most 100 boxes that greedy non-maximum suppression keeps, best first."""
    order = np.argsort(-scores, kind="stable")
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while len(order) and len(kept) < MOST_DETECTIONS:
        first, rest = order[0], order[1:]
        kept.append(first)
        low = np.maximum(boxes[first, :2], boxes[rest, :2])
        high = np.minimum(boxes[first, 2:], boxes[rest, 2:])
        shared = np.clip(high - low, 0, None).prod(1)
        order = rest[shared <= NMS_IOU * (area[first] + area[rest] - shared)]
    return np.asarray(kept, np.int64)


def detections(boxes: Floats, scores: Floats) -> NDArray[np.float64]:
    """Return up to 100 rows (x, y, w, h, score, category id) from boxes (N, 4) and scores (N, classes)."""
    boxes = np.clip(boxes, 0, priors.INPUT_SIZE)
    found = []
    for label in range(scores.shape[1]):
        column = scores[:, label]
        chosen = np.nonzero(column > LEAST_SCORE)[0]
        kept = chosen[suppress(boxes[chosen], column[chosen])]
        extent = boxes[kept, 2:] - boxes[kept, :2]
        tail = np.stack([column[kept], np.full(len(kept), label + 1)], 1)
        found.append(np.concatenate([boxes[kept, :2], extent, tail], 1))
    rows = np.concatenate(found).astype(np.float64)
    return rows[np.argsort(-rows[:, 4], kind="stable")[:MOST_DETECTIONS]]


def average_precision(
    truth: dict[str, list[dict[str, object]]], results: list[NDArray[np.float64]]
) -> NDArray[np.float64]:
    """Return pycocotools' twelve numbers, COCO AP first; ``results`` in order of the truth's images."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    rows = [
        {"image_id": image["id"], "category_id": int(row[5]), "bbox": row[:4].tolist(), "score": row[4]}
        for image, found in zip(truth["images"], results, strict=True)
        for row in found
    ]
    if not rows:
        return np.zeros(12)
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = truth
        coco.createIndex()
        scorer = COCOeval(coco, coco.loadRes(rows), "bbox")
        scorer.evaluate()
        scorer.accumulate()
        scorer.summarize()
    return np.asarray(scorer.stats)


def read_outputs(outputs: list[Floats]) -> tuple[Floats, Floats]:
    """Return boxes (N, 4) xyxy in pixels and scores (N, classes) of either export."""
    if len(outputs) == 2:
        loc, logits = outputs[0][0], outputs[1][0]
        return decode(loc, priors.prior_boxes()), 1 / (1 + np.exp(-logits))
    rows = outputs[0][0]
    return np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], 1), rows[:, 4:]


def score_detector(
    run: Callable[[Floats], list[Floats]], folder: Path, annotations: Path
) -> NDArray[np.float64]:
    """Score ``run`` (input -> the model's outputs) over a folder of pictures; COCO AP comes first."""
    truth = json.loads(annotations.read_text(encoding="utf-8"))
    results = []
    for image in truth["images"]:
        outputs = run(read_input(folder / image["file_name"]))
        results.append(detections(*read_outputs(outputs)))
    return average_precision(truth, results)


def score_classifier(run: Callable[[Floats], list[Floats]], folder: Path, labels: Path) -> float:
    """Return the share of pictures whose best class is their label."""
    lines = [line.split() for line in labels.read_text(encoding="utf-8").splitlines()]
    hits = [int(np.argmax(run(read_input(folder / name))[0])) == int(label) for name, label in lines]
    return float(np.mean(hits))
