"""The prior boxes of the sample detector and which thing each of them learns."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

INPUT_SIZE = 320
STRIDES = (8, 16, 32, 64)
# Side lengths in pixels per stride; each comes square and upright (half as wide as high).
SIDES: tuple[tuple[float, float], ...] = ((16.0, 26.0), (42.0, 64.0), (92.0, 132.0), (180.0, 250.0))
RATIOS = (1.0, 0.5)
PER_CELL = 4
# Caffe's factors on coded centres and sizes.
VARIANCES = (0.1, 0.2)


@lru_cache(maxsize=4)
def prior_boxes(size: int = INPUT_SIZE) -> NDArray[np.float32]:
    """Return all priors of a square input, (N, 4) as centre x, centre y, width, height in 0..1.

    Order: stride by stride, cells row by row, within a cell side by side, square before upright. This is the
    order in which the heads' outputs are laid out.
    """
    rows = []
    for stride, sides in zip(STRIDES, SIDES, strict=True):
        cells = size // stride
        for y in range(cells):
            for x in range(cells):
                for side in sides:
                    for ratio in RATIOS:
                        root = ratio**0.5
                        rows.append(((x + 0.5) * stride, (y + 0.5) * stride, side * root, side / root))
    boxes = np.asarray(rows, np.float32) / np.float32(size)
    boxes.flags.writeable = False
    return boxes


def match(
    boxes: NDArray[np.float32], labels: NDArray[np.int64], priors: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Assign a thing, or background, to every prior.

    Args:
        boxes: (n, 4) xyxy in 0..1.
        labels: (n,) class indices from 0.
        priors: (N, 4) centre form in 0..1.

    Returns:
        Boxes (N, 4) centre form and targets (N,): 0 background, -1 not counted, else class + 1.
    """
    count = len(priors)
    assigned, target = np.zeros((count, 4), np.float32), np.zeros(count, np.int64)
    if not len(boxes):
        assigned[:] = priors
        return assigned, target
    left, top = priors[:, 0] - priors[:, 2] / 2, priors[:, 1] - priors[:, 3] / 2
    right, bottom = priors[:, 0] + priors[:, 2] / 2, priors[:, 1] + priors[:, 3] / 2
    prior_area = priors[:, 2] * priors[:, 3]
    overlap = np.empty((len(boxes), count), np.float32)
    for row, (x0, y0, x1, y1) in zip(overlap, boxes.tolist(), strict=True):
        width = np.clip(np.minimum(right, x1) - np.maximum(left, x0), 0, None)
        shared = width * np.clip(np.minimum(bottom, y1) - np.maximum(top, y0), 0, None)
        row[:] = shared / (prior_area + (x1 - x0) * (y1 - y0) - shared)
    best_thing, best = overlap.argmax(0), overlap.max(0)
    for thing in np.argsort(overlap.max(1)):  # every thing gets its best priors, however poor
        for prior in np.argpartition(overlap[thing], -2)[-2:]:
            if overlap[thing, prior] > 0.2 or prior == overlap[thing].argmax():
                best_thing[prior], best[prior] = thing, max(best[prior], 0.99)
    target = np.where(best >= 0.5, labels[best_thing] + 1, np.where(best >= 0.4, -1, 0))
    chosen = boxes[best_thing]
    assigned = np.concatenate([(chosen[:, :2] + chosen[:, 2:]) / 2, chosen[:, 2:] - chosen[:, :2]], 1)
    return assigned.astype(np.float32), target
