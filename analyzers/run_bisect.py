"""``bisect`` on files: the first divergence from a comparison, then hybrids on one model with switches."""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf, isnan
from pathlib import Path

from analyzers import shards
from analyzers.bench import Bench, make_bench, metric_of, samples_of, spread
from analyzers.bisection.causal import bisect
from analyzers.comparison import compare
from analyzers.contracts import SampleSet
from analyzers.errors import InputError
from analyzers.pool import WorkerPool
from analyzers.project import Pair
from analyzers.ranking import SwitchedRunner
from analyzers.records import BisectOptions, BisectResult, Inputs, Mode, Sample
from analyzers.steps import Step, Steps, finish
from analyzers.trial import given_side

# Samples that are looked at to find the worst ones.
SEEN_FOR_CHOICE = 64
METRICS = ("slice-sqnr", "sqnr")


def bisect_pair(
    pair: Pair, inputs: Inputs, options: BisectOptions, *, executor: Executor | None = None
) -> Steps[BisectResult]:
    """Find the layers that break the output.

    Hybrids follow the rule "hybrid", whatever the inputs say: a repaired layer is one whose tensor all others
    read as the reference computes it.

    Args:
        pair: The models.
        inputs: Samples; task and annotations only as far as they say how samples are made.
        options: Threshold, metric, number of samples.
        executor: Runs the models; by default ``inputs.workers`` processes of its own.

    Raises:
        InputError: Something is missing or wrong.
        BackendError: A model cannot be run.
    """
    if options.metric not in METRICS:
        raise InputError(
            "metric_unknown",
            f"Bisect cannot use the metric '{options.metric}': few samples tell nothing about it",
            where="--metric",
            hint=f"Use one of: {', '.join(METRICS)}",
        )
    if options.samples < 1 or options.max_runs < 1 or options.max_culprits < 1:
        raise InputError("option_out_of_range", "Bisect needs at least one sample, one run and one culprit")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tearline-")))
        bench = replace(make_bench(pair, inputs, folder / "reference"), metric=options.metric)
        samples = samples_of(bench)
        workers = executor or stack.enter_context(WorkerPool(inputs.workers))
        chosen = yield from _telling_samples(pair, bench, options.samples, workers, inputs.mode)
        comparison = yield from compare(
            pair,
            Subset(samples, chosen),
            candidate_samples=_candidate_subset(inputs, samples_of(bench, "candidate_data"), chosen),
            mode=inputs.mode,
            isolated=False,
        )
        chain = [layer.name for layer in pair.pairing.layers if not layer.is_pass_through]
        runner = SwitchedRunner(pair, chain, bench, workers, folder, rule="hybrid")
        metric, names = metric_of(bench), [samples.names[index] for index in chosen]

        def score(fallback: frozenset[str]) -> float:
            observations = finish(runner.observe([(index, fallback) for index in chosen]))
            return metric.score(names, observations).value

        return (
            yield from bisect(
                chain,
                score,
                options=replace(options, samples=len(chosen)),
                first_divergence=comparison.first_divergence,
                warnings=comparison.warnings,
            )
        )


def _telling_samples(
    pair: Pair, bench: Bench, count: int, executor: Executor, mode: Mode
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
        yield Step("bisect", done=len(worth), total=len(seen), text="Looking for the worst samples")
    worst = [index for _, index in sorted(worth)[: (count + 1) // 2]]
    ordinary = [index for index in spread(len(samples_of(bench)), count) if index not in worst]
    return tuple(sorted([*worst, *ordinary][:count]))


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


def _candidate_subset(inputs: Inputs, samples: SampleSet, chosen: tuple[int, ...]) -> SampleSet | None:
    return None if inputs.candidate_data is None else Subset(samples, chosen)
