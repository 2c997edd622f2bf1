from __future__ import annotations

import numpy as np
import pytest

from analyzers.errors import TaskError
from analyzers.tasks.decoders.yolov8 import Yolov8
from tests.analyzers.tasks.decoders.heads import IMAGE, uniform
from tests.analyzers.tasks.slow_detections import assert_same, slow_detections

LIMITS = {"score_threshold": 0.3, "nms_iou": 0.5, "max_detections": 30}
BOXES = 120


def rows_of(width: int) -> np.ndarray:
    rows = uniform((BOXES, width), 0.0, 1.0)
    rows[:, :2] = uniform((BOXES, 2), -5.0, 100.0, seed=1)
    rows[:, 2:4] = uniform((BOXES, 2), 4.0, 40.0, seed=2)
    return rows


@pytest.mark.parametrize("objectness", [False, True])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("classes", [3, None])
def test_it_finds_what_a_loop_over_boxes_finds(
    objectness: bool, is_transposed: bool, classes: int | None
) -> None:
    rows = rows_of(8 if objectness else 7)
    candidates = []
    for row in rows.tolist():
        box = (row[0] - row[2] / 2, row[1] - row[3] / 2, row[0] + row[2] / 2, row[1] + row[3] / 2)
        scores = [row[4] * s for s in row[5:]] if objectness else row[4:]
        candidates += [(box, score, label) for label, score in enumerate(scores)]
    expected = slow_detections(candidates, IMAGE, **LIMITS)
    output = rows.T[None] if is_transposed else rows[None]
    assert_same(
        Yolov8(objectness=objectness, classes=classes, **LIMITS)({"output0": output}, IMAGE), expected
    )


@pytest.mark.parametrize(
    ("shape", "classes"), [((1, 8, 120), 3), ((2, 7, 120), 3), ((7, 120), None), ((1, 4, 120), None)]
)
def test_another_shape_is_an_error_that_names_the_expected_one(
    shape: tuple[int, ...], classes: int | None
) -> None:
    with pytest.raises(TaskError, match=r"yolov8 expects \(1, 4 \+ .*, boxes\)") as caught:
        Yolov8(classes=classes)({"output0": np.zeros(shape, np.float32)}, IMAGE)
    assert caught.value.code == "wrong_output_shape"
