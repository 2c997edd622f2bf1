"""``diagnose`` on files: gather evidence, ask the detectors, prove what they suspect, measure the fixes."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from analyzers import opening, samples
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
    Checked,
    DiagnoseOptions,
    Diagnosis,
    Finding,
    Gain,
    Inputs,
    Notice,
    Score,
    Severity,
    Verdict,
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
AP_FLOOR = 0.05
# More layers than this that each give little back are a slope, not a list of culprits.
FEW_LAYERS = 3
EXACT = 70  # specificity from which a cause was read off, not estimated


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
        refusal = _refusal(pair, inputs, options, scores)
        if refusal is not None:
            return refusal
        bench = replace(make_bench(pair, inputs, folder / "reference"), metric=METRIC)
        chosen = yield from telling_samples(pair, bench, COMPARED_SAMPLES, workers, inputs.mode)
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


def _refusal(
    pair: Pair, inputs: Inputs, options: DiagnoseOptions, scores: tuple[Score | None, Score | None]
) -> Diagnosis | None:
    """Return the diagnosis where looking at layers makes no sense."""
    finding: Finding | None = None
    verdict: Verdict = "reference_wrong"
    score = scores[0]
    notices = {notice.code: notice for notice in pair.warnings}
    if score is not None and score.metric.lower().startswith("ap") and score.value < AP_FLOOR:
        finding = Finding(
            cause="reference_wrong",
            layers=(),
            severity="error",
            message=f"The reference itself scores {score.metric} {score.value:.3f}: it finds next to nothing",
            evidence={"reference_score": score.value, "floor": AP_FLOOR},
            fix="Check preprocessing and decoder in the task file, and that annotations belong to the images",
        )
    elif "int8_not_quantized" in notices:
        verdict = "candidate_not_comparable"
        finding = Finding(
            cause="int8_not_quantized",
            layers=(),
            severity="error",
            message=notices["int8_not_quantized"].message,
            evidence={},
            fix="Give the quantized model, or leave it out and give a calibration set",
        )
    if finding is None:
        return None
    return Diagnosis(
        verdict=verdict,
        findings=(finding,),
        checked=(),
        output_sqnr_db=math.nan,
        repaired_sqnr_db=math.nan,
        threshold_db=options.threshold_db,
        samples=(),
        runs=0,
        reference_score=scores[0],
        candidate_score=scores[1],
        mode=inputs.mode,
        warnings=pair.warnings,
    )


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
            for done, changes in enumerate(singles(_of_scope(suspected, "layer")), start=1):
                self.lab.score(changes)
                yield Step("diagnose", done, done, "Lifting one suspect at a time")
            network, layers = self._prove(suspected, is_bad=is_bad)
        except OutOfRunsError:
            network, layers = (), Proof((), base, base, base, tuple(s for _, s in suspected))
        fixes = [self._fix(b, network, is_bad=is_bad) for b in network]
        others: list[Finding] = []
        if is_bad and self._is_spread(layers):
            others.append(self._accumulation(layers))
            layers = replace(layers, blamed=())
        fixes += [self._fix(b, layers.blamed, is_bad=is_bad) for b in layers.blamed]
        fixes.sort(key=lambda fix: -_gained(fix.finding))
        others += [_unproved(s) for _, s in suspected if s.unproved]
        if is_bad and not fixes and not any(f.severity != "info" for f in others):
            others.append(self._accumulation(layers))
        others.sort(key=lambda f: f.severity == "info")
        findings = (*self._with_gain(differing, given_db, base), *(fix.finding for fix in fixes), *others)
        diagnosis = Diagnosis(
            verdict=_verdict(findings, differing),
            findings=findings,
            checked=_checked(suspected, findings),
            output_sqnr_db=given_db,
            repaired_sqnr_db=layers.repaired if fixes else math.nan,
            threshold_db=self.options.threshold_db,
            samples=self.lab.samples.names,
            runs=self.lab.runs,
            reference_score=self.scores[0],
            candidate_score=self.scores[1],
            mode=self.inputs.mode,
            warnings=(*self.evidence.comparison.warnings, *_fidelity(base, given_db, differing)),
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

    def _is_spread(self, proof: Proof) -> bool:
        """Tell whether what was found is a slope: many layers, none of which gives much, nothing read off."""
        blamed = proof.blamed
        if len(blamed) <= FEW_LAYERS or any(
            b.chosen.is_fault or b.chosen.specificity >= EXACT for b in blamed
        ):
            return False
        return all(clamp(b.alone) - proof.base < MOVES_DB for b in blamed)

    def _accumulation(self, proof: Proof) -> Finding:
        rows = [r for r in self.evidence.comparison.layers if r.isolated is not None]
        isolated = sorted(
            r.isolated.sqnr_db for r in rows if r.isolated and not math.isnan(r.isolated.sqnr_db)
        )
        middle = isolated[len(isolated) // 2] if isolated else math.nan
        return Finding(
            cause="cumulative_error",
            layers=(),
            severity="error",
            message=(
                f"The loss is spread over the network: the output has {proof.base:.1f} dB, the median layer "
                f"by itself {middle:.1f} dB, and no single layer or few of them bring it back"
            ),
            evidence={
                "output_sqnr_db": proof.base,
                "median_isolated_sqnr_db": middle,
                "layers_measured": len(isolated),
                "all_suspects_lifted_db": proof.everything,
            },
            fix="Do not hunt layers: tighter ranges, 16-bit activations, or quantization-aware training",
        )

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


def _unproved(suspicion: Suspicion) -> Finding:
    return Finding(
        cause=suspicion.cause,
        layers=suspicion.layers,
        severity="warning" if suspicion.unproved == "warning" else "info",
        message=suspicion.message,
        evidence=suspicion.evidence,
        fix=suspicion.fix,
    )


def _verdict(findings: Sequence[Finding], differing: Sequence[Finding]) -> Verdict:
    serious = [f for f in findings if f.severity != "info"]
    if differing:
        return "inputs_differ"
    if any(f.layers for f in serious):
        return "faulty_layers"
    return "no_single_layer" if serious else "healthy"


def _checked(suspected: Sequence[tuple[str, Suspicion]], findings: Sequence[Finding]) -> tuple[Checked, ...]:
    causes = {(f.cause, f.layers) for f in findings}
    rows = []
    for name, detector in detectors().items():
        own = [s for detector_name, s in suspected if detector_name == name]
        is_found = any((s.cause, s.layers) in causes for s in own)
        result = "found" if is_found else "suspected, not proved" if own else "fine"
        layers = dict.fromkeys(la for s in own if (s.cause, s.layers) not in causes for la in s.layers)
        rows.append(Checked(name, detector.looks_at, result, tuple(layers)))
    return tuple(rows)


def _fidelity(base: float, given_db: float, differing: Sequence[Finding]) -> tuple[Notice, ...]:
    if differing or abs(clamp(base) - clamp(given_db)) <= 1.0 or min(base, given_db) > 60.0:
        return ()
    return (
        Notice(
            "simulation_differs",
            f"The candidate's own file gives {given_db:.1f} dB at the output, its simulation {base:.1f} dB; "
            "gains carry that difference",
        ),
    )
