from __future__ import annotations

import numpy as np
import pytest

from analyzers.errors import TaskError
from analyzers.records import Array
from analyzers.tasks.decoders.in_graph_nms import InGraphNms
from tests.analyzers.tasks.decoders.heads import IMAGE, uniform
from tests.analyzers.tasks.slow_detections import assert_same, slow_detections

COUNT = 20
LIMITS = {"score_threshold": 0.3, "max_detections": 8}


def corners() -> Array:
    corner = uniform((COUNT, 2), -5.0, 60.0)
    return np.concatenate([corner, corner + uniform((COUNT, 2), 5.0, 30.0, seed=1)], axis=1)


SCORES = uniform((COUNT,), 0.0, 1.0, seed=2)
CLASSES = np.random.default_rng(3).integers(0, 5, COUNT)


def expected() -> Array:
    rows = [
        (tuple(b), s, c)
        for b, s, c in zip(corners().tolist(), SCORES.tolist(), CLASSES.tolist(), strict=True)
    ]
    return slow_detections(rows, IMAGE, nms_iou=1.0, **LIMITS)


def test_a_table_of_six_columns_is_read() -> None:
    table = np.concatenate([corners(), SCORES[:, None], CLASSES[:, None]], axis=1)
    for shaped in (table, table[None], table[None, None]):
        assert_same(InGraphNms(**LIMITS)({"out": shaped}, IMAGE), expected())


def test_a_table_of_seven_columns_begins_with_the_batch() -> None:
    table = np.concatenate([np.zeros((COUNT, 1)), corners(), CLASSES[:, None], SCORES[:, None]], axis=1)
    assert_same(InGraphNms(**LIMITS)({"out": table}, IMAGE), expected())
    padding = np.full((3, 7), -1.0)
    padding[:, 6] = 1.0
    assert_same(InGraphNms(**LIMITS)({"out": np.concatenate([table, padding])}, IMAGE), expected())


def test_columns_can_be_named() -> None:
    table = np.concatenate([np.zeros((COUNT, 1)), CLASSES[:, None], SCORES[:, None], corners()], axis=1)
    decoder = InGraphNms(columns=("batch", "class", "score", "x1", "y1", "x2", "y2"), **LIMITS)
    assert_same(decoder({"out": table}, IMAGE), expected())


@pytest.mark.parametrize("box_format", ["xyxy", "yxyx", "xywh", "cxcywh"])
def test_separate_outputs_are_read_in_any_box_format(box_format: str) -> None:
    x1, y1, x2, y2 = corners().T
    stored = {
        "xyxy": (x1, y1, x2, y2),
        "yxyx": (y1, x1, y2, x2),
        "xywh": (x1, y1, x2 - x1, y2 - y1),
        "cxcywh": ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1),
    }[box_format]
    outputs = {"b": np.stack(stored, axis=1)[None], "scores": SCORES[None], "labels": CLASSES[None]}
    decoder = InGraphNms(boxes="b", box_format=box_format, **LIMITS)  # type: ignore[arg-type]
    assert_same(decoder(outputs, IMAGE), expected())


def test_shares_of_the_input_class_offsets_and_counts_are_respected() -> None:
    boxes = corners() / np.array([96, 64, 96, 64])
    garbage = np.ones((1, 5, 4))
    outputs = {
        "boxes": np.concatenate([boxes[None], garbage], axis=1),
        "scores": np.concatenate([SCORES[None], np.ones((1, 5))], axis=1),
        "labels": np.concatenate([CLASSES[None] + 1.0, np.ones((1, 5))], axis=1),
        "n": np.array([COUNT], np.float32),
    }
    decoder = InGraphNms(boxes="boxes", count="n", normalized=True, class_offset=1, **LIMITS)
    assert_same(decoder(outputs, IMAGE), expected())


def test_no_rows_are_no_detections() -> None:
    assert InGraphNms()({"out": np.empty((0, 7), np.float32)}, IMAGE).shape == (0, 6)


def test_another_shape_is_an_error_that_names_the_expected_one() -> None:
    with pytest.raises(
        TaskError, match=r"in_graph_nms expects \(N, 6\) or \(N, 7\) or \(1, N, 6\)"
    ) as caught:
        InGraphNms()({"out": np.zeros((1, 5, 8))}, IMAGE)
    assert caught.value.code == "wrong_output_shape"
    outputs = {"boxes": np.zeros((1, 5, 4)), "scores": np.zeros((1, 4)), "labels": np.zeros((1, 5))}
    with pytest.raises(TaskError, match=r"'scores'.*\(1, 5\)"):
        InGraphNms(boxes="boxes")(outputs, IMAGE)
    with pytest.raises(TaskError, match="columns"):
        InGraphNms(columns=("x1", "y1", "x2", "y2", "score", "score"))
