"""YuNet: class score, objectness and box of each grid cell, one output per stride."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analyzers.errors import TaskError
from analyzers.records import Array, Letterbox
from analyzers.tasks.decoder import DecoderKind, check_limits, check_strides, find_output, wrong_shape
from analyzers.tasks.detections import corners, detect
from analyzers.tasks.grids import cell_count, cells

_LARGEST_EXPONENT = 20.0


@dataclass(frozen=True, slots=True)
class YuNet:
    """Options of the ``yunet`` decoder.

    Source: https://github.com/ShiqiYu/libfacedetection.train, ``FaceDetectorYN`` of OpenCV.

    Attributes:
        scores: Class scores ``(1, cells, classes)``; ``{}`` stands for the stride.
        objectness: ``(1, cells, 1)``.
        boxes: ``(1, cells, 4)``: centre offset and log size, in strides.
        strides: Cell sizes in pixels.
        score_threshold: The root of class score times objectness has to exceed it.
        nms_iou: Largest overlap of two boxes of a class.
        max_detections: Of one image.
    """

    scores: str = "cls_{}"
    objectness: str = "obj_{}"
    boxes: str = "bbox_{}"
    strides: tuple[int, ...] = (8, 16, 32)
    score_threshold: float = 0.02
    nms_iou: float = 0.45
    max_detections: int = 100

    def __post_init__(self) -> None:
        check_limits(self.score_threshold, self.nms_iou, self.max_detections)
        check_strides(self.strides)
        for key in ("scores", "objectness", "boxes"):
            if "{}" not in getattr(self, key):
                raise TaskError(
                    "malformed_task", f"'{key}' needs {{}} where the stride stands", where=f"decoder.{key}"
                )

    def __call__(self, outputs: Mapping[str, Array], image: Letterbox) -> Array:
        """Return detections; see ``analyzers.tasks.decoder.Decoder``."""
        scores = self._gather(outputs, image, self.scores, None)
        objectness = self._gather(outputs, image, self.objectness, 1)
        rows = self._gather(outputs, image, self.boxes, 4)
        grid, stride = cells(image.input_height, image.input_width, self.strides)
        with np.errstate(all="ignore"):
            sizes = np.exp(np.clip(rows[:, 2:], -_LARGEST_EXPONENT, _LARGEST_EXPONENT)) * stride
            return detect(
                corners((rows[:, :2] + grid) * stride, sizes),
                np.sqrt(np.clip(scores, 0.0, 1.0) * np.clip(objectness, 0.0, 1.0)),
                image,
                score_threshold=self.score_threshold,
                nms_iou=self.nms_iou,
                max_detections=self.max_detections,
            )

    def _gather(
        self, outputs: Mapping[str, Array], image: Letterbox, pattern: str, width: int | None
    ) -> Array:
        """Return one output of all strides as ``(cells, width)``."""
        parts = []
        for stride in self.strides:
            name = pattern.replace("{}", str(stride))
            part = find_output(outputs, name, decoder="yunet")
            count = cell_count(image, (stride,))
            if part.ndim != 3 or part.shape[:2] != (1, count) or (width and part.shape[2] != width):
                size = f"{image.input_width} x {image.input_height}"
                expected = f"(1, {count}, {width or 'classes'}) for an input of {size}"
                raise wrong_shape(part, expected, name=name, decoder="yunet")
            parts.append(part[0])
        if len({p.shape[1] for p in parts}) > 1:
            raise wrong_shape(parts[-1], "as many classes for every stride", name=name, decoder="yunet")
        return np.concatenate(parts)


ENTRY = DecoderKind("yunet", YuNet)
