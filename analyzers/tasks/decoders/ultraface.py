"""UltraFace: class scores and boxes that the graph decoded itself, as shares of the image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analyzers.records import Array, Letterbox
from analyzers.tasks.decoder import DecoderKind, check_limits, find_output, wrong_shape
from analyzers.tasks.detections import detect


@dataclass(frozen=True, slots=True)
class UltraFace:
    """Options of the ``ultraface`` decoder.

    Source: https://github.com/Linzaer/Ultra-Light-Fast-Generic-Face-Detector-1MB.

    Attributes:
        scores: ``(1, N, 1 + classes)``: background, then the classes, softmax.
        boxes: ``(1, N, 4)`` xyxy in 0..1 of the network's input.
        score_threshold: Scores have to exceed it.
        nms_iou: Largest overlap of two boxes of a class.
        max_detections: Of one image.
    """

    scores: str = "scores"
    boxes: str = "boxes"
    score_threshold: float = 0.02
    nms_iou: float = 0.4
    max_detections: int = 100

    def __post_init__(self) -> None:
        check_limits(self.score_threshold, self.nms_iou, self.max_detections)

    def __call__(self, outputs: Mapping[str, Array], image: Letterbox) -> Array:
        """Return detections; see ``analyzers.tasks.decoder.Decoder``."""
        boxes = find_output(outputs, self.boxes, decoder="ultraface")
        scores = find_output(outputs, self.scores, decoder="ultraface")
        if boxes.ndim != 3 or boxes.shape[0] != 1 or boxes.shape[2] != 4:
            raise wrong_shape(boxes, "(1, N, 4)", name=self.boxes, decoder="ultraface")
        count = boxes.shape[1]
        if scores.ndim != 3 or scores.shape[:2] != (1, count) or scores.shape[2] < 2:
            raise wrong_shape(scores, f"(1, {count}, 1 + classes)", name=self.scores, decoder="ultraface")
        size = np.array([image.input_width, image.input_height] * 2, np.float64)
        with np.errstate(all="ignore"):
            return detect(
                boxes[0] * size,
                scores[0, :, 1:],
                image,
                score_threshold=self.score_threshold,
                nms_iou=self.nms_iou,
                max_detections=self.max_detections,
            )


ENTRY = DecoderKind("ultraface", UltraFace)
