from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from analyzers.contracts import Metric
from analyzers.errors import TaskError
from analyzers.records import Array, Sample
from analyzers.tasks.decoding import SampleDecoder
from analyzers.tasks.kinds import MetricSetup
from analyzers.tasks.metrics.agreement import AgreementOptions


class Given:
    """A decoder of outputs that are detections already."""

    def __call__(self, outputs: Mapping[str, Array], image: object) -> Array:
        return outputs["detections"]


def metric(threshold: float = 0.05) -> Metric:
    return AgreementOptions(threshold).make(MetricSetup((), (), decoder=SampleDecoder(Given())))


def agreement(reference: list[list[float]], candidate: list[list[float]]) -> float:
    sides = [{"detections": np.array(rows, np.float64).reshape(-1, 6)} for rows in (candidate, reference)]
    made = metric()
    return made.score(["s"], [made.observe(Sample("s", {}), *sides)]).value


ONE = [10.0, 10.0, 20.0, 20.0, 0.8, 3.0]
TWO = [50.0, 50.0, 90.0, 90.0, 0.4, 1.0]


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ([ONE, TWO], 1.0),
        ([TWO, ONE], 1.0),
        ([], 0.0),
        # A third of the weight is gone, in place and score.
        ([ONE], 2 / 3),
        # Half the score of the first: 0.4 of 1.2, halved since the place is right.
        ([[*ONE[:4], 0.4, 3.0], TWO], 1 - 0.4 / 1.2 / 2),
        # Shifted by half its width: IoU 1/3.
        ([[15.0, 10.0, 25.0, 20.0, 0.8, 3.0], TWO], 1 - 0.8 * (2 / 3) / 1.2 / 2),
        # Another class in the same place is gone and made up at once.
        ([[*ONE[:4], 0.8, 4.0], TWO], 1 - (0.8 + 0.8 + 0.8) / 1.2 / 2),
        # Too low a score to count on either side.
        ([ONE, TWO, [0.0, 0.0, 5.0, 5.0, 0.04, 3.0]], 1.0),
    ],
)
def test_agreement_is_the_share_of_the_detections_that_is_kept(
    candidate: list[list[float]], expected: float
) -> None:
    assert agreement([ONE, TWO], candidate) == pytest.approx(expected)


def test_it_falls_as_boxes_drift_and_scores_fade() -> None:
    shifts = [agreement([ONE], [[10.0 + d, 10.0, 20.0 + d, 20.0, 0.8, 3.0]]) for d in range(9)]
    fades = [agreement([ONE], [[*ONE[:4], 0.8 - d / 10, 3.0]]) for d in range(7)]
    assert shifts == sorted(shifts, reverse=True)
    assert fades == sorted(fades, reverse=True)


def test_without_detections_of_the_reference_it_is_undefined() -> None:
    assert math.isnan(agreement([], [ONE]))
    assert math.isnan(metric().score([], []).value)


def test_samples_are_pooled_by_the_weight_of_their_detections() -> None:
    made = metric()
    sides = [{"detections": np.array([row])} for row in (ONE, TWO)]
    empty = {"detections": np.empty((0, 6))}
    rows = [
        made.observe(Sample("a", {}), sides[0], sides[0]),
        made.observe(Sample("b", {}), empty, sides[1]),
    ]
    assert made.score(["a", "b"], rows).value == pytest.approx(2 / 3)


def test_it_needs_a_decoder_and_a_threshold_that_is_a_score() -> None:
    with pytest.raises(TaskError):
        AgreementOptions().make(MetricSetup((), ()))
    with pytest.raises(TaskError):
        AgreementOptions(1.5)
