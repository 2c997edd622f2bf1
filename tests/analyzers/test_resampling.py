"""What other images might have said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from analyzers import resampling
from analyzers.records import Array, Sample, Score


class MeanScore:
    """Scores each image by one number; a metric as far as resampling needs one."""

    name = "mean"
    needs_reference = False

    def observe(
        self, sample: Sample, outputs: Mapping[str, Array], reference: Mapping[str, Array] | None
    ) -> Array:
        return np.zeros(1)

    def score(self, names: Sequence[str], observations: Sequence[Array]) -> Score:
        return Score(float(np.mean(observations)), self.name)


def series(values: Sequence[float]) -> resampling.Series:
    names = [str(i) for i in range(len(values))]
    return resampling.resampled(MeanScore(), names, [np.array([v]) for v in values])


def test_every_trial_sees_the_same_resamples() -> None:
    values = np.random.default_rng(0).normal(size=40).tolist()
    assert np.array_equal(series(values), series(values))
    shifted = series([v - 0.25 for v in values])
    assert series(values) - shifted == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("drop", "share"),
    [(0.02, 0.0), (0.05, 0.5), (0.30, 1.0)],
    ids=["clearly within", "on the edge", "clearly missing"],
)
def test_the_share_of_misses_follows_the_drop(drop: float, share: float) -> None:
    random = np.random.default_rng(1)
    reference = random.uniform(0.4, 0.6, 100)
    trial = reference - drop - random.normal(0, 0.05, 100)
    trial += reference.mean() - drop - trial.mean()
    found = resampling.missing_share(
        series(reference.tolist()), series(trial.tolist()), full_drop=drop, allowed_drop=0.05
    )
    assert found == pytest.approx(share, abs=0.06)


def test_a_biased_resample_is_centred_on_the_full_set() -> None:
    reference, trial = np.full(100, 0.5), np.full(100, 0.3)
    low, high = resampling.interval(reference, trial, full_drop=0.1)
    assert (low, high) == pytest.approx((0.1, 0.1))


def test_undefined_resamples_are_left_out() -> None:
    nothing = np.full(4, np.nan)
    assert np.isnan(resampling.missing_share(nothing, nothing, full_drop=0.1, allowed_drop=0.1))
    some = np.array([np.nan, 0.4, 0.4])
    assert resampling.missing_share(np.full(3, 0.5), some, full_drop=0.1, allowed_drop=0.05) == 1.0
