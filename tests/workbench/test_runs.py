from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.records import BisectStep, Comparison, SearchOptions, Trial
from analyzers.serialize import to_json
from tests.workbench import answers
from tests.workbench.workspaces import add_run, event, full_project
from workbench.jobs import Jobs
from workbench.projects import Source, inputs_of, list_projects, read_project
from workbench.requests import CompareRequest, SearchRequest
from workbench.runs import (
    adopt_job,
    is_stale,
    partial_records,
    read_answer,
    read_inputs,
    read_search_options,
    request_for,
    runs_of,
    start_run,
)


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with Jobs(tmp_path, max_parallel=0) as opened:
        yield opened


def test_a_started_run_belongs_to_its_project(jobs: Jobs) -> None:
    project = full_project(jobs.workspace)
    changed, job_id = start_run(jobs, project, "search")
    assert changed.runs == (job_id,)
    assert read_project(jobs.workspace, project.id).runs == (job_id,)
    assert jobs.status(job_id).state == "queued"
    assert read_search_options(jobs, job_id) == SearchOptions(max_drop=0.01)
    assert read_inputs(jobs, job_id) == _inputs(project, jobs)


def test_runs_are_listed_by_kind_newest_first_and_lost_ones_left_out(jobs: Jobs) -> None:
    project = full_project(jobs.workspace)
    project, one = add_run(jobs.workspace, project, "compare", "done", result=answers.comparison(3))
    project, two = add_run(jobs.workspace, project, "compare", "done", result=answers.comparison(3))
    project, _ = add_run(jobs.workspace, project, "bisect", "done", result=answers.bisection())
    project = replace(project, runs=(*project.runs, "f" * 32))
    assert [s.id for s in runs_of(jobs, project, "compare")] == [two, one]


def test_an_answer_is_read_as_its_record(jobs: Jobs) -> None:
    wanted = answers.comparison(30)
    _, job_id = add_run(jobs.workspace, full_project(jobs.workspace), "compare", "done", result=wanted)
    found = read_answer(jobs, job_id, Comparison)
    assert [r.node for r in found.layers] == [r.node for r in wanted.layers]
    assert found.layers[7].candidate_tensor is None


def test_a_diagnosis_is_stale_once_another_calibration_set_is_there(jobs: Jobs) -> None:
    project, job_id = start_run(jobs, full_project(jobs.workspace), "diagnose")
    _, other_id = start_run(jobs, project, "compare")
    changed = replace(project, calibration=Source(jobs.workspace.root, "calibration"))
    assert not is_stale(jobs, project, job_id)
    assert is_stale(jobs, changed, job_id)
    assert not is_stale(jobs, changed, other_id)


def test_a_run_is_stale_once_the_inputs_changed(jobs: Jobs) -> None:
    project, job_id = start_run(jobs, full_project(jobs.workspace), "compare")
    assert not is_stale(jobs, project, job_id)
    assert is_stale(jobs, replace(project, samples="8"), job_id)
    assert not is_stale(jobs, replace(project, name="another name"), job_id)


def test_a_run_of_the_command_line_is_not_stale_for_what_it_may_do(jobs: Jobs) -> None:
    inputs = inputs_of(full_project(jobs.workspace), jobs.workspace)
    assert inputs is not None
    request = CompareRequest(replace(inputs, allow_code=True, workers=2))
    job_id = jobs.submit("compare", to_json(request))
    adopted = adopt_job(jobs, job_id)
    assert adopted is not None
    assert not is_stale(jobs, adopted, job_id)


def test_a_job_of_the_command_line_becomes_a_project_with_its_like(jobs: Jobs) -> None:
    project, one = start_run(jobs, full_project(jobs.workspace), "compare")
    _, two = start_run(jobs, project, "bisect")
    for known in list_projects(jobs.workspace):
        (jobs.workspace.root / "projects" / f"{known.id}.json").unlink()
    adopted = adopt_job(jobs, one)
    assert adopted is not None
    assert set(adopted.runs) == {one, two}
    assert adopt_job(jobs, two) == adopted, "a job is adopted once"


def test_a_job_that_does_not_exist_belongs_to_no_project(jobs: Jobs) -> None:
    assert adopt_job(jobs, "f" * 32) is None
    assert adopt_job(jobs, "../../etc") is None


def test_partial_results_are_read_from_events() -> None:
    steps = answers.bisection().steps[:2]
    events = (
        event("read", "Reading"),
        *(event("bisect", "", s) for s in steps),
        event("search", "", answers.trials()[0]),
    )
    assert partial_records(events, BisectStep) == steps
    assert partial_records(events, Trial) == answers.trials()[:1]


def test_bisection_uses_the_metric_of_the_project(jobs: Jobs) -> None:
    project = replace(full_project(jobs.workspace), metric="sqnr")
    assert request_for(project, "bisect", jobs).options.metric == "sqnr"  # type: ignore[union-attr]
    assert isinstance(request_for(project, "search", jobs), SearchRequest)


def _inputs(project: object, jobs: Jobs) -> object:
    from workbench.projects import Project

    assert isinstance(project, Project)
    return inputs_of(project, jobs.workspace)
