from __future__ import annotations

import numpy as np
import pytest

from analyzers.errors import TaskError
from analyzers.tasks.decoders.ultraface import UltraFace
from tests.analyzers.tasks.decoders.heads import IMAGE, uniform
from tests.analyzers.tasks.slow_detections import assert_same, slow_detections

LIMITS = {"score_threshold": 0.3, "nms_iou": 0.4, "max_detections": 30}
BOXES = 90


def test_it_finds_what_a_loop_over_boxes_finds() -> None:
    scores = uniform((1, BOXES, 2), 0.0, 1.0)
    corner = uniform((1, BOXES, 2), -0.1, 0.8, seed=1)
    boxes = np.concatenate([corner, corner + uniform((1, BOXES, 2), 0.05, 0.4, seed=2)], axis=2)
    candidates = [
        ((x1 * 96, y1 * 64, x2 * 96, y2 * 64), score, 0)
        for (x1, y1, x2, y2), (_, score) in zip(boxes[0].tolist(), scores[0].tolist(), strict=True)
    ]
    found = UltraFace(**LIMITS)({"scores": scores, "boxes": boxes}, IMAGE)
    assert_same(found, slow_detections(candidates, IMAGE, **LIMITS))


@pytest.mark.parametrize(
    ("scores", "boxes", "expected"),
    [
        ((1, 9, 2), (1, 9, 5), r"\(1, N, 4\)"),
        ((1, 8, 2), (1, 9, 4), r"\(1, 9, 1 \+ "),
        ((1, 9, 1), (1, 9, 4), "1 + "),
    ],
)
def test_another_shape_is_an_error_that_names_the_expected_one(
    scores: tuple[int, ...], boxes: tuple[int, ...], expected: str
) -> None:
    outputs = {"scores": np.zeros(scores, np.float32), "boxes": np.zeros(boxes, np.float32)}
    with pytest.raises(
        TaskError, match=expected.replace("1 + ", r"1 \+ ") if "\\" not in expected else expected
    ):
        UltraFace()(outputs, IMAGE)
