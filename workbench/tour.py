"""The demo as a job: the whole way through, once, on the detector that is shipped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from analyzers import api
from analyzers.exporters import ExportResult
from analyzers.exporting import export_search
from analyzers.records import BisectOptions, BisectResult, Comparison, Inputs, SearchOptions
from analyzers.search_file import search_json
from analyzers.serialize import write_json
from analyzers.steps import Steps
from sample_models.demo import DemoPaths
from workbench.requests import DemoRequest

# Every eighth picture shows what each layer does; the score needs them all.
COMPARED = "0::8"
EXPORT_FORMAT = "onnx"


@dataclass(frozen=True, slots=True)
class Tour:
    """The answers of the commands in turn; ``search`` is that command's JSON."""

    compare: Comparison
    bisect: BisectResult
    search: object
    export: ExportResult


def demo_inputs(request: DemoRequest, paths: DemoPaths) -> Inputs:
    """Return what the commands would be given."""
    return Inputs(
        reference=paths.reference,
        candidate=paths.candidate,
        data=paths.data,
        annotations=paths.annotations,
        task=paths.task,
        samples=request.samples,
        workspace=request.workspace,
        workers=request.workers,
    )


def tour_steps(request: DemoRequest, paths: DemoPaths) -> Steps[Tour]:
    """Compare, bisect, search and export.

    Raises:
        InputError: A shipped file is missing.
    """
    inputs = demo_inputs(request, paths)
    compared = yield from api.compare_steps(replace(inputs, samples=request.samples or COMPARED))
    bisected = yield from api.bisect_steps(inputs, BisectOptions())
    max_drop = paths.max_drop if request.max_drop is None else request.max_drop
    found = yield from api.search_steps(inputs, SearchOptions(max_drop=max_drop))
    file = search_file(request.workspace)
    file.parent.mkdir(exist_ok=True)
    search = search_json(found)
    write_json(search, file)
    exported = yield from export_search(file, EXPORT_FORMAT, file.with_name("mixed.onnx"))
    return Tour(compared, bisected, search, exported)


def search_file(workspace: Path) -> Path:
    """Return where the demo's search is kept, for further exports."""
    return workspace / "demo" / "search.json"
