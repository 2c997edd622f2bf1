"""``export`` on files: from the JSON file of a search to the file that a toolchain reads."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from analyzers import opening, samples
from analyzers.bench import make_bench, samples_of
from analyzers.errors import InputError
from analyzers.exporters import ExportRequest, ExportResult, find_exporter, write_export
from analyzers.exporters._names import nodes_of
from analyzers.exporters._quantizer import quantizer_of
from analyzers.exporters.ort import requantize
from analyzers.pool import WorkerPool
from analyzers.project import Pair, open_models
from analyzers.records import Inputs, Notice, Plan, Score, SearchResult
from analyzers.search_file import Provenance, SearchFile, read_search_file
from analyzers.steps import Step, Steps
from analyzers.trial import Scoring, TrialScorer
from analyzers.trial_store import FILE_NAME, TrialStore


@dataclass(frozen=True, slots=True)
class Requantized:
    """What onnxruntime's quantizer really gives with the plan's nodes left in float.

    Attributes:
        candidate: The new candidate.
        score: Its score on the search's samples.
        simulated_score: The score that the search found for the plan by simulating it.
        warnings: Notices.
    """

    candidate: Path
    score: Score
    simulated_score: float
    warnings: tuple[Notice, ...]


def export_search(
    search: Path, format_name: str, output: Path, *, base: Path | None = None, allow_code: bool = False
) -> Steps[ExportResult]:
    """Write the answer of a search in a format.

    Args:
        search: The JSON file of the search; it says where the models are.
        format_name: Name of an exporter.
        output: The file to write.
        base: A file of the user's to merge the answer into, for formats that can.
        allow_code: The task file may name the user's own Python; what the search file says does not count.

    Raises:
        InputError: A file is missing or wrong, or the models are no longer those of the search.
        BackendError: What was written could not be read back to the same plan.
    """
    exporter = find_exporter(format_name)
    file = read_search_file(search)
    inputs = replace(_inputs_of(file, search), allow_code=allow_code)
    pair = yield from opening.open_pair(inputs)
    _check_models(pair, file, search)
    yield Step("export", 0, 1, f"Writing {exporter.name}")
    data = None
    if inputs.data is not None and inputs.data.exists():
        data = opening.open_data(inputs, pair.reference.inputs, opening.open_task(inputs))
    request = ExportRequest(pair, plan_of(file.result), output, search=file, base=base, samples=data)
    result = write_export(exporter, request)
    yield Step("export", 1, 1)
    return result


def requantize_search(
    search: Path, calibration: Path, output: Path, *, allow_code: bool = False
) -> Steps[Requantized]:
    """Quantize the reference with the search's answer as ``nodes_to_exclude`` and score what comes out.

    Args:
        search: The JSON file of the search; it says where models and samples are.
        calibration: What ranges are measured on; best what the candidate was made from.
        output: Where the new candidate goes.
        allow_code: See ``export_search``.

    Raises:
        InputError: A file is missing or wrong.
        BackendError: onnxruntime failed.
    """
    file = read_search_file(search)
    inputs = replace(_inputs_of(file, search), allow_code=allow_code)
    pair = yield from opening.open_pair(inputs)
    _check_models(pair, file, search)
    task = opening.open_task(inputs)
    ranges = samples.open_samples(calibration, pair.reference.inputs, task=task, role="calibration")
    options = quantizer_of(pair, file).options
    made = yield from requantize(pair, plan_of(file.result), ranges, options, output)
    yield Step("score", 0, 1, "Scoring the new candidate")
    score = _score(open_models(inputs.reference, output), replace(inputs, candidate=output))
    yield Step("score", 1, 1)
    return Requantized(output, score, file.result.score, made.warnings)


def plan_of(result: SearchResult) -> Plan:
    """Return the plan that a search recommends."""
    return Plan(frozenset(result.fallback), result.precision, result.rule)


def provenance_of(pair: Pair) -> Provenance:
    """Return what a search's JSON file says of its models."""
    return Provenance(version("tearline"), pair.reference.digest, pair.candidate.digest)


def _inputs_of(file: SearchFile, path: Path) -> Inputs:
    if file.inputs is None:
        raise InputError(
            "malformed_result",
            "The search file does not say where its models are: it has no 'inputs'",
            where=str(path),
            hint="Give the JSON file that `tearline search --json` wrote, unchanged",
        )
    return file.inputs


def _check_models(pair: Pair, file: SearchFile, path: Path) -> None:
    """Refuse models that are not those of the search: names alone would fit many."""
    result, provenance = file.result, file.provenance
    now = provenance_of(pair)
    is_same = set(nodes_of(pair, result.fallback)) == set(result.fallback_nodes)
    if provenance is not None:
        is_same &= provenance.reference_digest == now.reference_digest
        is_same &= provenance.candidate_digest == now.candidate_digest
    known = {layer.name for layer in pair.pairing.layers}
    # Layers that do not exist are reported by name when the plan is checked.
    if not is_same and known.issuperset(result.fallback):
        raise InputError(
            "models_changed",
            "The models are not those that the search was run on",
            where=str(path),
            hint="Search again with these models, or give back the old ones",
        )


def _score(pair: Pair, inputs: Inputs) -> Score:
    with (
        tempfile.TemporaryDirectory(prefix="tearline-") as folder,
        TrialStore(inputs.workspace / FILE_NAME) as store,
        WorkerPool(inputs.workers) as workers,
    ):
        bench = make_bench(pair, inputs, Path(folder) / "reference")
        scoring = Scoring(tuple(range(len(samples_of(bench)))), inputs.precision, inputs.rule, inputs.mode)
        scorer = TrialScorer(pair, bench, scoring, executor=workers, store=store, folder=Path(folder))
        scorer.score_candidate()
        return scorer.full_score("candidate")
