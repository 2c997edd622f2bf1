"""Which samples to look at: a fault that shows on one in twenty is missed by any four taken blindly."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from math import inf, isnan

import numpy as np

from analyzers import shards
from analyzers.bench import Bench, metric_of, samples_of, spread
from analyzers.comparison import Compared
from analyzers.contracts import SampleSet
from analyzers.project import Pair
from analyzers.records import Mode, Sample
from analyzers.steps import Step, Steps
from analyzers.trial import given_side

# Samples that are looked at to find the worst ones.
SEEN_FOR_CHOICE = 64


@dataclass(frozen=True, slots=True)
class Subset:
    """Some samples of a set; see ``analyzers.contracts.SampleSet``."""

    samples: SampleSet
    indices: tuple[int, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.samples.names[index] for index in self.indices)

    @property
    def digest(self) -> str:
        """Content hash."""
        return f"{self.samples.digest}:{self.indices}"

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[self.indices[index]]


def telling_samples(
    pair: Pair, bench: Bench, count: int, executor: Executor, mode: Mode, *, stage: str = "bisect"
) -> Steps[tuple[int, ...]]:
    """Return the samples on which the candidate is worst, of those that are looked at, and ordinary ones.

    A fault that shows on one sample in twenty would be missed by any four that are taken blindly; on the
    worst samples alone everything may be so wrong that no layer stands out.
    """
    seen = spread(len(samples_of(bench)), SEEN_FOR_CHOICE)
    side = given_side(pair, bench, mode)
    if side is None or len(seen) <= count:
        return spread(len(samples_of(bench)), count)
    metric = metric_of(bench)
    futures = [
        executor.submit(shards.observe, bench, side, seen[start:stop])
        for start, stop in shards.cut(len(seen))
    ]
    worth: list[tuple[float, int]] = []
    for future in futures:
        for row in future.result():
            value = metric.score([""], [row]).value
            # Undefined is no worse than perfect: both sides are zero, say.
            worth.append((inf if isnan(value) else value, seen[len(worth)]))
        yield Step(stage, done=len(worth), total=len(seen), text="Looking for the worst samples")
    worst = [index for _, index in sorted(worth)[: (count + 1) // 2]]
    ordinary = [index for index in spread(len(samples_of(bench)), count) if index not in worst]
    return tuple(sorted([*worst, *ordinary][:count]))


def worst_of(compared: Compared, seen: int, count: int) -> tuple[int, ...]:
    """Return places of samples: half of them those with the worst outputs, the others evenly spread."""
    worst = np.full(seen, np.inf)
    for row in compared.comparison.outputs:
        found = compared.measured.get(row.reference_tensor)
        if found is not None and found.by_sample.shape[1] == seen:
            values = np.where(np.isnan(found.by_sample[1]), np.inf, found.by_sample[1])
            worst = np.minimum(worst, np.where(found.broken, -np.inf, values))
    order = np.argsort(worst, kind="stable").tolist()
    chosen = order[: (count + 1) // 2]
    ordinary = [place for place in spread(seen, count) if place not in chosen]
    rest = [place for place in order if place not in chosen and place not in ordinary]
    return tuple(sorted([*chosen, *ordinary, *rest][: min(count, seen)]))
