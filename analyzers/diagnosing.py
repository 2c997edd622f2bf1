"""``diagnose`` on files: gather evidence, ask the detectors, prove what they suspect, measure the fixes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from analyzers import opening, samples, verdicts
from analyzers.bench import make_bench, samples_of
from analyzers.comparison import compare_in_full
from analyzers.contracts import SampleSet
from analyzers.diagnoses import detectors
from analyzers.evidence import Evidence
from analyzers.gathering import gather
from analyzers.input_relations import relation_findings
from analyzers.lab import METRIC, Lab, OutOfRunsError
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.pool import WorkerPool
from analyzers.project import Pair
from analyzers.proving import MOVES_DB, Blamed, Proof, clamp, prove, singles
from analyzers.records import (
    DiagnoseOptions,
    Diagnosis,
    Finding,
    Gain,
    Inputs,
    Score,
    Severity,
)
from analyzers.scores import task_scores
from analyzers.steps import Step, Steps
from analyzers.suspicions import Change, Repair, Suspicion
from analyzers.task_ladder import Fix, TaskLadder
from analyzers.telling import Subset, telling_samples, worst_of

# A comparison over more samples than this tells little more about a layer.
COMPARED_SAMPLES = 32
# A task's score that falls by less than this is noise or nothing.
SCORE_DROP = 0.01


def diagnose_pair(pair: Pair, inputs: Inputs, options: DiagnoseOptions) -> Steps[Diagnosis]:
    """Say what is wrong with a candidate, why, and what to do.

    Args:
        pair: The models.
        inputs: Samples, calibration set, task and annotations.
        options: Threshold, number of samples and runs.

    Raises:
        InputError: Something is missing or wrong.
        BackendError: A model cannot be run.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tearline-")))
        workers = stack.enter_context(WorkerPool(inputs.workers))
        scores = yield from task_scores(pair, inputs)
        refusal = verdicts.refusal(pair, inputs, options, scores)
        if refusal is not None:
            return refusal
        bench = replace(make_bench(pair, inputs, folder / "reference"), metric=METRIC)
        chosen = yield from telling_samples(
            pair, bench, COMPARED_SAMPLES, workers, inputs.mode, stage="diagnose"
        )
        seen = Subset(samples_of(bench), chosen)
        fed = None if inputs.candidate_data is None else Subset(samples_of(bench, "candidate_data"), chosen)
        differing = () if fed is None else relation_findings(pair, seen, fed)
        compared = yield from compare_in_full(
            pair, seen, candidate_samples=None if differing else fed, mode=inputs.mode
        )
        few = Subset(seen, worst_of(compared, len(seen), options.samples))
        evidence = yield from gather(pair, compared, few, calibration=_calibration(pair, inputs))
        lab = Lab(pair, few, evidence.constants, folder, max_runs=options.max_runs, mode=inputs.mode)
        case = _Case(pair, inputs, options, evidence, lab, scores)
        given = lab.given_score(None if fed is None else Subset(fed, few.indices))
        diagnosis, fixes = yield from case.steps(differing, given)
        if scores[0] is None or not fixes:
            return diagnosis
        ladder = TaskLadder(replace(bench, metric=inputs.metric), lab, workers, folder)
        return (yield from ladder.with_gains(diagnosis, fixes))


def _calibration(pair: Pair, inputs: Inputs) -> SampleSet | None:
    if inputs.calibration is None:
        return None
    task = opening.open_task(inputs)
    return samples.open_samples(inputs.calibration, pair.reference.inputs, task=task, role="calibration")


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """What the parts of one diagnosis share."""

    pair: Pair
    inputs: Inputs
    options: DiagnoseOptions
    evidence: Evidence
    lab: Lab
    scores: tuple[Score | None, Score | None]

    def steps(
        self, differing: tuple[Finding, ...], given_db: float
    ) -> Steps[tuple[Diagnosis, tuple[Fix, ...]]]:
        """Return the diagnosis, and for each finding that a fix was simulated for, the fix."""
        base = self.lab.score(())
        suspected = self._suspicions()
        is_bad = self._is_bad(base)
        try:
            suspects = singles(_of_scope(suspected, "layer"))
            for done, changes in enumerate(suspects, start=1):
                self.lab.score(changes)
                yield Step("diagnose", done, len(suspects), "Lifting one suspect at a time")
            network, layers = self._prove(suspected, is_bad=is_bad)
        except OutOfRunsError:
            network, layers = (), Proof((), base, base, base, tuple(s for _, s in suspected))
        fixes = [self._fix(b, network, is_bad=is_bad) for b in network]
        others: list[Finding] = []
        if is_bad and verdicts.is_spread(layers):
            others.append(verdicts.accumulation(self.evidence, layers))
            layers = replace(layers, blamed=())
        fixes += [self._fix(b, layers.blamed, is_bad=is_bad) for b in layers.blamed]
        fixes.sort(key=lambda fix: -_gained(fix.finding))
        others += [verdicts.unproved(s) for _, s in suspected if s.unproved]
        if is_bad and not fixes and not any(f.severity != "info" for f in others):
            others.append(verdicts.accumulation(self.evidence, layers))
        others.sort(key=lambda f: f.severity == "info")
        findings = (*self._with_gain(differing, given_db, base), *(fix.finding for fix in fixes), *others)
        diagnosis = Diagnosis(
            verdict=verdicts.verdict(findings, differing),
            findings=findings,
            checked=verdicts.checked(suspected, findings),
            output_sqnr_db=given_db,
            repaired_sqnr_db=layers.repaired if fixes else math.nan,
            threshold_db=self.options.threshold_db,
            samples=self.lab.samples.names,
            runs=self.lab.runs,
            reference_score=self.scores[0],
            candidate_score=self.scores[1],
            mode=self.inputs.mode,
            warnings=(*self.evidence.comparison.warnings, *verdicts.fidelity(base, given_db, differing)),
        )
        return diagnosis, tuple(fixes)

    def _suspicions(self) -> list[tuple[str, Suspicion]]:
        """Ask every detector; what cannot be lifted cannot be proved and is left out."""
        place = {layer.name: i for i, layer in enumerate(self.pair.pairing.layers)}
        found: list[tuple[str, Suspicion]] = []
        for name, detector in detectors().items():
            for suspicion in detector.find(self.evidence):
                is_liftable = self.lab.can_apply([Change(s) for s in suspicion.sources])
                if suspicion.unproved or (suspicion.sources and is_liftable):
                    found.append((name, suspicion))
        found.sort(key=lambda item: min((place.get(la, 0) for la in item[1].layers), default=0))
        return found

    def _is_bad(self, base: float) -> bool:
        """Tell whether the candidate counts as bad: by its task's score where there is one."""
        ours, theirs = self.scores
        if ours is not None and theirs is not None and not ours.unit:
            return ours.value - theirs.value >= SCORE_DROP
        pooled = [self._pooled_db(), base + MOVES_DB]  # the looked-at samples are the worst ones
        return min(pooled) < self.options.threshold_db

    def _pooled_db(self) -> float:
        """Return the lowest SQNR of the outputs and their joined parts over all compared samples."""
        values = []
        for name in self.pair.reference.outputs:
            found = self.evidence.measured.get(name)
            if found is not None:
                values += [float(sqnr_db(part)) for part in (found.pooled.whole, *found.pooled.slices)]
                values += [-math.inf] * (float(found.pooled.whole.one_sided) > 0)
        values = [value for value in values if not math.isnan(value)]
        return min(values, default=math.inf)

    def _prove(
        self, suspected: Sequence[tuple[str, Suspicion]], *, is_bad: bool
    ) -> tuple[tuple[Blamed, ...], Proof]:
        """Prove causes of the whole network first; they explain those of single layers."""
        threshold = self.options.threshold_db
        whole = prove(_of_scope(suspected, "network"), self.lab.score, threshold_db=threshold, is_bad=is_bad)
        explained = frozenset(s for b in whole.blamed for s in b.chosen.sources)
        rest = [s for s in _of_scope(suspected, "layer") if not explained.issuperset(s.sources)]
        is_still_bad = is_bad and (not whole.blamed or whole.repaired < threshold)
        layers = prove(rest, self.lab.score, threshold_db=threshold, is_bad=is_still_bad, lifted=explained)
        return whole.blamed, layers

    def _fix(self, blamed: Blamed, others: Sequence[Blamed], *, is_bad: bool) -> Fix:
        chosen = blamed.chosen
        severity: Severity = "error" if is_bad else "warning"
        gain, changes = self._gain(blamed, [b for b in others if b is not blamed])
        finding = Finding(
            cause=chosen.cause,
            layers=chosen.layers,
            severity=severity,
            message=chosen.message,
            evidence={**chosen.evidence, "lifted_alone_db": blamed.alone},
            fix=chosen.fix,
            gain=gain,
            also=tuple(dict.fromkeys(s.cause for s in blamed.others if s.cause != chosen.cause)),
        )
        return Fix(finding, changes)

    def _gain(self, blamed: Blamed, others: Sequence[Blamed]) -> tuple[Gain, tuple[Change, ...]]:
        """Measure the cheapest fix that gives back most of what the lift does."""
        kept = [Change(source) for b in others for source in b.chosen.sources]
        company = f", with {len(others)} other repaired" if others else ""
        for repair in blamed.chosen.repairs:
            value = self._try(repair, kept)
            if value is not None and value - blamed.before >= (blamed.after - blamed.before) / 2:
                how = repair.how + company
                return Gain(blamed.before, value, how, METRIC, len(self.lab.samples)), repair.changes
        lifts = tuple(Change(source) for source in blamed.chosen.sources)
        words = "computed as in the reference" + company
        return Gain(blamed.before, blamed.after, words, METRIC, len(self.lab.samples)), lifts

    def _try(self, repair: Repair, kept: Sequence[Change]) -> float | None:
        changed = {change.source for change in repair.changes}
        changes = [*repair.changes, *(c for c in kept if c.source not in changed)]
        try:
            return clamp(self.lab.score(changes)) if self.lab.can_apply(changes) else None
        except OutOfRunsError:
            return None

    def _with_gain(self, differing: Sequence[Finding], given_db: float, base: float) -> list[Finding]:
        gain = Gain(
            given_db, base, "the candidate fed with the reference's inputs", METRIC, len(self.lab.samples)
        )
        return [replace(finding, gain=gain) for finding in differing]


def _gained(finding: Finding) -> float:
    gain = finding.gain
    return 0.0 if gain is None or math.isnan(gain.after - gain.before) else gain.after - gain.before


def _of_scope(suspected: Sequence[tuple[str, Suspicion]], scope: str) -> list[Suspicion]:
    return [s for _, s in suspected if s.scope == scope and not s.unproved]
