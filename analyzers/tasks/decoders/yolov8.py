"""YOLOv8, YOLO11 and relatives: one output of decoded boxes and class scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analyzers.records import Array, Letterbox
from analyzers.tasks.decoder import DecoderKind, check_limits, find_output, wrong_shape
from analyzers.tasks.detections import corners, detect


@dataclass(frozen=True, slots=True)
class Yolov8:
    """Options of the ``yolov8`` decoder.

    Attributes:
        output: ``(1, 4 + classes, N)`` or ``(1, N, 4 + classes)``: centre x, centre y, width, height in input
            pixels, class scores in 0..1; "" for the only output.
        classes: Number of classes; None to take it from the output, whose longer axis is then the boxes'.
        objectness: A fifth value multiplies the class scores, as in YOLOv5 and YOLOv7.
        score_threshold: Scores have to exceed it.
        nms_iou: Largest overlap of two boxes of a class.
        max_detections: Of one image.
    """

    output: str = ""
    classes: int | None = None
    objectness: bool = False
    score_threshold: float = 0.01
    nms_iou: float = 0.7
    max_detections: int = 100

    def __post_init__(self) -> None:
        check_limits(self.score_threshold, self.nms_iou, self.max_detections)

    def __call__(self, outputs: Mapping[str, Array], image: Letterbox) -> Array:
        """Return detections; see ``analyzers.tasks.decoder.Decoder``."""
        rows = self._rows(find_output(outputs, self.output, decoder="yolov8"))
        with np.errstate(all="ignore"):
            boxes = corners(rows[:, :2].astype(np.float64), rows[:, 2:4].astype(np.float64))
            scores = rows[:, 4:5] * rows[:, 5:] if self.objectness else rows[:, 4:]
            return detect(
                boxes,
                scores,
                image,
                score_threshold=self.score_threshold,
                nms_iou=self.nms_iou,
                max_detections=self.max_detections,
            )

    def _rows(self, head: Array) -> Array:
        """Return the output as one row per box."""
        extra = 5 if self.objectness else 4
        if head.ndim == 3 and head.shape[0] == 1:
            first, second = head.shape[1:]
            if self.classes is None:
                if extra < first < second:
                    return np.asarray(head[0].T)
                if extra < second <= first:
                    return np.asarray(head[0])
            elif first == extra + self.classes:
                return np.asarray(head[0].T)
            elif second == extra + self.classes:
                return np.asarray(head[0])
        width = f"{extra} + {'classes' if self.classes is None else self.classes}"
        expected = f"(1, {width}, boxes) or (1, boxes, {width})"
        raise wrong_shape(head, expected, name=self.output, decoder="yolov8")


ENTRY = DecoderKind("yolov8", Yolov8)
