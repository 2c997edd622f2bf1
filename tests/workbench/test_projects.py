from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.records import Inputs, QuantizeOptions, SearchOptions
from tests.workbench.workspaces import full_project
from workbench.demo import builtin_tasks, demo_project
from workbench.job_records import JobError
from workbench.projects import (
    Goal,
    Source,
    inputs_of,
    list_projects,
    missing_for,
    new_project,
    project_from,
    read_project,
    save_project,
    search_options,
    source_of,
    with_source,
)
from workbench.store import Workspace, open_workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return open_workspace(tmp_path)


def test_a_project_is_read_back_as_it_was_saved(workspace: Workspace) -> None:
    project = replace(full_project(workspace), quantize=QuantizeOptions("entropy"), goal=Goal("target", 0.3))
    save_project(workspace, project)
    assert read_project(workspace, project.id) == project


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "0" * 16, "A" * 16, "x/y"])
def test_ids_from_the_address_are_never_trusted(name: str, workspace: Workspace) -> None:
    with pytest.raises(KeyError):
        read_project(workspace, name)


def test_a_damaged_project_is_left_out_of_the_list(workspace: Workspace) -> None:
    save_project(workspace, new_project("good"))
    (workspace.root / "projects" / f"{'ab' * 8}.json").write_text("{")
    assert [p.name for p in list_projects(workspace)] == ["good"]


def test_inputs_never_permit_code_from_a_browser(workspace: Workspace) -> None:
    inputs = inputs_of(full_project(workspace), workspace)
    assert inputs is not None
    assert inputs.allow_code is False


def test_inputs_leave_out_what_is_not_used(workspace: Workspace) -> None:
    project = with_source(full_project(workspace), "calibration", Source(workspace.root, "cal"))
    given = inputs_of(project, workspace)
    assert given is not None
    assert given.calibration is None
    made = inputs_of(replace(project, is_made_here=True), workspace)
    assert made is not None
    assert (made.candidate, made.calibration) == (None, workspace.root)
    diagnosed = inputs_of(project, workspace, kind="diagnose")
    assert diagnosed is not None
    assert (diagnosed.candidate, diagnosed.calibration) == (given.candidate, workspace.root)
    unlabelled = inputs_of(replace(project, metric="sqnr"), workspace)
    assert unlabelled is not None
    assert (unlabelled.metric, unlabelled.annotations) == ("sqnr", None)
    assert unlabelled.task == given.task, "preprocessing is needed for images whatever is scored"


def test_a_project_without_a_reference_has_no_inputs(workspace: Workspace) -> None:
    assert inputs_of(new_project("x"), workspace) is None


def test_what_is_missing_is_said_in_words(workspace: Workspace) -> None:
    empty, full = new_project("x"), full_project(workspace)
    assert missing_for(empty, "compare")[0] == "a reference model"
    assert missing_for(full, "compare") == missing_for(full, "bisect") == missing_for(full, "search") == ()
    assert missing_for(replace(full, task=None), "compare") == ()
    assert missing_for(replace(full, task=None), "search") == ("a task, or a metric without labels",)
    assert missing_for(replace(full, is_made_here=True), "compare") == ("a calibration set",)
    bad = Source(workspace.root, "x", error=JobError("zero_samples", "Empty"))
    odd = with_source(full, "calibration", bad)
    assert missing_for(odd, "diagnose") == ("a calibration set that can be read",)
    assert missing_for(odd, "compare") == (), "only a diagnosis looks at it"
    fed = with_source(full, "candidate_data", bad)
    assert missing_for(fed, "compare") == ("a set of the candidate that can be read",)
    broken = with_source(full, "data", Source(workspace.root, "x", error=JobError("zero_samples", "Empty")))
    assert missing_for(broken, "compare") == ("an evaluation set that can be read",)


def test_sqnr_has_no_drop(workspace: Workspace) -> None:
    project = replace(full_project(workspace), metric="sqnr")
    assert missing_for(project, "search") == ("a target in dB instead of a drop",)
    assert missing_for(replace(project, goal=Goal("target", 20.0)), "search") == ()


def test_the_goal_becomes_the_search_options() -> None:
    project = new_project("x")
    assert search_options(replace(project, goal=Goal("drop", 0.015))) == SearchOptions(max_drop=0.015)
    assert search_options(replace(project, goal=Goal("target", 0.3))) == SearchOptions(target=0.3)


def test_inputs_of_a_job_become_a_project_with_the_same_inputs(workspace: Workspace) -> None:
    inputs = inputs_of(full_project(workspace), workspace)
    assert inputs is not None
    assert inputs_of(project_from(inputs), workspace) == inputs
    made = Inputs(Path("/m.onnx"), data=Path("/d"), calibration=Path("/c"), workspace=workspace.root)
    assert inputs_of(project_from(made), workspace) == made


def test_only_a_search_is_made_for_a_target(workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "board.yaml"
    path.write_text("name: board\ntitle: A board\nfallback: {rule: {value: hybrid, source: its manual}}\n")
    project = with_source(full_project(workspace), "profile", Source(path, "board.yaml"))
    searched = inputs_of(project, workspace, kind="search")
    compared = inputs_of(project, workspace, kind="compare")
    assert searched is not None
    assert compared is not None
    assert (searched.target_profile, searched.rule, searched.precision) == (str(path), "hybrid", "fp16")
    assert (compared.target_profile, compared.rule) == ("generic", "per-edge")
    assert inputs_of(project_from(searched), workspace, kind="search") == searched
    path.write_text("name: [")
    broken = inputs_of(project, workspace, kind="search")
    assert broken is not None
    assert broken.target_profile == str(path), "the job says what is wrong with it"


def test_a_target_is_kept_by_name(workspace: Workspace) -> None:
    project = replace(full_project(workspace), target="generic")
    inputs = inputs_of(project, workspace, kind="search")
    assert inputs is not None
    assert project_from(inputs).target == "generic"
    assert project_from(inputs).profile is None
    bad = Source(workspace.root, "x", error=JobError("malformed_profile", "No source"))
    odd = with_source(project, "profile", bad)
    assert missing_for(odd, "search") == ("a target profile that can be read",)
    assert missing_for(odd, "compare") == ()


def test_the_demo_has_everything_but_what_it_does_not_need(workspace: Workspace) -> None:
    project = demo_project()
    assert missing_for(project, "search") == ()
    assert source_of(project, "reference") is not None
    assert project.is_demo


def test_shipped_task_files_are_offered() -> None:
    assert {"yolox_nano", "ultraface", "yunet", "sample_detector"} <= set(builtin_tasks())
    assert all(path.exists() for path in builtin_tasks().values())
