"""Jobs seen from a project: start one, find the one to show, read its answer."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TypeVar

from analyzers.deserialize import from_json, read_record
from analyzers.errors import InputError
from analyzers.records import (
    BisectOptions,
    BisectResult,
    BisectStep,
    CompareOptions,
    Comparison,
    DiagnoseOptions,
    Diagnosis,
    Inputs,
    Score,
    SearchOptions,
    SearchResult,
    Trial,
)
from analyzers.serialize import to_json
from workbench.job_records import Event, JobStatus
from workbench.jobs import Jobs
from workbench.projects import (
    Kind,
    Project,
    inputs_of,
    list_projects,
    project_from,
    save_project,
    search_options,
)
from workbench.requests import (
    BESIDE_A_SEARCH,
    BisectRequest,
    CompareRequest,
    DiagnoseRequest,
    RunRequest,
    SearchRequest,
)

Answer = TypeVar("Answer", Comparison, BisectResult, Diagnosis, SearchResult)
Partial = TypeVar("Partial", Trial, BisectStep, Score)


def request_for(project: Project, kind: Kind, jobs: Jobs) -> RunRequest:
    """Return what a job of this kind is asked for.

    Raises:
        ValueError: The project lacks a reference; pages ask ``missing_for`` first.
    """
    inputs = inputs_of(project, jobs.workspace, kind=kind)
    if inputs is None:
        raise ValueError("a project without a reference cannot be run")
    match kind:
        case "compare":
            return CompareRequest(inputs, CompareOptions())
        case "bisect":
            default = BisectOptions()
            return BisectRequest(inputs, replace(default, metric=inputs.metric or default.metric))
        case "diagnose":
            return DiagnoseRequest(inputs, DiagnoseOptions())
        case "search":
            return SearchRequest(inputs, search_options(project))


def start_run(jobs: Jobs, project: Project, kind: Kind) -> tuple[Project, str]:
    """Queue a job and return the project that knows it, and the job's id.

    Raises:
        InputError: The workspace cannot be written.
    """
    job_id = jobs.submit(kind, to_json(request_for(project, kind, jobs)))
    project = replace(project, runs=(*project.runs, job_id))
    save_project(jobs.workspace, project)
    return project, job_id


def runs_of(jobs: Jobs, project: Project, kind: Kind) -> tuple[JobStatus, ...]:
    """Return the project's jobs of one kind, newest first."""
    return tuple(s for s in all_runs(jobs, project) if s.kind == kind)


def all_runs(jobs: Jobs, project: Project) -> tuple[JobStatus, ...]:
    """Return the project's jobs that still exist, newest first."""
    found = []
    for job_id in reversed(project.runs):
        try:
            found.append(jobs.status(job_id))
        except KeyError:
            continue
    return tuple(found)


def adopt_job(jobs: Jobs, job_id: str) -> Project | None:
    """Return the project of a job: the one that started it, else a new one with the job's inputs."""
    for project in list_projects(jobs.workspace):
        if job_id in project.runs:
            return project
    try:
        inputs = read_inputs(jobs, job_id)
    except (KeyError, InputError):
        return None
    if inputs is None:
        return None
    wanted = to_json(inputs)
    runs = []
    for status in reversed(jobs.list()):
        with contextlib.suppress(KeyError, InputError):
            if to_json(read_inputs(jobs, status.id)) == wanted:
                runs.append(status.id)
    project = replace(project_from(inputs), runs=tuple(runs))
    save_project(jobs.workspace, project)
    return project


def is_stale(jobs: Jobs, project: Project, job_id: str) -> bool:
    """Tell whether the project's inputs have changed since the job was started."""
    asked = read_inputs(jobs, job_id)
    now = inputs_of(project, jobs.workspace, kind=jobs.job(job_id).kind)
    if asked is None or now is None:
        return False
    # What the command line permits or how many processes it used does not change the answer.
    return to_json(replace(asked, allow_code=now.allow_code, workers=now.workers)) != to_json(now)


def read_inputs(jobs: Jobs, job_id: str) -> Inputs | None:
    """Return what a job was given; None if it cannot be read."""
    params = jobs.job(job_id).params
    if not isinstance(params, dict) or "inputs" not in params:
        return None
    return from_json(Inputs, params["inputs"])


def read_search_options(jobs: Jobs, job_id: str) -> SearchOptions:
    """Return what a search was asked for."""
    return from_json(SearchRequest, jobs.job(job_id).params).options


def read_bisect_options(jobs: Jobs, job_id: str) -> BisectOptions:
    """Return how a bisection was asked for."""
    return from_json(BisectRequest, jobs.job(job_id).params).options


def read_answer(jobs: Jobs, job_id: str, answer: type[Answer]) -> Answer:
    """Return the result of a job that is done.

    Raises:
        KeyError: There is no such job.
        InputError: The file is damaged or from another version.
    """
    beside = BESIDE_A_SEARCH if answer is SearchResult else ()
    return read_record(answer, jobs.result_path(job_id), beside=beside)


def partial_records(events: tuple[Event, ...], kind: type[Partial]) -> tuple[Partial, ...]:
    """Return the finished partial results of a running job."""
    return tuple(from_json(kind, e.record) for e in events if e.record_type == kind.__name__)
