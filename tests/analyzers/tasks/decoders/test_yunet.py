from __future__ import annotations

import math

import numpy as np
import pytest

from analyzers.errors import TaskError
from analyzers.tasks.decoders.yunet import YuNet
from tests.analyzers.tasks.decoders.heads import IMAGE, slow_cells, uniform
from tests.analyzers.tasks.slow_detections import assert_same, slow_detections

LIMITS = {"score_threshold": 0.3, "nms_iou": 0.45, "max_detections": 30}
COUNTS = {8: 8 * 12, 16: 4 * 6, 32: 2 * 3}


def outputs() -> dict[str, np.ndarray]:
    made = {}
    for stride, count in COUNTS.items():
        # Some scores leave 0..1, as quantized ones do.
        made[f"cls_{stride}"] = uniform((1, count, 1), -0.1, 1.1, seed=stride)
        made[f"obj_{stride}"] = uniform((1, count, 1), -0.1, 1.1, seed=stride + 1)
        made[f"bbox_{stride}"] = uniform((1, count, 4), -0.5, 1.2, seed=stride + 2)
        made[f"kps_{stride}"] = uniform((1, count, 10), -0.5, 1.2, seed=stride + 3)
    return made


def test_it_finds_what_a_loop_over_cells_finds() -> None:
    made = outputs()
    candidates = []
    for stride in COUNTS:
        cells = [c for c in slow_cells((8, 16, 32)) if c[2] == stride]
        for i, (column, line, _) in enumerate(cells):
            cls, obj = (float(made[f"{k}_{stride}"][0, i, 0]) for k in ("cls", "obj"))
            b = made[f"bbox_{stride}"][0, i].tolist()
            x, y = (column + b[0]) * stride, (line + b[1]) * stride
            width, height = math.exp(b[2]) * stride, math.exp(b[3]) * stride
            score = math.sqrt(min(max(cls, 0.0), 1.0) * min(max(obj, 0.0), 1.0))
            candidates.append(((x - width / 2, y - height / 2, x + width / 2, y + height / 2), score, 0))
    assert_same(YuNet(**LIMITS)(made, IMAGE), slow_detections(candidates, IMAGE, **LIMITS))


def test_another_shape_is_an_error_that_names_the_expected_one() -> None:
    made = outputs()
    made["bbox_16"] = made["bbox_16"][:, :, :3]
    with pytest.raises(TaskError, match=r"'bbox_16'.*yunet expects \(1, 24, 4\) for an input of 96 x 64"):
        YuNet()(made, IMAGE)
    with pytest.raises(TaskError, match="'cls_64'"):
        YuNet(strides=(64,))(made, IMAGE)


def test_names_without_a_place_for_the_stride_are_refused() -> None:
    with pytest.raises(TaskError, match="'boxes'"):
        YuNet(boxes="bbox")
