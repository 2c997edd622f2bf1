"""Every page on an empty, a fresh, a running, a failed, a cancelled and a full project."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.exporters import ExportResult
from analyzers.exporting import Requantized
from analyzers.records import Notice, Score
from tests.workbench import answers
from tests.workbench.app_pages.opened import address, labels, open_app, words
from tests.workbench.workspaces import add_job, add_run, event, full_project
from workbench.job_records import JobError, JobState
from workbench.projects import Kind, Project, Source, new_project, save_project
from workbench.requests import ExportRequest, RequantizeRequest
from workbench.store import Workspace

PAGES: dict[Kind, str] = {
    "compare": "app_pages/layers.py",
    "diagnose": "app_pages/diagnosis.py",
    "bisect": "app_pages/bisect.py",
    "search": "app_pages/fallback.py",
}
ALL_PAGES = ("app_pages/project.py", *PAGES.values(), "app_pages/export.py")
RESULTS: dict[Kind, Callable[[], object]] = {
    "compare": answers.comparison,
    "diagnose": answers.diagnosis,
    "bisect": answers.bisection,
    "search": answers.search_result,
}


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_page_opens_without_a_project(page: str, workspace: Workspace) -> None:
    app = open_app(page)
    if page == "app_pages/project.py":
        assert "Try the demo" in labels(app)
        assert "New project" in labels(app)
    else:
        assert "No project is open" in words(app)
        assert "Go to Project" in labels(app)


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_page_opens_on_a_fresh_project_and_says_what_is_missing(
    page: str, workspace: Workspace
) -> None:
    project = new_project("fresh")
    save_project(workspace, project)
    app = open_app(page, project=project.id)
    if page != "app_pages/export.py":
        assert "eeds a reference model" in words(app)


@pytest.mark.parametrize("page", ALL_PAGES)
def test_addresses_that_lead_nowhere_are_harmless(page: str, workspace: Workspace) -> None:
    open_app(page, project="../../etc/passwd", job="f" * 32, layer="<script>")
    open_app(page, job="../../x")


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_offers_to_start_what_can_be_started(kind: Kind, workspace: Workspace) -> None:
    project = full_project(workspace)
    save_project(workspace, project)
    app = open_app(PAGES[kind], project=project.id)
    button = app.button(key=f"{kind}.start")
    assert not button.disabled


@pytest.mark.parametrize("kind", PAGES)
@pytest.mark.parametrize("state", ["queued", "running"])
def test_a_live_run_shows_progress_and_can_be_cancelled(
    kind: Kind, state: JobState, workspace: Workspace
) -> None:
    project = _with_events(workspace, kind, state)
    app = open_app(PAGES[kind], project=project.id)
    assert "Cancel" in labels(app)
    expected = "waiting" if state == "queued" else "12 of 64, "
    assert any(expected in str(p.text).replace("\\", "") for p in app.get("progress"))
    assert address(app, "job") == project.runs[-1]


@pytest.mark.parametrize("kind", ["bisect", "search"])
def test_what_is_known_of_a_live_run_is_shown(kind: Kind, workspace: Workspace) -> None:
    project = _with_events(workspace, kind, "running")
    app = open_app(PAGES[kind], project=project.id)
    assert len(app.dataframe[0].value) == 5
    assert app.get("vega_lite_chart") or app.get("arrow_vega_lite_chart")


def test_a_live_search_is_seen_against_its_target_once_the_reference_is_scored(workspace: Workspace) -> None:
    trials = answers.trials()[:3]
    events = (event("search", "", Score(0.3412, "ap")), *(event("search", "", t) for t in trials))
    project, _ = add_run(workspace, full_project(workspace), "search", "running", events=events)
    app = open_app(PAGES["search"], project=project.id)
    assert app.dataframe[0].value["verdict"].tolist() == ["misses", "reaches", "misses"]


@pytest.mark.parametrize("kind", PAGES)
def test_a_failure_says_what_where_and_what_to_do(kind: Kind, workspace: Workspace) -> None:
    error = JobError("wrong_shape", "The input has another shape", "images", "Give a task with that size")
    project, _ = add_run(workspace, full_project(workspace), kind, "failed", error=error)
    app = open_app(PAGES[kind], project=project.id)
    assert "The input has another shape" in words(app)
    assert "Give a task with that size" in words(app)
    assert any("wrong_shape" in c.value and "images" in c.value for c in app.code)
    assert "Run again" in labels(app)


@pytest.mark.parametrize("kind", ["bisect", "search"])
def test_a_cancelled_run_keeps_what_was_finished(kind: Kind, workspace: Workspace) -> None:
    project = _with_events(workspace, kind, "cancelled")
    app = open_app(PAGES[kind], project=project.id)
    assert "was cancelled" in words(app)
    assert len(app.dataframe[0].value) == 5


@pytest.mark.parametrize("kind", PAGES)
def test_a_damaged_result_is_an_error_in_words(kind: Kind, workspace: Workspace) -> None:
    project, job_id = add_run(workspace, full_project(workspace), kind, "done", result={"layers": 3})
    app = open_app(PAGES[kind], project=project.id)
    assert "cannot be read" in words(app)
    (workspace.runs / job_id / "result.json").unlink()
    assert "cannot be read" in words(open_app(PAGES[kind], project=project.id))


@pytest.mark.parametrize("kind", PAGES)
def test_a_stale_run_says_so(kind: Kind, workspace: Workspace) -> None:
    project = _done(workspace, kind)
    save_project(workspace, replace(project, samples="8"))
    app = open_app(PAGES[kind], project=project.id)
    assert "have changed since this run" in words(app)


def test_layers_shows_the_verdict_the_table_and_the_coverage(workspace: Workspace) -> None:
    project = _done(workspace, "compare")
    app = open_app(PAGES["compare"], project=project.id)
    assert "operators fall below cosine 0.99" in words(app)
    table = app.dataframe[0].value
    assert len(table) == 60
    assert table["cosine"].dropna().is_monotonic_increasing
    assert "No operator is selected" in words(app)
    assert [m.value for m in app.metric][:2] == ["0.3412", "0.1391"]


def test_the_address_selects_a_layer_and_keeps_it(workspace: Workspace) -> None:
    project = _done(workspace, "compare")
    app = open_app(PAGES["compare"], project=project.id, layer="Mul_2")
    assert any(c.value == "Mul_2" for c in app.code)
    assert address(app, "layer") == "Mul_2"
    assert address(app, "job") == project.runs[-1]


@pytest.mark.parametrize(("fraction", "shown"), [(0.0012, "0.12%"), (math.nan, "n/a")])
def test_the_sheet_of_a_layer_says_what_clipped_means(
    fraction: float, shown: str, workspace: Workspace
) -> None:
    rows = tuple(replace(answers.layer(i), clipped_fraction=fraction) for i in range(3))
    result = replace(answers.comparison(), layers=rows)
    project, _ = add_run(workspace, full_project(workspace), "compare", "done", result=result)
    app = open_app(PAGES["compare"], project=project.id, layer=rows[1].node)
    [sheet] = [h.proto.body for h in app.get("html") if "Clipped" in h.proto.body]
    assert f">{shown}<" in sheet
    assert "of the reference&#x27;s values, beyond the range" in sheet


def test_filters_narrow_the_table_down_to_nothing(workspace: Workspace) -> None:
    project = _done(workspace, "compare")
    app = open_app(PAGES["compare"], project=project.id)
    app.multiselect(key="layers.ops").select("Concat").run()
    assert set(app.dataframe[0].value["op"]) == {"Concat"}
    app.toggle(key="layers.only").set_value(True).run()
    assert app.dataframe[0].value["is_candidate"].all()
    app.text_input(key="layers.text").set_value("nothing is called so").run()
    assert "No operator fits" in words(app)
    assert not app.exception


def test_the_other_measure_sorts_by_the_other_number(workspace: Workspace) -> None:
    project = _done(workspace, "compare")
    app = open_app(PAGES["compare"], project=project.id)
    app.segmented_control(key="layers.measure").set_value("sqnr").run()
    assert app.dataframe[0].value["sqnr_db"].dropna().is_monotonic_increasing
    assert not app.exception


def test_html_in_names_is_shown_as_text(workspace: Workspace) -> None:
    project = _done(workspace, "compare")
    app = open_app(PAGES["compare"], project=project.id, layer=answers.HOSTILE)
    assert any(c.value == answers.HOSTILE for c in app.code)
    assert not any("<img" in str(h.body) for h in app.get("html"))
    assert not any("<img" in str(m.value) for m in app.markdown if m.allow_html)


def test_bisect_names_the_culprit_with_its_proof(workspace: Workspace) -> None:
    app = open_app(PAGES["bisect"], project=_done(workspace, "bisect").id)
    shown = words(app)
    assert "One layer breaks the output" in shown
    assert "candidate up to Conv_43" in shown
    assert "candidate up to Conv_44" in shown
    assert "Show in Layers" in labels(app)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("healthy", "The output is healthy"),
        ("accumulation", "No single layer is to blame"),
        ("outside_layers", "The fault lies outside the layers"),
        ("a later one", "ended with the verdict a later one"),
    ],
)
def test_bisect_has_words_for_every_verdict_without_culprits(
    verdict: str, said: str, workspace: Workspace
) -> None:
    result = replace(answers.bisection(), verdict=verdict, culprits=())
    project, _ = add_run(workspace, full_project(workspace), "bisect", "done", result=result)
    assert said in words(open_app(PAGES["bisect"], project=project.id))


def test_bisect_does_not_call_errors_small_where_most_layers_have_to_be_repaired(
    workspace: Workspace,
) -> None:
    notice = Notice("most_layers_needed", "The output recovers only with 3 layers repaired", "a, b, c")
    result = replace(answers.bisection(), verdict="accumulation", culprits=(), warnings=(notice,))
    project, _ = add_run(workspace, full_project(workspace), "bisect", "done", result=result)
    shown = words(open_app(PAGES["bisect"], project=project.id))
    assert "recovers only with most of the layers repaired" in shown
    assert "Small errors" not in shown


@pytest.mark.parametrize(
    ("repaired_db", "said"),
    [(20.0, "Repairing all of these brings the output back"), (9.0, "none can be shown to be the one")],
)
def test_bisect_claims_of_layers_that_interact_no_more_than_was_shown(
    repaired_db: float, said: str, workspace: Workspace
) -> None:
    found = answers.bisection()
    culprit = replace(found.culprits[0], repaired_sqnr_db=repaired_db, is_confirmed=False)
    result = replace(found, verdict="interacting", culprits=(culprit,))
    project, _ = add_run(workspace, full_project(workspace), "bisect", "done", result=result)
    assert said in words(open_app(PAGES["bisect"], project=project.id))


def test_fallback_shows_the_answer_with_a_proof_for_each_member(workspace: Workspace) -> None:
    app = open_app(PAGES["search"], project=_done(workspace, "search").id)
    assert "Keep 2 layers in FP16 and the score is 0.3301" in words(app)
    assert app.dataframe[0].value["verdict"].tolist() == ["needed", "needed"]
    assert len(app.dataframe[-1].value) == 9


def test_fallback_says_when_the_target_is_not_reached(workspace: Workspace) -> None:
    result = answers.search_result(reached=False)
    project, _ = add_run(workspace, full_project(workspace), "search", "done", result=result)
    app = open_app(PAGES["search"], project=project.id)
    assert "The target is not reached" in words(app)


def test_fallback_says_when_nothing_is_needed(workspace: Workspace) -> None:
    result = replace(answers.search_result(), fallback=(), fallback_nodes=(), proof=())
    project, _ = add_run(workspace, full_project(workspace), "search", "done", result=result)
    app = open_app(PAGES["search"], project=project.id)
    assert "The candidate passes as it is" in words(app)


EXPORT = "app_pages/export.py"


def test_export_waits_for_a_search(workspace: Workspace) -> None:
    project = full_project(workspace)
    save_project(workspace, project)
    assert "There is no fallback set yet" in words(open_app(EXPORT, project=project.id))
    project = _with_events(workspace, "search", "running")
    assert "still running" in words(open_app(EXPORT, project=project.id))


def test_export_offers_every_format_and_says_what_it_is(workspace: Workspace) -> None:
    app = open_app(EXPORT, project=_done(workspace, "search").id)
    assert "2 layers in FP16, AP 0.3301" in words(app)
    assert set(app.radio(key="export.format").options) >= {
        "onnx",
        "onnx-sim",
        "ort",
        "rknn",
        "markdown",
        "json",
    }
    assert "Write it" in labels(app)
    assert any("tearline export" in c.value for c in app.code)


def test_what_was_exported_can_be_seen_and_fetched(workspace: Workspace) -> None:
    project, files = _exported(workspace, "ort")
    app = open_app(EXPORT, project=project.id)
    app.radio(key="export.format").set_value("ort").run()
    assert not app.exception
    assert any('"nodes_to_exclude"' in c.value for c in app.code)
    assert len(app.get("download_button")) == 2
    assert "The format has no name for Conv_9" in words(app)
    files[0].unlink()
    app.run()
    assert "is gone" in words(app)


def test_a_failed_export_says_why(workspace: Workspace) -> None:
    project, search = add_run(
        workspace, full_project(workspace), "search", "done", result=answers.search_result()
    )
    request = ExportRequest(workspace.runs / search / "result.json", "onnx-sim", workspace.root / "x.onnx")
    error = JobError("fp16_overflow", "Layer 'Conv_9' overflows in half precision", "Conv_9", "Leave it out")
    project, _ = add_job(workspace, project, "export", request, "failed", error=error)
    app = open_app(EXPORT, project=project.id)
    assert "Layer 'Conv_9' overflows" in words(app)
    assert "Write it again" in labels(app)


def test_what_the_quantizer_gives_is_shown_beside_the_simulated_score(workspace: Workspace) -> None:
    project, search = add_run(
        workspace, full_project(workspace), "search", "done", result=answers.search_result()
    )
    app = open_app(EXPORT, project=project.id)
    app.radio(key="export.format").set_value("ort").run()
    assert "Calibration set" in words(app), "it cannot be quantized without one"
    project = replace(project, calibration=Source(workspace.root, "calibration"))
    output = workspace.root / "new.onnx"
    output.write_bytes(b"x")
    result = Requantized(output, Score(0.3288, "ap"), 0.3301, ())
    request = RequantizeRequest(workspace.runs / search / "result.json", workspace.root, output)
    project, _ = add_job(workspace, project, "requantize", request, "done", result=result)
    app = open_app(EXPORT, project=project.id)
    app.radio(key="export.format").set_value("ort").run()
    assert {m.label: m.value for m in app.metric} == {"Really": "0.3288", "Simulated": "0.3301"}


def test_a_job_in_the_address_opens_its_project(workspace: Workspace) -> None:
    project = _done(workspace, "bisect")
    app = open_app(PAGES["bisect"], job=project.runs[-1])
    assert "One layer breaks the output" in words(app)
    assert address(app, "project") == project.id


def test_an_older_run_can_be_picked(workspace: Workspace) -> None:
    project, older = add_run(
        workspace, full_project(workspace), "search", "done", result=answers.search_result(reached=False)
    )
    project, _ = add_run(workspace, project, "search", "done", result=answers.search_result())
    app = open_app(PAGES["search"], project=project.id)
    assert "Keep 2 layers" in words(app)
    app.button(key=f"search.pick.{older}").click().run()
    assert "The target is not reached" in words(app)
    assert address(app, "job") == older


def test_a_new_project_can_be_made_and_left_again(workspace: Workspace) -> None:
    app = open_app()
    next(b for b in app.button if b.label == "New project").click().run()
    assert not app.exception
    assert "Reference model" in words(app)
    app.button(key="sidebar.close").click().run()
    assert "Find the layer" in words(app)
    assert any(key.startswith("open.") for key in (b.key or "" for b in app.button))


def test_the_project_page_shows_what_is_in_each_slot_and_the_command_line(workspace: Workspace) -> None:
    project = full_project(workspace)
    save_project(workspace, project)
    app = open_app(project=project.id)
    assert "yolox_nano_416.onnx" in words(app)
    assert "128 images · 898 boxes" in words(app)
    line = next(c.value for c in app.code if c.value.startswith("tearline"))
    assert "tearline search" in line
    assert "--max-drop 0.01" in line


def test_what_a_diagnosis_also_reads_has_slots_and_is_passed_on(workspace: Workspace) -> None:
    project = full_project(workspace)
    save_project(workspace, project)
    app = open_app(project=project.id)
    uploaders = {str(u.key) for u in app.get("file_uploader")}
    assert {"project.calibration.upload.0", "project.candidate_data.upload.0"} <= uploaders
    fed = Source(workspace.root / "fed.npz", "fed.npz")
    save_project(workspace, replace(project, candidate_data=fed, calibration=Source(workspace.root, "c")))
    app = open_app(project=project.id)
    lines = next(c.value for c in app.code if c.value.startswith("tearline")).split("\n\n")
    assert ["--candidate-data" in line for line in lines] == [True] * 4
    assert [line.split()[1] for line in lines if "--calibration" in line] == ["diagnose"]


def test_the_goal_is_kept(workspace: Workspace) -> None:
    project = full_project(workspace)
    save_project(workspace, project)
    app = open_app(project=project.id)
    next(n for n in app.number_input if "goal" in str(n.key)).set_value(0.05).run()
    assert not app.exception
    line = next(c.value for c in app.code if c.value.startswith("tearline"))
    assert "--max-drop 0.05" in line


def test_scoring_without_labels_asks_for_decibels(workspace: Workspace) -> None:
    project = replace(full_project(workspace), metric="slice-sqnr", task=None)
    save_project(workspace, project)
    app = open_app(project=project.id)
    assert not app.exception
    line = next(c.value for c in app.code if c.value.startswith("tearline"))
    assert "--metric slice-sqnr" in line
    assert "--target 20" in line


def test_a_garbage_upload_is_refused_in_words_and_changes_nothing(workspace: Workspace) -> None:
    project = new_project("fresh")
    save_project(workspace, project)
    app = open_app(project=project.id)
    uploader = next(u for u in app.get("file_uploader") if "reference" in str(u.key))
    uploader.upload("model.onnx", b"garbage").run()
    assert not app.exception
    assert any("not_a_model" in c.value or "malformed_model" in c.value for c in app.code)
    start = app.button(key="project.compare")
    assert start.disabled


def test_missing_demo_files_disable_the_demo_with_a_reason(workspace: Workspace) -> None:
    from workbench.demo import missing_files

    button = next(b for b in open_app().button if b.label == "Try the demo")
    assert button.disabled == bool(missing_files())


def test_a_workspace_that_vanished_does_not_end_the_app(workspace: Workspace) -> None:
    project = _done(workspace, "compare")
    app = open_app(PAGES["compare"], project=project.id)
    shutil.rmtree(workspace.runs / project.runs[-1])
    app.run()
    assert not app.exception


def _exported(workspace: Workspace, name: str) -> tuple[Project, list[Path]]:
    project, search = add_run(
        workspace, full_project(workspace), "search", "done", result=answers.search_result()
    )
    files = [workspace.root / "set.json", workspace.root / "set_quantize.py"]
    files[0].write_text('{"nodes_to_exclude": ["Conv_41"]}')
    files[1].write_text("print()")
    request = ExportRequest(workspace.runs / search / "result.json", name, files[0])
    result = ExportResult(name, tuple(files), ("Conv_41",), ("Conv_9",))
    return add_job(workspace, project, "export", request, "done", result=result)[0], files


def _done(workspace: Workspace, kind: Kind) -> Project:
    return add_run(workspace, full_project(workspace), kind, "done", result=RESULTS[kind]())[0]


def _with_events(workspace: Workspace, kind: Kind, state: JobState) -> Project:
    records: tuple[object, ...] = answers.bisection().steps if kind == "bisect" else answers.trials()
    events = tuple(event(kind, f"step {i}", record) for i, record in enumerate(records[:5]))
    return add_run(workspace, full_project(workspace), kind, state, events=events)[0]
