"""The words of a diagnosis: verdicts, what was checked, and the answers that name no layer."""

from __future__ import annotations

import math
from collections.abc import Sequence

from analyzers.diagnoses import detectors
from analyzers.evidence import Evidence
from analyzers.project import Pair
from analyzers.proving import MOVES_DB, Proof, clamp
from analyzers.records import Checked, DiagnoseOptions, Diagnosis, Finding, Inputs, Notice, Score, Verdict
from analyzers.suspicions import Suspicion

AP_FLOOR = 0.05  # a reference below it finds next to nothing
# More layers than this that each give little back are a slope, not a list of culprits.
FEW_LAYERS = 3
EXACT = 70  # specificity from which a cause was read off, not estimated


def refusal(
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


def is_spread(proof: Proof) -> bool:
    """Tell whether what was found is a slope: many layers, none of which gives much, nothing read off."""
    blamed = proof.blamed
    if len(blamed) <= FEW_LAYERS or any(b.chosen.specificity >= EXACT for b in blamed):
        return False
    best = max(clamp(b.alone) for b in blamed) - proof.base
    return best < max(MOVES_DB, (proof.repaired - proof.base) / 2)


def accumulation(evidence: Evidence, proof: Proof) -> Finding:
    """Return the finding that no layer is to blame."""
    rows = [r for r in evidence.comparison.layers if r.isolated is not None]
    isolated = sorted(r.isolated.sqnr_db for r in rows if r.isolated and not math.isnan(r.isolated.sqnr_db))
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


def unproved(suspicion: Suspicion) -> Finding:
    """Return the finding of a suspicion that needs no lift."""
    return Finding(
        cause=suspicion.cause,
        layers=suspicion.layers,
        severity="warning" if suspicion.unproved == "warning" else "info",
        message=suspicion.message,
        evidence=suspicion.evidence,
        fix=suspicion.fix,
    )


def verdict(findings: Sequence[Finding], differing: Sequence[Finding]) -> Verdict:
    """Return what is wrong with the whole."""
    serious = [f for f in findings if f.severity != "info"]
    if differing:
        return "inputs_differ"
    if any(f.layers for f in serious):
        return "faulty_layers"
    return "no_single_layer" if serious else "healthy"


def checked(suspected: Sequence[tuple[str, Suspicion]], findings: Sequence[Finding]) -> tuple[Checked, ...]:
    """Return one row per detector."""
    causes = {(f.cause, f.layers) for f in findings}
    rows = []
    for name, detector in detectors().items():
        own = [s for detector_name, s in suspected if detector_name == name]
        is_found = any((s.cause, s.layers) in causes for s in own)
        result = "found" if is_found else "suspected, not proved" if own else "fine"
        layers = dict.fromkeys(la for s in own if (s.cause, s.layers) not in causes for la in s.layers)
        rows.append(Checked(name, detector.looks_at, result, tuple(layers)))
    return tuple(rows)


def fidelity(base: float, given_db: float, differing: Sequence[Finding]) -> tuple[Notice, ...]:
    """Warn where the simulation is not what was uploaded."""
    if differing or abs(clamp(base) - clamp(given_db)) <= 1.0 or min(base, given_db) > 60.0:
        return ()
    return (
        Notice(
            "simulation_differs",
            f"The candidate's own file gives {given_db:.1f} dB at the output, its simulation {base:.1f} dB; "
            "gains carry that difference",
        ),
    )
