"""What the doors call: the engine's questions, from paths to answers.

Each question has a form that yields its steps (for jobs) and one that just returns the answer (for scripts,
as names of ``analyzers`` itself).
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from analyzers import comparison, exporting, graph, opening, run_bisect, run_search, scores
from analyzers.exporters import ExportResult
from analyzers.records import (
    BisectOptions,
    BisectResult,
    CompareOptions,
    Comparison,
    DiagnoseOptions,
    Diagnosis,
    Inputs,
    QuantizeOptions,
    QuantizeResult,
    SearchOptions,
    SearchResult,
)
from analyzers.search_file import SearchFile, search_json
from analyzers.serialize import write_json
from analyzers.steps import Steps, finish


def read(path: Path) -> graph.Model:
    """Read an ONNX model and check it; see ``analyzers.graph.read_model``.

    Raises:
        ModelLoadError: The file is no model that can be used; the message says what to do.
    """
    return graph.read_model(path)


def quantize_steps(
    reference: Path,
    data: Path,
    output: Path,
    *,
    task: Path | None = None,
    samples: str | None = None,
    options: QuantizeOptions | None = None,
    allow_code: bool = False,
) -> Steps[QuantizeResult]:
    """Make a candidate from a calibration set; see ``analyzers.quantizing.quantize``."""
    inputs = Inputs(
        reference, task=task, samples=samples, quantize=options or QuantizeOptions(), allow_code=allow_code
    )
    return opening.make_candidate(reference, data, output, inputs=inputs)


def compare_steps(inputs: Inputs, options: CompareOptions | None = None) -> Steps[Comparison]:
    """Compare layer by layer; see ``analyzers.comparison.compare``."""
    options = options or CompareOptions()
    pair = yield from opening.open_pair(inputs)
    task = opening.open_task(inputs)
    data = opening.open_data(inputs, pair.reference.inputs, task)
    reference_score, candidate_score = yield from scores.task_scores(pair, inputs)
    return (
        yield from comparison.compare(
            pair,
            data,
            reference_score=reference_score,
            candidate_score=candidate_score,
            candidate_samples=opening.open_candidate_data(inputs, pair, task),
            mode=inputs.mode,
            threshold=options.threshold,
            isolated=options.isolated,
        )
    )


def bisect_steps(inputs: Inputs, options: BisectOptions | None = None) -> Steps[BisectResult]:
    """Find the layers that break the output; see ``analyzers.run_bisect.bisect_pair``."""
    pair = yield from opening.open_pair(inputs)
    return (yield from run_bisect.bisect_pair(pair, inputs, options or BisectOptions()))


def diagnose_steps(inputs: Inputs, options: DiagnoseOptions | None = None) -> Steps[Diagnosis]:
    """Say what is wrong, why, and what to do; see ``analyzers.diagnosing.diagnose_pair``."""
    from analyzers import diagnosing

    pair = yield from opening.open_pair(inputs)
    return (yield from diagnosing.diagnose_pair(pair, inputs, options or DiagnoseOptions()))


def search_steps(inputs: Inputs, options: SearchOptions) -> Steps[SearchFile]:
    """Find the smallest fallback set that reaches a target; see ``analyzers.run_search.search_pair``.

    The answer comes with what it was run on, so that an export needs nothing else.
    """
    pair = yield from opening.open_pair(inputs)
    result = yield from run_search.search_pair(pair, inputs, options)
    return SearchFile(result, inputs, options, exporting.provenance_of(pair))


def quantize(
    reference: Path,
    data: Path,
    output: Path,
    *,
    task: Path | None = None,
    samples: str | None = None,
    options: QuantizeOptions | None = None,
    allow_code: bool = False,
) -> QuantizeResult:
    """Make a candidate from a calibration set and return how it was made."""
    return finish(
        quantize_steps(
            reference, data, output, task=task, samples=samples, options=options, allow_code=allow_code
        )
    )


def compare(inputs: Inputs, options: CompareOptions | None = None) -> Comparison:
    """Compare layer by layer and return one record per reference operator."""
    return finish(compare_steps(inputs, options))


def bisect(inputs: Inputs, options: BisectOptions | None = None) -> BisectResult:
    """Find the layers that break the output and return them with their proof."""
    return finish(bisect_steps(inputs, options))


def diagnose(inputs: Inputs, options: DiagnoseOptions | None = None) -> Diagnosis:
    """Say what is wrong with a candidate, why, and what to do, each cause with its proof."""
    return finish(diagnose_steps(inputs, options))


def search(inputs: Inputs, options: SearchOptions) -> SearchResult:
    """Find the smallest fallback set that reaches a target and return it with its proof."""
    return finish(search_steps(inputs, options)).result


def export(
    search: Path | SearchResult,
    format_name: str,
    output: Path,
    *,
    inputs: Inputs | None = None,
    base: Path | None = None,
    allow_code: bool = False,
) -> ExportResult:
    """Write a search's answer for a toolchain; see ``analyzers.exporting.export_search``.

    Args:
        search: What ``search`` returned, or the JSON file that ``tearline search --json`` wrote.
        format_name: Name of an exporter ("onnx-sim", "rknn" ...).
        output: The file to write.
        inputs: What ``search`` was given; not needed for a JSON file, which says it.
        base: A file of the user's to merge the answer into, for formats that can.
        allow_code: The task that a JSON file names may run Python of its own; a result's ``inputs`` say it.

    Raises:
        ValueError: A result was given without its inputs.
        InputError: A file is missing or wrong, or the models are no longer those of the search.
        BackendError: What was written could not be read back to the same plan.
    """
    if isinstance(search, Path):
        return finish(exporting.export_search(search, format_name, output, base=base, allow_code=allow_code))
    if inputs is None:
        raise ValueError("a search result needs the inputs that it was found on")
    provenance = exporting.provenance_of(finish(opening.open_pair(inputs)))
    with tempfile.TemporaryDirectory(prefix="tearline-") as folder:
        file = Path(folder) / "search.json"
        write_json(search_json(SearchFile(search, inputs, None, provenance)), file)
        return finish(
            exporting.export_search(file, format_name, output, base=base, allow_code=inputs.allow_code)
        )
