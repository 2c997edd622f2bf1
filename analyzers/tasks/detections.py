"""From boxes and scores of one image to its detections: threshold, image pixels, suppression."""

from __future__ import annotations

import numpy as np

from analyzers.records import Array, Letterbox

MAX_CANDIDATES = 3000  # boxes that enter the suppression, best first
COLUMNS = 6
_BLOCK = 128


def detect(
    boxes: Array,
    scores: Array,
    image: Letterbox,
    *,
    score_threshold: float,
    nms_iou: float,
    max_detections: int,
) -> Array:
    """Return the detections among candidate boxes; every class of a box counts on its own.

    Args:
        boxes: ``(N, 4)`` xyxy in pixels of the network's input.
        scores: ``(N, C)`` per class, higher is better.
        image: Where the image is in the network's input.
        score_threshold: Scores have to exceed it.
        nms_iou: A box of the same class that overlaps a better one by more is dropped.
        max_detections: Of one image, over all classes.

    Returns:
        ``(M, 6)`` float64, best first: x1, y1, x2, y2 in image pixels, score, class index.
    """
    rows, classes = np.nonzero(scores > score_threshold)
    values = scores[rows, classes].astype(np.float64)
    if len(values) > MAX_CANDIDATES:
        best = np.argsort(-values, kind="stable")[:MAX_CANDIDATES]
        rows, classes, values = rows[best], classes[best], values[best]
    found = to_image(boxes[rows], image)
    is_usable = np.isfinite(found).all(axis=1) & np.isfinite(values)
    found, values, classes = found[is_usable], values[is_usable], classes[is_usable]
    kept = suppress(found, values, classes, iou=nms_iou, limit=max_detections)
    return assemble(found[kept], values[kept], classes[kept])


def assemble(boxes: Array, scores: Array, classes: Array) -> Array:
    """Return detections as one ``(N, 6)`` float64 array."""
    return np.concatenate([boxes, scores[:, None], classes[:, None]], axis=1, dtype=np.float64)


def to_image(boxes: Array, image: Letterbox) -> Array:
    """Return xyxy boxes in image pixels, cut at the image's border, as float64."""
    moved = boxes.astype(np.float64)
    moved[:, 0::2] = np.clip((moved[:, 0::2] - image.pad_x) / image.scale_x, 0.0, image.width)
    moved[:, 1::2] = np.clip((moved[:, 1::2] - image.pad_y) / image.scale_y, 0.0, image.height)
    return moved


def corners(centres: Array, sizes: Array) -> Array:
    """Return xyxy boxes from ``(N, 2)`` centres and sizes."""
    return np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1)


def suppress(boxes: Array, scores: Array, classes: Array, *, iou: float, limit: int) -> Array:
    """Return the indices that non-maximum suppression keeps, best first; equal scores keep their order.

    Boxes are taken in blocks, best first: a block is compared with what is kept already, then with itself.

    Args:
        boxes: ``(N, 4)`` xyxy.
        scores: ``(N,)``.
        classes: ``(N,)``; boxes of different classes never suppress each other.
        iou: Largest overlap that two boxes of a class may have.
        limit: Stop after so many.
    """
    order = np.argsort(-scores, kind="stable")
    boxes, classes = boxes[order], classes[order]
    kept = np.empty(0, np.int64)
    for start in range(0, len(order), _BLOCK):
        block = np.arange(start, min(start + _BLOCK, len(order)))
        block = block[~_overlaps(boxes, classes, kept, block, iou).any(axis=0)]
        rivals = _overlaps(boxes, classes, block, block, iou)
        is_alive = np.ones(len(block), np.bool_)
        for i in range(len(block)):
            if is_alive[i]:
                is_alive[i + 1 :] &= ~rivals[i, i + 1 :]
        kept = np.concatenate([kept, block[is_alive]])
        if len(kept) >= limit:
            break
    return np.asarray(order[kept[:limit]])


def _overlaps(boxes: Array, classes: Array, some: Array, others: Array, iou: float) -> Array:
    """Tell for each pair of ``some`` and ``others`` whether they overlap too much to be kept both."""
    a, b = boxes[some][:, None], boxes[others][None]
    widths = np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0])
    heights = np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1])
    shared = np.maximum(widths, 0.0) * np.maximum(heights, 0.0)
    area_a, area_b = (np.prod(np.maximum(x[..., 2:] - x[..., :2], 0.0), axis=-1) for x in (a, b))
    is_same_class = classes[some][:, None] == classes[others][None]
    return np.asarray((shared > iou * (area_a + area_b - shared)) & is_same_class)
