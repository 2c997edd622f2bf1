from __future__ import annotations

import math

import numpy as np
import pytest

from analyzers.errors import TaskError
from analyzers.tasks.decoders.yolox import Yolox
from tests.analyzers.tasks.decoders.heads import IMAGE, slow_cells, uniform
from tests.analyzers.tasks.slow_detections import assert_same, slow_detections

LIMITS = {"score_threshold": 0.3, "nms_iou": 0.5, "max_detections": 30}
CELLS = 8 * 12 + 4 * 6 + 2 * 3


def head(classes: int = 4) -> np.ndarray:
    rows = uniform((1, CELLS, 5 + classes), 0.0, 1.0)
    rows[..., 2:4] = uniform((1, CELLS, 2), -1.0, 1.5, seed=1)
    return rows


def test_it_finds_what_a_loop_over_cells_finds() -> None:
    rows = head()
    candidates = []
    for (column, line, stride), row in zip(slow_cells((8, 16, 32)), rows[0].tolist(), strict=True):
        x, y = (row[0] + column) * stride, (row[1] + line) * stride
        width, height = math.exp(row[2]) * stride, math.exp(row[3]) * stride
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        candidates += [(box, row[4] * score, label) for label, score in enumerate(row[5:])]
    expected = slow_detections(candidates, IMAGE, **LIMITS)
    assert_same(Yolox(**LIMITS)({"out": rows}, IMAGE), expected)
    assert_same(
        Yolox(output="out", classes=4, **LIMITS)({"other": rows[:, :1], "out": rows}, IMAGE), expected
    )


def test_a_head_that_overflows_gives_no_warning_and_no_undefined_boxes() -> None:
    rows = head()
    rows[0, ::3, 2:4] = 1e9
    rows[0, 1::3, :] = np.nan
    found = Yolox(**LIMITS)({"out": rows}, IMAGE)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("shape", "classes"), [((1, CELLS, 9), 5), ((1, CELLS - 1, 9), None), ((1, 9, CELLS), 4), ((CELLS, 9), 4)]
)
def test_another_shape_is_an_error_that_names_the_expected_one(
    shape: tuple[int, ...], classes: int | None
) -> None:
    with pytest.raises(TaskError, match=rf"yolox expects \(1, {CELLS}, 5 \+ ") as caught:
        Yolox(classes=classes)({"out": np.zeros(shape, np.float32)}, IMAGE)
    assert caught.value.code == "wrong_output_shape"


def test_an_output_that_is_not_there_is_an_error_that_names_those_that_are() -> None:
    with pytest.raises(TaskError, match="'a', 'b'") as caught:
        Yolox()({"a": head(), "b": head()}, IMAGE)
    assert caught.value.code == "output_missing"
