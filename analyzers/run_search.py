"""``search`` on files: opens what the pure search needs, and measures what it does not see."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import isnan, nan
from pathlib import Path

import numpy as np

from analyzers import resampling, shards
from analyzers.bench import Bench, make_bench, metric_digest, metric_of, samples_of, spread
from analyzers.confidence import with_statistics
from analyzers.cost import Price, priced
from analyzers.errors import InputError
from analyzers.exporters import ExportRequest, all_exporters, write_export
from analyzers.fallback.answer import Setting
from analyzers.fallback.constraints import check_numbers, resolve
from analyzers.fallback.search import budget_of, search, target_of, why_hopeless
from analyzers.overflow import SAMPLES as OVERFLOW_SAMPLES
from analyzers.overflow import find_overflow
from analyzers.pool import WorkerPool
from analyzers.pricing import price_of
from analyzers.project import Pair
from analyzers.ranking import rank_layers
from analyzers.records import (
    Array,
    Fidelity,
    Inputs,
    Notice,
    Plan,
    Ranking,
    Score,
    SearchOptions,
    SearchResult,
)
from analyzers.steps import Step, Steps
from analyzers.tasks.metric import metric_warnings
from analyzers.trial import Scoring, TrialScorer, samples_digest
from analyzers.trial_store import FILE_NAME, StoredTrial, TrialKey, TrialStore

# A reference below this AP found next to nothing: preprocessing or decoder are wrong, not the candidate.
AP_FLOOR = 0.05
# A larger gap between simulated and given candidate is a finding of its own.
LARGEST_GAP = {"": 0.005, "dB": 1.0}
# Where the empty plan and the candidate agree in every bit on these, they are not both run on all.
FIDELITY_SAMPLES = 4
EXECUTABLE_FORMAT = "onnx-sim"


def search_pair(
    pair: Pair, inputs: Inputs, options: SearchOptions, *, executor: Executor | None = None
) -> Steps[SearchResult]:
    """Find the layers that have to leave INT8.

    Args:
        pair: The models.
        inputs: Samples, task, annotations, workspace; how plans are made.
        options: What is wanted.
        executor: Runs the models; by default ``inputs.workers`` processes of its own.

    Raises:
        InputError: Something that the search needs is missing or wrong.
        BackendError: A model cannot be run.
    """
    check_numbers(options)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tearline-")))
        store = stack.enter_context(TrialStore(inputs.workspace / FILE_NAME))
        workers = executor or stack.enter_context(WorkerPool(inputs.workers))
        bench = make_bench(pair, inputs, folder / "reference")
        run = _Run(pair, bench, options, workers, store, folder)
        return (yield from run.steps())


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """What the parts of one search share."""

    pair: Pair
    bench: Bench
    options: SearchOptions
    executor: Executor
    store: TrialStore
    folder: Path

    def steps(self) -> Steps[SearchResult]:
        inputs, layers = self.bench.inputs, self.pair.pairing.layers
        resolve(layers, self.options)  # before anything is run
        searched, held_out = split(len(samples_of(self.bench)), self.options.holdout)
        price, target_name, notices = price_of(self.pair, self.bench, searched[0])
        scoring = Scoring(searched, inputs.precision, inputs.rule, inputs.mode)
        yield Step("search", text=f"Scoring the reference on {len(searched)} samples")
        scorer = TrialScorer(
            self.pair, self.bench, scoring, executor=self.executor, store=self.store, folder=self.folder
        )
        setting = self._setting(scorer, target_name, notices)
        # Whoever draws the search as it happens needs to know what it is seen against.
        yield Step("search", record=Score(setting.reference_score, setting.metric, setting.unit))
        if not why_hopeless(setting, target_of(self.options, setting)):
            overflow, cost = yield from self._overflow(scoring)
            scorer = scorer.with_scoring(replace(scoring, overflow=overflow))
            yield Step("search", text="Scoring the candidate")
            setting = self._with_fidelity(replace(setting, spent=setting.spent + cost), scorer)
            scorer = scorer.stopping_at(target_of(self.options, setting))

        def rank(free: tuple[str, ...]) -> Steps[Ranking]:
            # The ranking must leave enough to find and prove a set.
            return self._ranking(free, searched, (budget_of(self.options, len(searched)) - setting.spent) / 2)

        result = yield from search(layers, scorer, rank, options=self.options, setting=setting, price=price)
        if result.reached and result.fallback:
            yield Step("search", text="Scoring the exported file")
            result = self._with_exported_score(result, scorer)
        result = yield from self._with_statistics(result, scorer, price)
        if held_out and result.trials:
            yield Step("search", text=f"Scoring the answer on {len(held_out)} samples that were kept back")
            result = self._with_holdout(
                result, scorer.with_scoring(replace(scorer.scoring, indices=held_out))
            )
        return result

    def _setting(self, scorer: TrialScorer, target_name: str, notices: tuple[Notice, ...]) -> Setting:
        """Score the reference and note what is known before the search."""
        metric, inputs = metric_of(self.bench), self.bench.inputs
        scorer.score_reference()
        score = scorer.full_score("reference")
        return Setting(
            reference_score=score.value,
            floor=AP_FLOOR if score.metric.lower().startswith("ap") else None,
            fidelity=Fidelity(nan, nan, nan),
            spent=1.0,
            samples=len(scorer.scoring.indices),
            metric=score.metric,
            unit=score.unit,
            mode=inputs.mode,
            rule=inputs.rule,
            precision=inputs.precision,
            warnings=(*self.pair.warnings, *metric_warnings(metric), *notices),
            target_profile=target_name,
        )

    def _with_fidelity(self, setting: Setting, scorer: TrialScorer) -> Setting:
        """Hold the empty plan against the candidate as it was given."""
        given = scorer.score_candidate().score
        few = scorer.on_some(FIDELITY_SAMPLES)
        spent = 2.0 * len(few.scoring.indices) / setting.samples
        if few.is_faithful():
            simulated = given
        else:
            simulated = scorer.score_plan(self._empty_plan()).score
            spent += 1.0
        fidelity = Fidelity(given, simulated, _gap(given, simulated))
        warnings = setting.warnings
        if fidelity.gap > LARGEST_GAP.get(setting.unit, 0.0):
            text = (
                f"The candidate scores {given:.4g} as it was given and {simulated:.4g} as it is simulated; "
                "scores of plans carry that difference"
            )
            warnings = (*warnings, Notice("simulation_differs", text))
        # The given candidate is a trial of the search, which counts it.
        return replace(setting, fidelity=fidelity, spent=setting.spent + spent, warnings=warnings)

    def _empty_plan(self) -> Plan:
        return Plan(frozenset(), self.bench.inputs.precision, self.bench.inputs.rule)

    def _overflow(self, scoring: Scoring) -> Steps[tuple[frozenset[str], float]]:
        """Return the layers that overflow half precision, and what it cost to find them."""
        if scoring.precision != "fp16":
            return frozenset(), 0.0
        chosen = [scoring.indices[place] for place in spread(len(scoring.indices), OVERFLOW_SAMPLES)]
        images = 0

        def run(path: Path) -> Iterator[dict[str, Array]]:
            nonlocal images
            futures = [self.executor.submit(shards.run_outputs, self.bench, path, index) for index in chosen]
            images += len(chosen)
            for future in futures:
                yield future.result()

        eligible = [la.name for la in self.pair.pairing.layers if la.is_quantized and not la.is_pass_through]
        found = yield from find_overflow(self.pair, eligible, run, self.folder, rule=scoring.rule)
        return found, images / len(scoring.indices)

    def _ranking(self, free: tuple[str, ...], searched: tuple[int, ...], affordable: float) -> Steps[Ranking]:
        """Rank the layers, or find the ranking that an interrupted search left."""
        chosen, rule = self.options.rank_samples, self.bench.inputs.rule
        key = TrialKey(
            models=self.pair.digest,
            subject=f"ranking of {', '.join(free)} on {chosen} samples within {affordable:.3f} sets",
            plan=Plan(frozenset(), "fp32", rule),
            samples=samples_digest(self.bench, searched),
            metric=metric_digest(self.bench),
            mode="literal",
        )
        stored = self.store.get(key)
        if stored is not None:
            layers, gains = self.store.observations(key)
            return Ranking(layers, tuple(float(gain[0]) for gain in gains), stored.score)
        started = time.monotonic()
        ranking = yield from rank_layers(
            self.pair,
            self.bench,
            free,
            searched,
            executor=self.executor,
            folder=self.folder,
            rule=rule,
            chosen=chosen,
            affordable=affordable,
        )
        done = StoredTrial(ranking.evaluations, {}, chosen, time.monotonic() - started)
        self.store.put(key, done, ranking.layers, [np.array([gain]) for gain in ranking.gains])
        return ranking

    def _with_exported_score(self, result: SearchResult, scorer: TrialScorer) -> SearchResult:
        """Score the file that a user would take away, as plain onnxruntime runs it."""
        exporter = all_exporters().get(EXECUTABLE_FORMAT)
        if exporter is None:
            return result
        plan = Plan(frozenset(result.fallback), result.precision, result.rule)
        folder = self.folder / "export"
        written = write_export(exporter, ExportRequest(self.pair, plan, folder / "exported.onnx"))
        score = scorer.score_file(written.files[0]).value
        warnings = result.warnings
        if _gap(score, result.score) > LARGEST_GAP.get(result.unit, 0.0):
            text = (
                f"The exported file scores {score:.4g} under onnxruntime's default options, the trial "
                f"scored {result.score:.4g}"
            )
            warnings = (*warnings, Notice("export_differs", text))
        return replace(
            result,
            fidelity=replace(result.fidelity, exported_score=score),
            evaluations=result.evaluations + 1.0,
            warnings=warnings,
        )

    def _with_statistics(
        self, result: SearchResult, scorer: TrialScorer, price: Price
    ) -> Steps[SearchResult]:
        metric, known = metric_of(self.bench), dict[frozenset[str] | None, resampling.Series]()

        def series_of(fallback: frozenset[str] | None) -> resampling.Series:
            if fallback not in known:
                known[fallback] = resampling.resampled(metric, *scorer.observations(fallback))
            return known[fallback]

        bounds = resolve(self.pair.pairing.layers, self.options)
        budget = budget_of(self.options, result.samples)
        return (
            yield from with_statistics(
                result,
                series_of,
                lambda fallback: priced(scorer, price)(fallback, stage="proven"),
                forced=bounds.forced,
                affordable=budget - result.evaluations,
            )
        )

    def _with_holdout(self, result: SearchResult, scorer: TrialScorer) -> SearchResult:
        trial = scorer(frozenset(result.fallback), stage="holdout")
        share = trial.samples / result.samples
        return replace(result, holdout_score=trial.score, evaluations=result.evaluations + share)


def split(count: int, holdout: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the samples that the search uses and those that only score its answer.

    Raises:
        InputError: One of the two would be empty.
    """
    held_out = spread(count, round(count * holdout)) if holdout else ()
    searched = _without(range(count), held_out)
    if not searched or (holdout and not held_out):
        raise InputError(
            "option_out_of_range",
            f"{count} samples cannot be split with {holdout:g} of them kept back",
            where="--holdout",
            hint="Use more samples or another share",
        )
    return searched, held_out


def _without(indices: Sequence[int], left_out: Sequence[int]) -> tuple[int, ...]:
    gone = frozenset(left_out)
    return tuple(index for index in indices if index not in gone)


def _gap(first: float, second: float) -> float:
    """Return how far two scores are apart; equal infinities are equal."""
    if first == second:
        return 0.0
    return nan if isnan(first) or isnan(second) else abs(first - second)
