"""YOLOX: one output of raw boxes per grid cell, with objectness and class scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analyzers.records import Array, Letterbox
from analyzers.tasks.decoder import (
    DecoderKind,
    check_limits,
    check_strides,
    find_output,
    wrong_shape,
)
from analyzers.tasks.detections import corners, detect
from analyzers.tasks.grids import cell_count, cells

_LARGEST_EXPONENT = 20.0


@dataclass(frozen=True, slots=True)
class Yolox:
    """Options of the ``yolox`` decoder.

    Source: https://github.com/Megvii-BaseDetection/YOLOX, ``decode_outputs``.

    Attributes:
        output: ``(1, cells, 5 + classes)``: x, y, log width, log height, objectness, class scores; "" for
            the only output.
        classes: Number of classes; None to take it from the output.
        strides: Cell sizes in pixels, in the order of the output.
        score_threshold: Objectness times class score has to exceed it.
        nms_iou: Largest overlap of two boxes of a class.
        max_detections: Of one image.
    """

    output: str = ""
    classes: int | None = None
    strides: tuple[int, ...] = (8, 16, 32)
    score_threshold: float = 0.01
    nms_iou: float = 0.65
    max_detections: int = 100

    def __post_init__(self) -> None:
        check_limits(self.score_threshold, self.nms_iou, self.max_detections)
        check_strides(self.strides)

    def __call__(self, outputs: Mapping[str, Array], image: Letterbox) -> Array:
        """Return detections; see ``analyzers.tasks.decoder.Decoder``."""
        head = find_output(outputs, self.output, decoder="yolox")
        count = cell_count(image, self.strides)
        if head.ndim != 3 or head.shape[:2] != (1, count) or not self._fits(head.shape[2]):
            width = f"5 + {self.classes} = {5 + self.classes}" if self.classes is not None else "5 + classes"
            size = f"{image.input_width} x {image.input_height}"
            expected = f"(1, {count}, {width}) for an input of {size} and strides {self.strides}"
            raise wrong_shape(head, expected, name=self.output, decoder="yolox")
        grid, stride = cells(image.input_height, image.input_width, self.strides)
        rows = head[0]
        with np.errstate(all="ignore"):
            centres = (rows[:, :2] + grid) * stride
            sizes = np.exp(np.clip(rows[:, 2:4], -_LARGEST_EXPONENT, _LARGEST_EXPONENT)) * stride
            return detect(
                corners(centres, sizes),
                rows[:, 4:5] * rows[:, 5:],
                image,
                score_threshold=self.score_threshold,
                nms_iou=self.nms_iou,
                max_detections=self.max_detections,
            )

    def _fits(self, width: int) -> bool:
        return width > 5 if self.classes is None else width == 5 + self.classes


ENTRY = DecoderKind("yolox", Yolox)
