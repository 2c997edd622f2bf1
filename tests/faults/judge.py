"""Ask for a diagnosis of a specimen and compare the answer with the truth."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzers import api, opening
from analyzers.errors import TearlineError
from analyzers.records import Diagnosis, Finding, Inputs
from analyzers.steps import finish
from tests.faults.generate import Specimen, save
from tests.faults.registry import Truth

RESULTS = ("right", "wrong layer", "wrong label", "missed", "false alarm", "failed")


@dataclass(frozen=True)
class Outcome:
    """How a diagnosis compares with the truth.

    Attributes:
        result: One of ``RESULTS``.
        reason: What is not right, in words.
        answer: What was said, short.
        seconds: How long it took.
    """

    result: str
    reason: str
    answer: str
    seconds: float


def ask(specimen: Specimen, folder: Path | None = None) -> Outcome:
    """Diagnose a specimen and judge the answer; ``folder`` keeps the files."""
    with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
        place = folder or Path(temporary)
        save(specimen, place)
        inputs = Inputs(
            place / "fp32.onnx",
            None if specimen.is_left_to_the_tool else place / "int8.onnx",
            data=place / "inputs.npz",
            candidate_data=_if_there(place / "inputs_int8.npz"),
            calibration=_if_there(place / "calib.npz"),
            workspace=Path(temporary) / "workspace",
        )
        start = time.monotonic()
        try:
            diagnosis = api.diagnose(inputs)
            pairing = finish(opening.open_pair(inputs)).pairing
        except TearlineError as error:
            return Outcome("failed", str(error), "", time.monotonic() - start)
        layer_of = {node: layer.name for layer in pairing.layers for node in layer.nodes}
        result, reason = judge(diagnosis, specimen.truths, layer_of)
        return Outcome(result, reason, short(diagnosis), time.monotonic() - start)


def _if_there(path: Path) -> Path | None:
    return path if path.exists() else None


def short(diagnosis: Diagnosis) -> str:
    """Return verdict and findings on one line."""
    found = "; ".join(f"{f.severity} {f.cause} {', '.join(f.layers)}".strip() for f in diagnosis.findings)
    return f"{diagnosis.verdict} ({diagnosis.output_sqnr_db:.1f} dB): {found or 'no findings'}"


def judge(diagnosis: Diagnosis, truths: Sequence[Truth], layer_of: Mapping[str, str]) -> tuple[str, str]:
    """Return the result and what is not right.

    Args:
        diagnosis: The answer.
        truths: What is wrong; empty for a healthy network.
        layer_of: Reference operator -> its layer; answers may name either.
    """
    serious = [f for f in diagnosis.findings if f.severity != "info"]
    blaming = [f for f in serious if f.layers]
    if not truths:
        return _judge_healthy(diagnosis, blaming)
    if truths[0].may_be_notice:
        return _judge_notice(diagnosis, blaming, truths[0])
    if not serious:
        return "missed", f"no finding, verdict {diagnosis.verdict}"
    if any(truth.guilty for truth in truths):
        return _judge_blame(serious, truths, layer_of)
    truth = truths[0]
    tolerated = _layers(truth.tolerated, layer_of)
    wrongly = [f for f in blaming if not _layers(f.layers, layer_of) <= tolerated]
    if wrongly:
        return "wrong layer", f"blames {', '.join(wrongly[0].layers)} for {wrongly[0].cause}"
    if serious[0].cause not in truth.accepted:
        return "wrong label", f"{serious[0].cause} instead of {truth.cause}"
    if diagnosis.verdict not in truth.verdicts:
        return "wrong label", f"verdict {diagnosis.verdict} instead of {truth.verdicts[0]}"
    return "right", ""


def _judge_notice(diagnosis: Diagnosis, blaming: Sequence[Finding], truth: Truth) -> tuple[str, str]:
    if blaming:
        return "wrong layer", f"blames {', '.join(blaming[0].layers)} for {blaming[0].cause}"
    said = {f.cause for f in diagnosis.findings} | {w.code for w in diagnosis.warnings}
    return ("right", "") if said & set(truth.accepted) else ("missed", f"{truth.cause} is not mentioned")


def _judge_healthy(diagnosis: Diagnosis, blaming: Sequence[Finding]) -> tuple[str, str]:
    if blaming:
        return "false alarm", f"blames {', '.join(blaming[0].layers)} for {blaming[0].cause}"
    if diagnosis.verdict != "healthy":
        return "false alarm", f"verdict {diagnosis.verdict}"
    return "right", ""


def _judge_blame(
    serious: Sequence[Finding], truths: Sequence[Truth], layer_of: Mapping[str, str]
) -> tuple[str, str]:
    """Every fault must be found, the first finding must be one of them, and nobody else be blamed."""
    allowed = [
        _layers(names | truth.tolerated, layer_of)
        for truth in truths
        for names in truth.guilty or (frozenset(),)
    ]
    everyone = frozenset().union(*allowed)
    for finding in serious:
        extra = _layers(finding.layers, layer_of) - everyone
        if extra:
            return "wrong layer", f"blames {', '.join(sorted(extra))} for {finding.cause}"
    for truth in truths:
        result, reason = _judge_one(serious, truth, layer_of)
        if result != "right":
            return result, reason
    first = serious[0]
    if not any(first.cause in truth.accepted for truth in truths):
        return "wrong label", f"{first.cause} comes first"
    return "right", ""


def _judge_one(serious: Sequence[Finding], truth: Truth, layer_of: Mapping[str, str]) -> tuple[str, str]:
    """Compare one fault with the findings about its layers; several may share the blame between them."""
    named_by_any: set[str] = set()
    for names in truth.guilty:
        guilty = _layers(names, layer_of)
        fitting = guilty | _layers(truth.tolerated, layer_of)
        about = [f for f in serious if f.layers and _layers(f.layers, layer_of) <= fitting]
        right = [f for f in about if f.cause in truth.accepted]
        if right and frozenset().union(*(_layers(f.layers, layer_of) for f in right)) >= guilty:
            return "right", ""
        if frozenset().union(*(_layers(f.layers, layer_of) for f in about)) >= guilty:
            named_by_any |= {f.cause for f in about}
    if named_by_any:
        return "wrong label", f"{', '.join(sorted(named_by_any))} instead of {truth.cause}"
    guilty_names = " or ".join(", ".join(sorted(names)) for names in truth.guilty)
    if any(f.layers for f in serious):
        return "wrong layer", f"{guilty_names} is not named for {truth.cause}"
    return "missed", f"{guilty_names} is not named for {truth.cause}"


def _layers(names: Sequence[str] | frozenset[str], layer_of: Mapping[str, str]) -> frozenset[str]:
    return frozenset(layer_of.get(name, name) for name in names)
