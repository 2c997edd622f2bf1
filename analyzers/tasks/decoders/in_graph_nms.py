"""Networks that suppress overlapping boxes themselves: their outputs are the detections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analyzers.errors import TaskError
from analyzers.records import Array, Letterbox
from analyzers.tasks.decoder import DecoderKind, check_limits, find_output, wrong_shape
from analyzers.tasks.detections import assemble, to_image

Column = Literal["batch", "x1", "y1", "x2", "y2", "score", "class"]

_SIX: tuple[Column, ...] = ("x1", "y1", "x2", "y2", "score", "class")
_SEVEN: tuple[Column, ...] = ("batch", "x1", "y1", "x2", "y2", "class", "score")


@dataclass(frozen=True, slots=True)
class InGraphNms:
    """Options of the ``in_graph_nms`` decoder.

    Attributes:
        output: One output with a row per detection, ``(N, 6)``, ``(N, 7)``, or with leading axes of one;
            "" for the only output. Not used where ``boxes`` is given.
        columns: What its columns are; by default x1 y1 x2 y2 score class for six, and batch x1 y1 x2 y2 class
            score for seven.
        boxes: Output with boxes, ``(1, N, 4)`` or ``(N, 4)``; "" to read ``output``.
        scores: Output with their scores, ``(1, N)`` or ``(N)``.
        labels: Output with their classes, ``(1, N)`` or ``(N)``.
        count: Output with the number of rows that are meant; "" for all.
        box_format: Order of the values of a box.
        normalized: Boxes are in 0..1 of the network's input, not in its pixels.
        class_offset: The first class's number, 1 where 0 is the background.
        score_threshold: Scores have to exceed it.
        max_detections: Of one image.
    """

    output: str = ""
    columns: tuple[Column, ...] | None = None
    boxes: str = ""
    scores: str = "scores"
    labels: str = "labels"
    count: str = ""
    box_format: Literal["xyxy", "yxyx", "xywh", "cxcywh"] = "xyxy"
    normalized: bool = False
    class_offset: int = 0
    score_threshold: float = 0.01
    max_detections: int = 100

    def __post_init__(self) -> None:
        check_limits(self.score_threshold, 1.0, self.max_detections)
        if self.columns is not None and sorted(set(self.columns) - {"batch"}) != sorted(_SIX):
            raise TaskError(
                "malformed_task", f"'columns' has to name each of {', '.join(_SIX)}", where="decoder.columns"
            )

    def __call__(self, outputs: Mapping[str, Array], image: Letterbox) -> Array:
        """Return detections; see ``analyzers.tasks.decoder.Decoder``."""
        boxes, scores, classes = self._separate(outputs) if self.boxes else self._table(outputs)
        if self.count:
            counts = find_output(outputs, self.count, decoder="in_graph_nms")
            if counts.size != 1:
                raise wrong_shape(counts, "one number", name=self.count, decoder="in_graph_nms")
            rows = max(0, int(np.nan_to_num(counts.reshape(-1)[0])))
            boxes, scores, classes = boxes[:rows], scores[:rows], classes[:rows]
        boxes = _as_corners(boxes.astype(np.float64), self.box_format)
        if self.normalized:
            boxes = boxes * np.array([image.input_width, image.input_height] * 2, np.float64)
        found = to_image(boxes, image)
        scores, classes = scores.astype(np.float64), np.rint(classes.astype(np.float64)) - self.class_offset
        is_meant = (scores > self.score_threshold) & (classes >= 0) & np.isfinite(found).all(axis=1)
        found, scores, classes = found[is_meant], scores[is_meant], classes[is_meant]
        best = np.argsort(-scores, kind="stable")[: self.max_detections]
        return assemble(found[best], scores[best], classes[best])

    def _table(self, outputs: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        table = find_output(outputs, self.output, decoder="in_graph_nms")
        width = table.shape[-1] if table.ndim else 0
        columns = self.columns or (_SEVEN if width == 7 else _SIX)
        if table.ndim < 2 or width != len(columns) or any(s != 1 for s in table.shape[:-2]):
            wanted = " or ".join(f"({lead}N, {w})" for lead in ("", "1, ") for w in self._widths())
            raise wrong_shape(table, wanted, name=self.output, decoder="in_graph_nms")
        rows = table.reshape(-1, width)
        at = {column: i for i, column in enumerate(columns)}
        if "batch" in at:
            rows = rows[rows[:, at["batch"]] == 0]
        return rows[:, [at[c] for c in ("x1", "y1", "x2", "y2")]], rows[:, at["score"]], rows[:, at["class"]]

    def _widths(self) -> tuple[int, ...]:
        return (len(self.columns),) if self.columns else (6, 7)

    def _separate(self, outputs: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        boxes = find_output(outputs, self.boxes, decoder="in_graph_nms")
        if boxes.ndim < 2 or boxes.shape[-1] != 4 or any(s != 1 for s in boxes.shape[:-2]):
            raise wrong_shape(boxes, "(1, N, 4) or (N, 4)", name=self.boxes, decoder="in_graph_nms")
        count = boxes.shape[-2]
        flat = []
        for name in (self.scores, self.labels):
            values = find_output(outputs, name, decoder="in_graph_nms")
            if values.size != count:
                raise wrong_shape(values, f"(1, {count}) or ({count},)", name=name, decoder="in_graph_nms")
            flat.append(values.reshape(-1))
        return boxes.reshape(-1, 4), flat[0], flat[1]


def _as_corners(boxes: Array, box_format: str) -> Array:
    if box_format == "yxyx":
        return boxes[:, [1, 0, 3, 2]]
    if box_format == "xywh":
        return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
    if box_format == "cxcywh":
        return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], axis=1)
    return boxes


ENTRY = DecoderKind("in_graph_nms", InGraphNms)
