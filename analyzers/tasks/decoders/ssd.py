"""SSD: raw box regressions and class logits on prior boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from analyzers.errors import TaskError
from analyzers.records import Array, Letterbox
from analyzers.tasks.decoder import DecoderKind, check_limits, find_output, wrong_shape
from analyzers.tasks.detections import corners, detect

_LARGEST_EXPONENT = 20.0
_MAX_PRIORS_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Ssd:
    """Options of the ``ssd`` decoder.

    Source: https://arxiv.org/abs/1512.02325, section 2.2; variances as in the authors' Caffe code.

    Attributes:
        boxes: ``(1, N, 4)``: centre x, centre y, log width, log height against the priors.
        scores: ``(1, N, classes)``, with a background column where ``background`` says so.
        priors: Output with the priors, ``(N, 4)`` or ``(1, N, 4)``; "" to read them from ``priors_file``.
        priors_file: ``.npy`` of shape ``(N, 4)``, beside the task file.
        prior_format: "cxcywh" or "xyxy", in 0..1 of the network's input.
        variances: Factors of centre and size regressions.
        activation: Of the scores: "softmax" over classes, "sigmoid", or "none" if the graph did it.
        background: Where the background's column is.
        classes: Number of classes without the background; None to take it from the output.
        score_threshold: Scores have to exceed it.
        nms_iou: Largest overlap of two boxes of a class.
        max_detections: Of one image.
    """

    boxes: str = "boxes"
    scores: str = "scores"
    priors: str = ""
    priors_file: Path | None = None
    prior_format: Literal["cxcywh", "xyxy"] = "cxcywh"
    variances: tuple[float, float] = (0.1, 0.2)
    activation: Literal["softmax", "sigmoid", "none"] = "softmax"
    background: Literal["first", "last", "none"] = "first"
    classes: int | None = None
    score_threshold: float = 0.01
    nms_iou: float = 0.45
    max_detections: int = 100

    def __post_init__(self) -> None:
        check_limits(self.score_threshold, self.nms_iou, self.max_detections)
        if bool(self.priors) == (self.priors_file is not None):
            raise TaskError(
                "malformed_task", "Give either 'priors' (an output) or 'priors_file'", where="decoder.priors"
            )
        if self.priors_file is not None:
            _read_priors(self.priors_file)

    def __call__(self, outputs: Mapping[str, Array], image: Letterbox) -> Array:
        """Return detections; see ``analyzers.tasks.decoder.Decoder``."""
        priors = self._priors(outputs)
        rows = find_output(outputs, self.boxes, decoder="ssd")
        logits = find_output(outputs, self.scores, decoder="ssd")
        count = len(priors)
        if rows.shape != (1, count, 4):
            raise wrong_shape(rows, f"(1, {count}, 4) for {count} priors", name=self.boxes, decoder="ssd")
        extra = 0 if self.background == "none" else 1
        width = logits.shape[2] - extra if logits.ndim == 3 else 0
        if logits.shape[:2] != (1, count) or width < 1 or self.classes not in (None, width):
            wanted = "classes" if self.classes is None else str(self.classes)
            expected = f"(1, {count}, {f'{extra} + ' if extra else ''}{wanted})"
            raise wrong_shape(logits, expected, name=self.scores, decoder="ssd")
        size = np.array([image.input_width, image.input_height] * 2, np.float64)
        with np.errstate(all="ignore"):
            return detect(
                _decode(rows[0].astype(np.float64), priors, self.variances) * size,
                self._scores(logits[0].astype(np.float64)),
                image,
                score_threshold=self.score_threshold,
                nms_iou=self.nms_iou,
                max_detections=self.max_detections,
            )

    def _priors(self, outputs: Mapping[str, Array]) -> Array:
        """Return the priors as ``(N, 4)`` cxcywh."""
        if self.priors_file is not None:
            priors = _read_priors(self.priors_file)
        else:
            priors = find_output(outputs, self.priors, decoder="ssd").astype(np.float64)
            if priors.shape[-1:] != (4,) or priors.size != priors.shape[-2] * 4:
                raise wrong_shape(priors, "(N, 4) or (1, N, 4)", name=self.priors, decoder="ssd")
            priors = priors.reshape(-1, 4)
        if self.prior_format == "cxcywh":
            return priors
        return np.concatenate([(priors[:, :2] + priors[:, 2:]) / 2, priors[:, 2:] - priors[:, :2]], axis=1)

    def _scores(self, logits: Array) -> Array:
        scores = logits
        if self.activation == "softmax":
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            scores = powers / powers.sum(axis=1, keepdims=True)
        elif self.activation == "sigmoid":
            scores = 1.0 / (1.0 + np.exp(-logits))
        first = 1 if self.background == "first" else 0
        last = scores.shape[1] - (1 if self.background == "last" else 0)
        return scores[:, first:last]


def _decode(rows: Array, priors: Array, variances: tuple[float, float]) -> Array:
    centres = priors[:, :2] + rows[:, :2] * variances[0] * priors[:, 2:]
    exponents = np.clip(rows[:, 2:] * variances[1], -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    return corners(centres, priors[:, 2:] * np.exp(exponents))


@lru_cache(maxsize=8)
def _read_priors(path: Path) -> Array:
    hint = "Write it with numpy.save: shape (N, 4), numbers"
    try:
        if path.stat().st_size > _MAX_PRIORS_BYTES:
            raise ValueError("it is too large")
        priors = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as cause:
        raise TaskError(
            "malformed_task", f"The priors cannot be read: {cause}", where=str(path), hint=hint
        ) from cause
    if (
        not isinstance(priors, np.ndarray)
        or priors.ndim != 2
        or priors.shape[1] != 4
        or priors.dtype.kind not in "fiu"
    ):
        raise TaskError(
            "malformed_task", "The priors are no (N, 4) array of numbers", where=str(path), hint=hint
        )
    return priors.astype(np.float64)


ENTRY = DecoderKind("ssd", Ssd)
