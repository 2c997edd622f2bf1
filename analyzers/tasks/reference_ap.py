"""COCO AP without labels: the reference's own detections are the ground truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analyzers.records import Array, Notice, Sample, Score
from analyzers.tasks import coco
from analyzers.tasks.decoding import SampleDecoder
from analyzers.tasks.detections import COLUMNS


@dataclass(frozen=True, slots=True)
class ReferenceAp:
    """AP against what the reference detects; an observation is ``(N, 7)`` float64.

    The rows are the detections of the network under test, then those of the reference; the last column is 1
    for the reference's. The reference itself scores 1.

    Attributes:
        decoder: Turns outputs into detections.
        threshold: Detections of the reference with at least this score count as objects.
        value: Which number is the score.
    """

    decoder: SampleDecoder
    threshold: float
    value: Literal["AP", "AP50", "AP75"] = "AP"

    @property
    def name(self) -> str:
        """The metric's name, which says that no labels were used."""
        return f"{self.value.lower()}-to-reference"

    @property
    def needs_reference(self) -> bool:
        """The reference's detections are the ground truth."""
        return True

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """The notice that every result carries."""
        text = f"No labels: the reference's detections from a score of {self.threshold} on are the truth"
        return (Notice("reference_as_truth", text),)

    def observe(
        self, sample: Sample, outputs: Mapping[str, Array], reference: Mapping[str, Array] | None
    ) -> Array:
        """Return the detections of both sides.

        Raises:
            TaskError: The outputs do not suit the decoder.
        """
        assert reference is not None
        sides = [self.decoder.detections(sample, values) for values in (outputs, reference)]
        truth = sides[1][sides[1][:, 4] >= self.threshold]
        return np.concatenate(
            [
                np.pad(rows, ((0, 0), (0, 1)), constant_values=side)
                for side, rows in enumerate((sides[0], truth))
            ]
        )

    def score(self, names: Sequence[str], observations: Sequence[Array]) -> Score:
        """Score any subset of the samples; ``nan`` where the reference detects nothing."""
        del names
        result = coco.evaluate(
            _truth(observations), range(len(observations)), [_rows(o, side=0) for o in observations]
        )
        details = coco.details(result)
        return Score(details[self.value], self.name, details=details)


def _rows(observation: Array, *, side: int) -> Array:
    return observation[observation[:, COLUMNS] == side, :COLUMNS]


def _truth(observations: Sequence[Array]) -> coco.Truth:
    """Return the reference's detections as ground truth; images are numbered, classes are categories."""
    tables = [_rows(o, side=1) for o in observations]
    objects = np.concatenate([np.empty((0, COLUMNS)), *tables])
    boxes = np.concatenate([objects[:, :2], objects[:, 2:4] - objects[:, :2]], axis=1)
    classes = {int(c) for o in observations for c in o[:, 5]}
    return coco.Truth(
        categories={c: str(c) for c in sorted(classes)},
        image_ids=np.repeat(np.arange(len(tables)), [len(t) for t in tables]),
        category_ids=objects[:, 5].astype(np.int64),
        boxes=boxes,
        areas=np.prod(boxes[:, 2:], axis=1),
        is_crowd=np.zeros(len(objects), np.bool_),
    )
