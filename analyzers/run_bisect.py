"""``bisect`` on files: the first divergence from a comparison, then hybrids on one model with switches."""

from __future__ import annotations

import tempfile
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from analyzers.bench import make_bench, metric_of, samples_of
from analyzers.bisection.causal import bisect
from analyzers.comparison import compare
from analyzers.contracts import SampleSet
from analyzers.errors import InputError
from analyzers.pool import WorkerPool
from analyzers.project import Pair
from analyzers.ranking import SwitchedRunner
from analyzers.records import BisectOptions, BisectResult, Inputs
from analyzers.steps import Steps, finish
from analyzers.telling import Subset, telling_samples

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
        chosen = yield from telling_samples(pair, bench, options.samples, workers, inputs.mode)
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


def _candidate_subset(inputs: Inputs, samples: SampleSet, chosen: tuple[int, ...]) -> SampleSet | None:
    return None if inputs.candidate_data is None else Subset(samples, chosen)
