"""How far the detections of a network agree with those of the reference; no labels, a single image suffices.

AP of a few images says nothing and SQNR does not know which values matter. This says how much of the
reference's detections is still there, in place and with its score: good enough to order plans by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.contracts import Metric
from analyzers.errors import TaskError
from analyzers.records import Array, Sample, Score
from analyzers.tasks.decoding import SampleDecoder
from analyzers.tasks.kinds import MetricKind, MetricSetup

_SAME_OBJECT = 0.1  # IoU from which on two detections of a class may mean the same object


@dataclass(frozen=True, slots=True)
class AgreementOptions:
    """Options of the ``agreement`` metric.

    Attributes:
        threshold: Detections with a lower score, on both sides, do not count.
    """

    threshold: float = 0.05

    def __post_init__(self) -> None:
        if not 0.0 <= self.threshold <= 1.0:
            raise TaskError(
                "malformed_task",
                f"'threshold' has to be in 0..1, not {self.threshold}",
                where="metric.threshold",
            )

    def make(self, setup: MetricSetup) -> Metric:
        """Return the metric; see ``analyzers.tasks.kinds.MetricOptions``."""
        if setup.decoder is None:
            raise TaskError(
                "malformed_task", "Agreement needs detections", hint="Add a 'decoder' part to the task file"
            )
        return Agreement(setup.decoder, self.threshold)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Share of the reference's detections that is kept; an observation is ``(3,)`` float64.

    It holds the loss in place, the loss in score, and the summed scores of the reference's detections, in
    which both are counted: one at most per detection and loss, more only for detections that are made up.

    Attributes:
        decoder: Turns outputs into detections.
        threshold: Lower scores do not count.
    """

    decoder: SampleDecoder
    threshold: float = 0.05

    @property
    def name(self) -> str:
        """The metric's name."""
        return "agreement"

    @property
    def needs_reference(self) -> bool:
        """The reference's detections are what it compares with."""
        return True

    def observe(
        self, sample: Sample, outputs: Mapping[str, Array], reference: Mapping[str, Array] | None
    ) -> Array:
        """Return the losses of one sample.

        Raises:
            TaskError: The outputs do not suit the decoder.
        """
        assert reference is not None
        wanted, found = (
            _from(self.decoder.detections(sample, side), self.threshold) for side in (reference, outputs)
        )
        overlap = _iou(wanted, found) * (wanted[:, None, 5] == found[None, :, 5])
        overlap[overlap < _SAME_OBJECT] = 0.0
        padded = np.pad(overlap, ((0, 1), (0, 1)))  # one more, that nothing overlaps with
        best = padded[:-1].argmax(axis=1)
        iou = padded[:-1].max(axis=1)
        scores = np.where(iou > 0, np.pad(found[:, 4], (0, 1))[best], 0.0)
        made_up = found[padded[:, :-1].max(axis=0) == 0, 4].sum()
        weights = wanted[:, 4]
        place = float((weights * (1.0 - iou)).sum())
        score = float(np.abs(weights - scores).sum() + made_up)
        return np.array([place, score, float(weights.sum())])

    def score(self, names: Sequence[str], observations: Sequence[Array]) -> Score:
        """Pool the losses; 1 for equal detections, ``nan`` where the reference detects nothing."""
        del names
        place, score, weight = np.sum(observations, axis=0) if len(observations) else np.zeros(3)
        if weight == 0:
            return Score(float("nan"), self.name)
        details = {"place": float(place / weight), "score": float(score / weight), "weight": float(weight)}
        return Score(1.0 - float(place + score) / weight / 2.0, self.name, details=details)


def _from(detections: Array, threshold: float) -> Array:
    return detections[detections[:, 4] >= threshold]


def _iou(first: Array, second: Array) -> Array:
    """Return ``(N, M)`` intersection over union of boxes."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:4], second[None, :, 2:4])
    common = np.prod(np.clip(high - low, 0.0, None), axis=2)
    areas = [np.prod(np.clip(side[:, 2:4] - side[:, :2], 0.0, None), axis=1) for side in (first, second)]
    union = areas[0][:, None] + areas[1][None, :] - common
    result: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return result


ENTRY = MetricKind("agreement", AgreementOptions)
