"""Score plans: build the model of a plan, run it over the samples, keep the trial."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analyzers import shards
from analyzers.bench import Bench, SetName, Side, metric_digest, metric_of, samples_of, spread
from analyzers.early_stop import Stopping
from analyzers.graph import save_model
from analyzers.project import Pair
from analyzers.records import Array, Mode, Plan, Precision, Rule, Score, Trial
from analyzers.simulate import simulate_plan
from analyzers.trial_store import StoredTrial, TrialKey, TrialStore

DB_METRICS = ("sqnr", "slice-sqnr")


@dataclass(frozen=True, slots=True)
class Scoring:
    """How trials are scored.

    Attributes:
        indices: Samples of the set that count, in order.
        precision: Fallback precision.
        rule: Storage rule.
        mode: Session mode.
        overflow: Layers that do not fit half precision.
    """

    indices: tuple[int, ...]
    precision: Precision = "fp16"
    rule: Rule = "per-edge"
    mode: Mode = "as-executed"
    overflow: frozenset[str] = frozenset()


class TrialScorer:
    """Scores sets of layers; see ``analyzers.contracts.ScoreFunction``.

    Holds the models, the workers and the store, all of which belong to the caller.

    Attributes:
        scoring: How it scores.
    """

    def __init__(
        self,
        pair: Pair,
        bench: Bench,
        scoring: Scoring,
        *,
        executor: Executor,
        store: TrialStore,
        folder: Path,
    ) -> None:
        self.scoring = scoring
        self._pair = pair
        self._bench = bench
        self._executor = executor
        self._store = store
        self._folder = folder
        self._metric = metric_of(bench)
        self._metric_digest = metric_digest(bench)
        self._order = {layer.name: place for place, layer in enumerate(pair.pairing.layers)}
        self._names = tuple(samples_of(bench).names[index] for index in scoring.indices)
        self._samples_digest = samples_digest(bench, scoring.indices)
        self._run_here: dict[str, StoredTrial] = {}
        self._stopping: Stopping | None = None

    def __call__(self, fallback: frozenset[str], *, stage: str = "") -> Trial:
        """Score the plan that keeps these layers out of INT8; without any it is the candidate as given."""
        if not fallback:
            return self._trial((), self.score_candidate(), stage)
        plan = Plan(fallback, self.scoring.precision, self.scoring.rule)
        ordered = tuple(sorted(fallback, key=lambda layer: self._order[layer]))
        return self._trial(ordered, self.score_plan(plan), stage)

    def score_reference(self) -> StoredTrial:
        """Score the reference."""
        side = Side(self._bench.inputs.reference)
        return self._scored("reference", None, side)

    def score_candidate(self) -> StoredTrial:
        """Score the candidate as it was given; in QDQ form where it does not read and yield float tensors."""
        side = given_side(self._pair, self._bench, self.scoring.mode)
        if side is None:
            return self.score_plan(Plan(frozenset(), self.scoring.precision, self.scoring.rule))
        return self._scored("candidate", None, side)

    def score_plan(self, plan: Plan) -> StoredTrial:
        """Score a plan as it is simulated, the empty one too."""
        return self._scored("plan", plan, None)

    def score_file(self, path: Path) -> Score:
        """Score an exported file as plain onnxruntime runs it; not kept in the store."""
        return self._run(Side(path, is_plain=True, feeds=plan_feeds(self._bench)))[0]

    def with_scoring(self, scoring: Scoring) -> TrialScorer:
        """Return a scorer of the same project that scores in another way."""
        other = TrialScorer(
            self._pair, self._bench, scoring, executor=self._executor, store=self._store, folder=self._folder
        )
        other._run_here = self._run_here
        return other

    def stopping_at(self, target: float) -> TrialScorer:
        """Return a scorer whose plans end early where they clearly miss the target.

        Needs the reference's score; metrics in dB have no paired drop and are always scored on all samples.
        """
        other = self.with_scoring(self.scoring)
        stored = self.score_reference()
        names, rows = self.observations(None)
        if self._metric.name not in DB_METRICS and len(names) == len(self._names):
            other._stopping = Stopping(self._metric, names, rows, stored.score, target)
        return other

    def on_some(self, count: int) -> TrialScorer:
        """Return a scorer of a few samples that are evenly spaced over this one's."""
        indices = self.scoring.indices
        few = tuple(indices[place] for place in spread(len(indices), count))
        return self.with_scoring(replace(self.scoring, indices=few))

    def is_faithful(self) -> bool:
        """Tell whether the empty plan leaves the same of every sample as the candidate's own file."""
        side = given_side(self._pair, self._bench, self.scoring.mode)
        if side is None:
            return False
        _, given = self._run(side)
        plan = self._simulated_side(Plan(frozenset(), self.scoring.precision, self.scoring.rule))
        _, simulated = self._run(plan)
        plan.path.unlink(missing_ok=True)
        return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(given, simulated, strict=True))

    def full_score(self, subject: str, plan: Plan | None = None) -> Score:
        """Return the score of a finished trial with all its details, from what the metric kept."""
        names, observations = self._store.observations(self._key(subject, plan))
        return self._metric.score(names, observations)

    def observations(self, fallback: frozenset[str] | None) -> tuple[tuple[str, ...], tuple[Array, ...]]:
        """Return sample names and what the metric kept of each in the trial of a set.

        None stands for the reference. Both are empty if there was no such trial.
        """
        if fallback is None:
            return self._store.observations(self._key("reference", None))
        plan = Plan(fallback, self.scoring.precision, self.scoring.rule)
        found = self._store.observations(self._key("plan", plan))
        return found if found[0] or fallback else self._store.observations(self._key("candidate", None))

    def _trial(self, fallback: tuple[str, ...], stored: StoredTrial, stage: str) -> Trial:
        overflow = self.scoring.overflow if self.scoring.precision == "fp16" else frozenset[str]()
        return Trial(
            fallback=fallback,
            score=stored.score,
            samples=stored.samples,
            seconds=stored.seconds,
            stage=stage,
            overflow=tuple(layer for layer in fallback if layer in overflow),
        )

    def _scored(self, subject: str, plan: Plan | None, side: Side | None) -> StoredTrial:
        """Return the stored trial, or run it now."""
        key, early = self._key(subject, plan), self._early_key(subject, plan)
        for known in (key, early):
            if known.digest in self._run_here:
                return self._run_here[known.digest]
            stored = self._store.get(known)
            if stored is not None:
                return replace(stored, seconds=0.0)
        started = time.monotonic()
        if side is None:
            assert plan is not None
            side = self._simulated_side(plan)
        try:
            rows, hopeless = self._observed(side, is_plan=subject == "plan")
        finally:
            if side.is_simulated:
                side.path.unlink(missing_ok=True)
        seconds = time.monotonic() - started
        if hopeless is not None:
            places = sorted(rows)
            trial = StoredTrial(hopeless, {}, len(rows), seconds)
            self._store.put(early, trial, [self._names[p] for p in places], [rows[p] for p in places])
            self._run_here[early.digest] = trial
        else:
            observations = [rows[place] for place in range(len(self._names))]
            score = self._metric.score(self._names, observations)
            trial = StoredTrial(score.value, score.details, len(self._names), seconds)
            self._store.put(key, trial, self._names, observations)
            self._run_here[key.digest] = trial
        return trial

    def _observed(self, side: Side, *, is_plan: bool) -> tuple[dict[int, Array], float | None]:
        """Run a model over the samples, part by part where it may end early.

        Returns:
            What the metric kept, by place; and the score that a part suggests, if that clearly misses.
        """
        rows: dict[int, Array] = {}
        stopping = self._stopping if is_plan else None
        for places in () if stopping is None else stopping.places():
            assert stopping is not None
            self._observe_more(side, places, rows)
            hopeless = stopping.score_if_hopeless(places, [rows[place] for place in places])
            if hopeless is not None:
                return rows, hopeless
        self._observe_more(side, range(len(self._names)), rows)
        return rows, None

    def _observe_more(self, side: Side, places: Sequence[int], rows: dict[int, Array]) -> None:
        missing = [place for place in places if place not in rows]
        indices = tuple(self.scoring.indices[place] for place in missing)
        rows.update(zip(missing, self._run_on(side, indices), strict=True))

    def _early_key(self, subject: str, plan: Plan | None) -> TrialKey:
        """Return the key of a trial that ended early: whether it may depends on the target."""
        if self._stopping is None or subject != "plan":
            return self._key(subject, plan)
        return self._key(f"plan, ended early below {self._stopping.target!r}", plan)

    def _key(self, subject: str, plan: Plan | None) -> TrialKey:
        return TrialKey(
            models=self._pair.digest,
            subject=subject,
            plan=plan,
            samples=self._samples_digest,
            metric=self._metric_digest,
            mode=self.scoring.mode,
        )

    def _simulated_side(self, plan: Plan) -> Side:
        model = simulate_plan(self._pair, plan).model
        # Workers keep sessions by path, so two plans must never share one.
        name = f"plan-{self._key('plan', plan).digest[:32]}.onnx"
        path = save_model(model, self._folder, name=name)
        feeds = plan_feeds(self._bench)
        return Side(path, self.scoring.mode, is_simulated=True, feeds=feeds)

    def _run(self, side: Side) -> tuple[Score, Sequence[Array]]:
        """Run a model over the samples, in shards, and score what the metric kept."""
        observations = self._run_on(side, self.scoring.indices)
        return self._metric.score(self._names, observations), observations

    def _run_on(self, side: Side, indices: Sequence[int]) -> list[Array]:
        futures = [
            self._executor.submit(shards.observe, self._bench, side, indices[start:stop])
            for start, stop in shards.cut(len(indices))
        ]
        try:
            return [row for future in futures for row in future.result()]
        finally:
            for future in futures:
                future.cancel()


def given_side(pair: Pair, bench: Bench, mode: Mode) -> Side | None:
    """Return how the candidate's own file is run, or None if its borders are not those of the reference."""
    has_own_data = bench.inputs.candidate_data is not None
    ours = {spec.name: spec for spec in pair.reference.inputs}
    theirs = {spec.name: spec for spec in pair.candidate.inputs}
    names = pair.input_names
    if not has_own_data:
        if set(names.values()) != set(theirs) or set(names) != set(ours):
            return None
        if any(ours[name].dtype != theirs[twin].dtype for name, twin in names.items()):
            return None
    outputs = {v.name: v for v in pair.candidate.ir.graph.outputs}
    for name, twin in pair.pairing.outputs.items():
        reference = next(v for v in pair.reference.ir.graph.outputs if v.name == name)
        if twin not in outputs or outputs[twin].dtype not in (None, reference.dtype):
            return None
    return Side(
        path=pair.candidate.path.absolute(),
        mode=mode,
        feeds="candidate_data" if has_own_data else "data",
        input_names=() if has_own_data else tuple((a, b) for a, b in names.items() if a != b),
        output_names=tuple((twin, name) for name, twin in pair.pairing.outputs.items() if twin != name),
    )


def plan_feeds(bench: Bench) -> SetName:
    """Return which set a plan is fed with: the device's, where that is of the reference's names and types."""
    if bench.inputs.candidate_data is None:
        return "data"
    ours = {(s.name, s.dtype) for s in bench.specs}
    theirs = {(s.name, s.dtype) for s in bench.candidate_specs}
    return "candidate_data" if ours == theirs else "data"


def samples_digest(bench: Bench, indices: Sequence[int]) -> str:
    """Return a content hash of some samples of the set, as both sides are fed them."""
    data = samples_of(bench)
    digest = hashlib.sha256(data.digest.encode())
    if bench.inputs.candidate_data is not None:
        digest.update(samples_of(bench, "candidate_data").digest.encode())
    digest.update("\0".join(data.names[index] for index in indices).encode())
    return digest.hexdigest()
