"""Diagnose the body of an If, Loop or Scan as a network of its own, with every detector there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from analyzers.body_runs import RecordedRuns
from analyzers.comparison import compare_in_full
from analyzers.diagnoses import detectors
from analyzers.evidence import Evidence
from analyzers.gathering import gather
from analyzers.graph import save_model
from analyzers.lab import Lab, OutOfRunsError
from analyzers.project import open_models
from analyzers.proving import Blamed, prove
from analyzers.records import INPUT_LAYER
from analyzers.steps import finish
from analyzers.subgraphs import Body
from analyzers.suspicions import Change, Suspicion

# A body runs many times, or feeds much: what it loses counts sooner than what an output loses.
GOOD_DB = 25.0
_MOST_RUNS = 60  # what-if models per body


@dataclass(frozen=True, slots=True, eq=False)
class Inside:
    """What was found in a body.

    Attributes:
        blamed: What is to blame, those that give most first.
        base: SQNR of the body's outputs in dB, fed with the reference's values.
        repaired: The same with all that are blamed lifted.
    """

    blamed: tuple[Blamed, ...]
    base: float
    repaired: float


def diagnose_body(body: Body, recorded: RecordedRuns, folder: Path) -> Inside:
    """Gather evidence on the recorded runs, ask the detectors, and prove what they suspect.

    Raises:
        PairingError: The two bodies have too little in common.
        ModelLoadError: One of them is no network by itself.
        BackendError: One of them does not run.
    """
    pair = open_models(
        save_model(body.reference, folder / "reference"), save_model(body.candidate, folder / "candidate")
    )
    compared = finish(compare_in_full(pair, recorded))
    evidence = finish(gather(pair, compared, recorded))
    lab = Lab(pair, recorded, evidence.constants, folder / "what-if", max_runs=_MOST_RUNS)
    base = lab.score(())
    suspected = list(_suspicions(evidence, lab))
    try:
        proof = prove(suspected, lab.score, threshold_db=GOOD_DB, is_bad=base < GOOD_DB)
    except OutOfRunsError:
        return Inside((), base, base)
    return Inside(proof.blamed, base, proof.repaired)


def _suspicions(evidence: Evidence, lab: Lab) -> Iterator[Suspicion]:
    for detector in detectors().values():
        for suspicion in detector.find(evidence):
            is_provable = not suspicion.unproved and suspicion.scope == "layer" and suspicion.sources
            if is_provable and lab.can_apply([Change(s) for s in suspicion.sources]):
                yield suspicion


def named_inside(body: Body, suspicion: Suspicion) -> tuple[str, ...]:
    """Return what a suspicion blames, as seen from outside; an input of the body is named by its readers."""
    names: list[str] = []
    for layer in suspicion.layers or (INPUT_LAYER,):
        if layer != INPUT_LAYER:
            names.append(layer)
            continue
        tensors = {source.name for source in suspicion.sources if source.kind == "store"}
        names += [
            node.name or ""
            for node in body.reference.graph
            if any(v is not None and v.name in tensors for v in node.inputs)
        ]
    return tuple(f"{body.path}/{name}" for name in dict.fromkeys(names)) or (body.path,)
