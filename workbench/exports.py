"""Exports of a search's answer as jobs of a project, and where their files go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from analyzers.deserialize import from_json
from analyzers.errors import InputError
from analyzers.exporters import Exporter, all_exporters
from analyzers.serialize import to_json
from workbench.job_records import JobStatus
from workbench.jobs import Jobs
from workbench.projects import Project, save_project
from workbench.requests import ExportRequest, RequantizeRequest
from workbench.runs import all_runs
from workbench.store import Workspace

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_TEXT_SUFFIXES = {
    ".json": "json",
    ".py": "python",
    ".md": "markdown",
    ".cfg": "yaml",
    ".yaml": "yaml",
    ".txt": None,
}
_PREVIEW_BYTES = 64 << 10


def export_request(project: Project, jobs: Jobs, search_id: str, exporter: Exporter) -> ExportRequest:
    """Return what an export is asked for: a folder per search and format."""
    folder = _folder(jobs.workspace, search_id) / exporter.name
    name = f"{_stem(project)}_fallback{exporter.suffix}"
    return ExportRequest(jobs.result_path(search_id), exporter.name, folder / name)


def start_export(jobs: Jobs, project: Project, search_id: str, exporter: Exporter) -> tuple[Project, str]:
    """Queue an export.

    Raises:
        InputError: The workspace cannot be written.
    """
    return _start(jobs, project, "export", export_request(project, jobs, search_id, exporter))


def start_requantize(jobs: Jobs, project: Project, search_id: str) -> tuple[Project, str]:
    """Queue the quantizing with the answer's nodes left in float, and the scoring of what comes out.

    Raises:
        InputError: The workspace cannot be written.
        ValueError: The project has no calibration set.
    """
    if project.calibration is None:
        raise ValueError("quantizing needs a calibration set")
    output = _folder(jobs.workspace, search_id) / "requantized" / f"{_stem(project)}_requantized.onnx"
    request = RequantizeRequest(jobs.result_path(search_id), project.calibration.path, output)
    return _start(jobs, project, "requantize", request)


def exports_of(jobs: Jobs, project: Project, search_id: str) -> Mapping[str, JobStatus]:
    """Return the newest export of a search's answer for each format."""
    found: dict[str, JobStatus] = {}
    search = jobs.result_path(search_id)
    for status in all_runs(jobs, project):
        if status.kind == "export":
            request = from_json(ExportRequest, jobs.job(status.id).params)
            if request.search == search:
                found.setdefault(request.format, status)
    return found


def requantize_of(jobs: Jobs, project: Project, search_id: str) -> JobStatus | None:
    """Return the newest quantizing with the answer of a search."""
    search = jobs.result_path(search_id)
    for status in all_runs(jobs, project):
        if status.kind != "requantize":
            continue
        if from_json(RequantizeRequest, jobs.job(status.id).params).search == search:
            return status
    return None


def formats() -> tuple[Exporter, ...]:
    """Return all formats, those first that are run rather than read."""
    order = ("onnx-sim", "onnx", "ort", "rknn", "markdown", "json")
    known = all_exporters()
    return (*(known[n] for n in order if n in known), *(e for n, e in known.items() if n not in order))


def preview(path: Path) -> tuple[str, str | None] | None:
    """Return the beginning of a text file and its language; None for other files.

    Raises:
        InputError: The file is gone.
    """
    if path.suffix not in _TEXT_SUFFIXES:
        return None
    try:
        with path.open("rb") as file:
            data = file.read(_PREVIEW_BYTES + 1)
    except OSError as cause:
        raise InputError(
            "file_absent", "The exported file is gone", where=str(path), hint="Write it again"
        ) from cause
    text = data[:_PREVIEW_BYTES].decode("utf-8", errors="replace")
    more = "\n..." if len(data) > _PREVIEW_BYTES else ""
    return text + more, _TEXT_SUFFIXES[path.suffix]


def _start(
    jobs: Jobs, project: Project, kind: str, request: ExportRequest | RequantizeRequest
) -> tuple[Project, str]:
    request.output.parent.mkdir(parents=True, exist_ok=True)
    job_id = jobs.submit(kind, to_json(request))
    project = replace(project, runs=(*project.runs, job_id))
    save_project(jobs.workspace, project)
    return project, job_id


def _folder(workspace: Workspace, search_id: str) -> Path:
    return workspace.root / "exports" / search_id


def _stem(project: Project) -> str:
    """Return a file name of harmless characters for the project's reference."""
    label = "model" if project.reference is None else Path(project.reference.label).stem
    return _UNSAFE.sub("_", label).strip("._")[:80] or "model"
