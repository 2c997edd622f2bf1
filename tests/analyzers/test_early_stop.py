"""Trials that cannot reach the target end on a part of the images."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from analyzers.early_stop import Stopping
from analyzers.records import Array, Sample, Score


class MeanScore:
    """Scores each image by one number."""

    name = "mean"
    needs_reference = False

    def observe(
        self, sample: Sample, outputs: Mapping[str, Array], reference: Mapping[str, Array] | None
    ) -> Array:
        return np.zeros(1)

    def score(self, names: Sequence[str], observations: Sequence[Array]) -> Score:
        return Score(float(np.mean(observations)), self.name)


def stopping(count: int, *, target: float) -> Stopping:
    rows = tuple(np.array([v]) for v in np.random.default_rng(0).uniform(0.3, 0.5, count))
    return Stopping(MeanScore(), tuple(str(i) for i in range(count)), rows, 0.4, target)


@pytest.mark.parametrize(("count", "sizes"), [(128, [32, 64]), (40, []), (60, [30])])
def test_parts_are_looked_at_only_where_they_say_something(count: int, sizes: list[int]) -> None:
    parts = stopping(count, target=0.38).places()
    assert [len(part) for part in parts] == sizes
    assert all(set(a) < set(b) for a, b in itertools.pairwise(parts))


@pytest.mark.parametrize(("drop", "is_hopeless"), [(0.2, True), (0.03, False), (0.0, False), (-0.1, False)])
def test_only_a_clear_miss_ends_early(drop: float, is_hopeless: bool) -> None:
    stop = stopping(128, target=0.38)
    part = stop.places()[0]
    noise = np.random.default_rng(1).normal(0, 0.03, 128)
    rows = [stop.reference[place] - drop + noise[place] for place in part]
    found = stop.score_if_hopeless(part, rows)
    assert (found is not None) == is_hopeless
    assert found is None or found == pytest.approx(0.4 - drop, abs=0.02)


def test_scatter_keeps_a_trial_running() -> None:
    stop = stopping(128, target=0.38)
    part = stop.places()[0]
    wild = np.random.default_rng(2).choice([-2.0, 2.2], size=128)
    rows = [stop.reference[place] - 0.06 - wild[place] for place in part]
    assert stop.score_if_hopeless(part, rows) is None
