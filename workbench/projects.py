"""A project: what is compared with what, on which samples, for which goal. One JSON file in the workspace."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from analyzers.deserialize import read_record
from analyzers.errors import InputError
from analyzers.records import Inputs, QuantizeOptions, SearchOptions
from analyzers.serialize import to_json
from analyzers.target_profiles import DEFAULT_PROFILE, for_target, is_profile_file
from workbench.job_records import JobError
from workbench.store import Workspace, write_text

Slot = Literal[
    "reference",
    "candidate",
    "data",
    "calibration",
    "candidate_data",
    "name_map",
    "annotations",
    "task",
    "profile",
]
Kind = Literal["compare", "diagnose", "bisect", "search"]
GoalKind = Literal["drop", "target"]

NEW_PROJECT = "New project"

_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Source:
    """A file or folder that the project uses.

    Attributes:
        path: Where it is.
        label: What the user calls it.
        size_bytes: All its bytes; 0 for a folder that is used in place.
        summary: What is in it, in words.
        error: Why it cannot be used; None if it can.
    """

    path: Path
    label: str
    size_bytes: int = 0
    summary: str = ""
    error: JobError | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """What a search must reach: a lowest score, or the same as a drop from the reference's score."""

    kind: GoalKind = "drop"
    value: float = 0.01


@dataclass(frozen=True, slots=True)
class Project:
    """See the module.

    Attributes:
        id: 16 hex digits.
        name: For people.
        created: Unix seconds.
        reference: FP32 model.
        candidate: Quantized model; unused if ``is_made_here``.
        is_made_here: The candidate is quantized from ``calibration``.
        data: Evaluation set.
        calibration: Calibration set.
        candidate_data: What the candidate was fed, where that differs from ``data``.
        name_map: Which tensors belong together, where names and structure cannot tell.
        annotations: Ground truth.
        task: Task file; None to score by ``metric``.
        metric: "sqnr" or "slice-sqnr"; "" where the task says it.
        samples: Which samples; "" for all.
        quantize: How a candidate is made.
        goal: What a search must reach.
        runs: Jobs that were started for it, oldest first.
        is_demo: Its inputs are those of the demo.
        target: Name of the target profile that costs are of.
        profile: A target profile of the user's own, instead.
    """

    id: str
    name: str
    created: float
    reference: Source | None = None
    candidate: Source | None = None
    is_made_here: bool = False
    data: Source | None = None
    calibration: Source | None = None
    annotations: Source | None = None
    task: Source | None = None
    metric: str = ""
    samples: str = ""
    quantize: QuantizeOptions = field(default_factory=QuantizeOptions)
    goal: Goal = field(default_factory=Goal)
    runs: tuple[str, ...] = ()
    is_demo: bool = False
    candidate_data: Source | None = None
    name_map: Source | None = None
    target: str = DEFAULT_PROFILE
    profile: Source | None = None


def new_project(name: str) -> Project:
    """Return an empty project with an id that nobody can guess."""
    return Project(secrets.token_hex(8), name, time.time())


def save_project(workspace: Workspace, project: Project) -> None:
    """Write a project, atomically."""
    folder = _folder(workspace)
    folder.mkdir(mode=0o700, exist_ok=True)
    write_text(folder / f"{project.id}.json", json.dumps(to_json(project), ensure_ascii=False))


def read_project(workspace: Workspace, project_id: str) -> Project:
    """Return a project; ids may come from a URL and are never trusted.

    Raises:
        KeyError: There is no such project.
    """
    if not _ID.fullmatch(project_id):
        raise KeyError(project_id)
    try:
        return read_record(Project, _folder(workspace) / f"{project_id}.json")
    except InputError as cause:
        raise KeyError(project_id) from cause


def list_projects(workspace: Workspace) -> tuple[Project, ...]:
    """Return all projects, newest first; files that cannot be read are left out."""
    found = []
    if _folder(workspace).is_dir():
        for path in _folder(workspace).glob("*.json"):
            with contextlib.suppress(KeyError):
                found.append(read_project(workspace, path.stem))
    return tuple(sorted(found, key=lambda p: (-p.created, p.id)))


def with_source(project: Project, slot: Slot, source: Source | None) -> Project:
    """Return the project with another file in a slot."""
    match slot:
        case "reference":
            return replace(project, reference=source)
        case "candidate":
            return replace(project, candidate=source)
        case "data":
            return replace(project, data=source)
        case "calibration":
            return replace(project, calibration=source)
        case "candidate_data":
            return replace(project, candidate_data=source)
        case "name_map":
            return replace(project, name_map=source)
        case "annotations":
            return replace(project, annotations=source)
        case "task":
            return replace(project, task=source)
        case "profile":
            return replace(project, profile=source)


def source_of(project: Project, slot: Slot) -> Source | None:
    """Return what is in a slot."""
    sources: dict[Slot, Source | None] = {
        "reference": project.reference,
        "candidate": project.candidate,
        "data": project.data,
        "calibration": project.calibration,
        "candidate_data": project.candidate_data,
        "name_map": project.name_map,
        "annotations": project.annotations,
        "task": project.task,
        "profile": project.profile,
    }
    return sources[slot]


def inputs_of(project: Project, workspace: Workspace, *, kind: str = "") -> Inputs | None:
    """Return what a job of this kind is given; None without a reference."""
    if project.reference is None:
        return None
    # A candidate that was uploaded needs no calibration; a diagnosis also asks whether it was a good one.
    is_calibrated = project.is_made_here or kind == "diagnose"
    is_scored = project.task is not None and not project.metric
    inputs = Inputs(
        reference=project.reference.path,
        candidate=None if project.is_made_here else _path(project.candidate),
        data=_path(project.data),
        candidate_data=_path(project.candidate_data),
        calibration=_path(project.calibration) if is_calibrated else None,
        name_map=_path(project.name_map),
        task=_path(project.task),
        annotations=_path(project.annotations) if is_scored else None,
        metric=project.metric or None,
        samples=project.samples or None,
        quantize=project.quantize,
        workspace=workspace.root,
        allow_code=False,
    )
    return _for_its_target(inputs, project) if kind == "search" else inputs


def _for_its_target(inputs: Inputs, project: Project) -> Inputs:
    """Return inputs with the profile's way of making plans; a broken profile is for the job to report."""
    name = project.target if project.profile is None else str(project.profile.path)
    try:
        return for_target(inputs, name)
    except InputError:
        return replace(inputs, target_profile=name)


def project_from(inputs: Inputs) -> Project:
    """Return a new project with the inputs of a job that was started elsewhere."""
    project = replace(
        new_project(inputs.reference.stem),
        is_made_here=inputs.candidate is None,
        metric=inputs.metric or "",
        samples=inputs.samples or "",
        quantize=inputs.quantize,
    )
    own_profile = Path(inputs.target_profile) if is_profile_file(inputs.target_profile) else None
    if own_profile is None:
        project = replace(project, target=inputs.target_profile)
    paths: tuple[tuple[Slot, Path | None], ...] = (
        ("reference", inputs.reference),
        ("candidate", inputs.candidate),
        ("data", inputs.data),
        ("calibration", inputs.calibration),
        ("candidate_data", inputs.candidate_data),
        ("name_map", inputs.name_map),
        ("annotations", inputs.annotations),
        ("task", inputs.task),
        ("profile", own_profile),
    )
    for slot, path in paths:
        if path is not None:
            project = with_source(project, slot, Source(path, path.name))
    return project


def search_options(project: Project) -> SearchOptions:
    """Return the goal as the search wants it."""
    if project.goal.kind == "target":
        return SearchOptions(target=project.goal.value)
    return SearchOptions(max_drop=project.goal.value)


def missing_for(project: Project, kind: Kind) -> tuple[str, ...]:
    """Return in words what keeps a job of this kind from being started; nothing if it can."""
    needs: list[str] = []
    if project.reference is None:
        needs.append("a reference model")
    if project.is_made_here and project.calibration is None:
        needs.append("a calibration set")
    if not project.is_made_here and project.candidate is None:
        needs.append("a candidate model, or a calibration set to make one from")
    if project.data is None:
        needs.append("an evaluation set")
    if kind == "search":
        needs.extend(_missing_for_score(project))
    used = [("reference", project.reference), ("evaluation set", project.data), ("task", project.task)]
    used.append(("set of the candidate", project.candidate_data))
    used.append(("name map", project.name_map))
    if not project.is_made_here:
        used.append(("candidate", project.candidate))
    if project.is_made_here or kind == "diagnose":
        used.append(("calibration set", project.calibration))
    if kind == "search":
        used.append(("target profile", project.profile))
    if kind == "search" and not project.metric:
        used.append(("annotations", project.annotations))
    broken = [
        f"{_article(name)} {name} that can be read"
        for name, source in used
        if source is not None and source.error
    ]
    return (*needs, *broken)


def _missing_for_score(project: Project) -> list[str]:
    if project.metric:
        return ["a target in dB instead of a drop"] if project.goal.kind == "drop" else []
    if project.task is None:
        return ["a task, or a metric without labels"]
    return []


def _article(name: str) -> str:
    return "an" if name[0] in "aeiou" else "a"


def _path(source: Source | None) -> Path | None:
    return None if source is None else source.path


def _folder(workspace: Workspace) -> Path:
    return workspace.root / "projects"
