"""Workspaces with jobs in any state, without running one."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import psutil

from analyzers.records import Inputs, SearchOptions
from analyzers.serialize import to_json, write_json
from workbench.job_records import Claim, Event, Job, JobError, JobState, JobStatus
from workbench.projects import Kind, Project, Source, inputs_of, new_project, save_project
from workbench.requests import BisectRequest, CompareRequest, DiagnoseRequest, SearchRequest
from workbench.store import Workspace, new_run, open_workspace


def full_project(workspace: Workspace, *, name: str = "yolox nano") -> Project:
    """A project with everything in place, as far as a page can tell."""
    files = workspace.uploads / "made-up"
    files.mkdir(exist_ok=True)
    for name_ in ("model.onnx", "candidate.onnx", "task.yaml", "coco.json"):
        (files / name_).write_text("x")
    return replace(
        new_project(name),
        reference=Source(files / "model.onnx", "yolox_nano_416.onnx", 3_678_356, "FP32 · 369 operators"),
        candidate=Source(files / "candidate.onnx", "yolox_nano_int8.onnx", 1_323_355, "INT8, QDQ form"),
        data=Source(files, "val2017.zip", 20_000_000, "128 images"),
        annotations=Source(files / "coco.json", "val2017.json", 400_000, "128 images · 898 boxes"),
        task=Source(files / "task.yaml", "yolox_nano.yaml", 400, "yolox_nano · images · Yolox"),
    )


def add_run(
    workspace: Workspace,
    project: Project,
    kind: Kind,
    state: JobState,
    *,
    result: object = None,
    events: tuple[Event, ...] = (),
    error: JobError | None = None,
) -> tuple[Project, str]:
    """Write the folder of a job in this state; a running one is "worked on" by this process."""
    inputs = inputs_of(project, workspace)
    assert inputs is not None
    request = _request(kind, inputs)
    return add_job(workspace, project, kind, request, state, result=result, events=events, error=error)


def add_job(
    workspace: Workspace,
    project: Project,
    kind: str,
    request: object,
    state: JobState,
    *,
    result: object = None,
    events: tuple[Event, ...] = (),
    error: JobError | None = None,
) -> tuple[Project, str]:
    """The same for a job of any kind."""
    run = new_run(workspace)
    status = JobStatus(
        run.name,
        kind,
        time.time() - 200,
        state=state,
        stage=kind,
        done=12,
        total=64,
        text="",
        seconds=103.0,
        eta_seconds=4100.0 if state == "running" else None,
        error=error,
        updated=time.time(),
    )
    (run / "status.json").write_text(json.dumps(to_json(status)))
    (run / "events.jsonl").write_text("".join(json.dumps(to_json(e)) + "\n" for e in events))
    if result is not None:
        write_json(result, run / "result.json")
    if state != "queued":
        claim = Claim(os.getpid(), psutil.Process().create_time())
        (run / "worker.json").write_text(json.dumps(to_json(claim)))
    # A job with a parent is left alone by the queue of the app.
    job = Job(kind, to_json(request), time.time() - 200, parent=os.getpid())
    (run / "job.json").write_text(json.dumps(to_json(job)))
    project = replace(project, runs=(*project.runs, run.name))
    save_project(workspace, project)
    return project, run.name


def event(stage: str, text: str, record: object = None) -> Event:
    return Event(1.0, stage, 1, 9, text, "" if record is None else type(record).__name__, to_json(record))


def _request(kind: Kind, inputs: Inputs) -> object:
    match kind:
        case "compare":
            return CompareRequest(inputs)
        case "bisect":
            return BisectRequest(inputs)
        case "diagnose":
            return DiagnoseRequest(inputs)
        case "search":
            return SearchRequest(inputs, SearchOptions(max_drop=0.015))


def workspace_at(path: Path) -> Workspace:
    return open_workspace(path)
