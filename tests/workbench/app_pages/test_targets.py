"""The target that costs are of: chosen on page Project, shown on page Fallback."""

from __future__ import annotations

from dataclasses import replace

from tests.workbench import answers
from tests.workbench.app_pages.opened import open_app, words
from tests.workbench.workspaces import add_run, full_project
from workbench.projects import Source, read_project, save_project, with_source
from workbench.store import Workspace

FALLBACK = "app_pages/fallback.py"
PROJECT = "app_pages/project.py"


def test_fallback_shows_islands_and_what_the_set_costs(workspace: Workspace) -> None:
    result = replace(answers.search_result(), islands=(("Conv_41",), ("Conv_44",)))
    project, _ = add_run(workspace, full_project(workspace), "search", "done", result=result)
    app = open_app(FALLBACK, project=project.id)
    assert not app.exception
    shown = {metric.label: metric.value for metric in app.metric}
    assert shown["Cost"] == "+6.0%"
    assert shown["Islands"] == "1"
    tables = [table.value for table in app.dataframe if "island" in table.value]
    assert tables[0]["names"].tolist() == ["Conv_41", "Conv_44"]
    assert "Cheaper by the cost model" not in words(app)


def test_fallback_offers_a_cheaper_set_with_closed_gaps(workspace: Workspace) -> None:
    result = answers.search_result()
    assert result.cheapest is not None
    cheaper = replace(result.cheapest, fallback=("Conv_41", "Conv_42", "Conv_44"), cost=0.04)
    result = replace(result, cheapest=cheaper, closed_gaps=("Conv_42",))
    project, _ = add_run(workspace, full_project(workspace), "search", "done", result=result)
    app = open_app(FALLBACK, project=project.id)
    assert "Cheaper by the cost model" in words(app)


def test_the_curve_can_be_seen_by_layers_too(workspace: Workspace) -> None:
    project, _ = add_run(workspace, full_project(workspace), "search", "done", result=answers.search_result())
    app = open_app(FALLBACK, project=project.id)
    app.segmented_control(key="fallback.axis").set_value("layers").run()
    assert not app.exception


def test_results_from_before_there_were_costs_still_show(workspace: Workspace) -> None:
    plain = tuple(replace(t, cost=float("nan")) for t in answers.trials())
    result = replace(
        answers.search_result(), trials=plain, plan_cost=None, knee=None, cheapest=None, islands=()
    )
    project, _ = add_run(workspace, full_project(workspace), "search", "done", result=result)
    app = open_app(FALLBACK, project=project.id)
    assert not app.exception
    assert "Islands" not in {metric.label for metric in app.metric}


def test_the_project_page_offers_the_profiles_and_a_file_of_the_users(workspace: Workspace) -> None:
    project = full_project(workspace)
    save_project(workspace, project)
    app = open_app(PROJECT, project=project.id)
    chosen = app.selectbox(key=f"project.target.{project.id}")
    assert chosen.value == "generic"
    assert not chosen.disabled
    own = with_source(project, "profile", Source(workspace.root / "b.yaml", "b.yaml"))
    save_project(workspace, own)
    app = open_app(PROJECT, project=project.id)
    assert app.selectbox(key=f"project.target.{project.id}").disabled
    assert read_project(workspace, project.id).profile is not None
