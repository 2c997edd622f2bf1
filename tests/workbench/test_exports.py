from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from analyzers.errors import InputError
from analyzers.exporters import find_exporter
from tests.workbench import answers
from tests.workbench.workspaces import add_run, full_project
from workbench.exports import (
    export_request,
    exports_of,
    formats,
    preview,
    requantize_of,
    start_export,
    start_requantize,
)
from workbench.jobs import Jobs
from workbench.projects import Project, Source, with_source


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with Jobs(tmp_path, max_parallel=0) as opened:
        yield opened


@pytest.fixture
def searched(jobs: Jobs) -> tuple[Project, str]:
    return add_run(
        jobs.workspace, full_project(jobs.workspace), "search", "done", result=answers.search_result()
    )


def test_an_export_goes_into_a_folder_of_its_search_and_format(
    jobs: Jobs, searched: tuple[Project, str]
) -> None:
    project, search = searched
    request = export_request(project, jobs, search, find_exporter("ort"))
    assert request.search == jobs.result_path(search)
    assert request.output == jobs.workspace.root / "exports" / search / "ort" / "yolox_nano_416_fallback.json"
    assert request.allow_code is False


def test_names_of_uploads_cannot_steer_where_an_export_goes(
    jobs: Jobs, searched: tuple[Project, str]
) -> None:
    project, search = searched
    for label in ("../../etc/passwd.onnx", "..", "a b\n$(x).onnx", "", "猫.onnx"):
        odd = with_source(project, "reference", Source(Path("/m"), label))
        output = export_request(odd, jobs, search, find_exporter("onnx")).output
        assert output.parent == jobs.workspace.root / "exports" / search / "onnx"
        assert output.name.endswith("_fallback.onnx")
        assert output.name.isascii()


def test_the_newest_export_of_each_format_is_found(jobs: Jobs, searched: tuple[Project, str]) -> None:
    project, search = searched
    assert exports_of(jobs, project, search) == {}
    project, _ = start_export(jobs, project, search, find_exporter("ort"))
    project, newer = start_export(jobs, project, search, find_exporter("ort"))
    project, other = start_export(jobs, project, search, find_exporter("onnx"))
    found = exports_of(jobs, project, search)
    assert {name: s.id for name, s in found.items()} == {"ort": newer, "onnx": other}
    project, other_search = add_run(jobs.workspace, project, "search", "done", result=answers.search_result())
    assert exports_of(jobs, project, other_search) == {}


def test_requantizing_needs_a_calibration_set(jobs: Jobs, searched: tuple[Project, str]) -> None:
    project, search = searched
    with pytest.raises(ValueError, match="calibration"):
        start_requantize(jobs, project, search)
    project = replace(project, calibration=Source(jobs.workspace.root, "cal"))
    project, job_id = start_requantize(jobs, project, search)
    found = requantize_of(jobs, project, search)
    assert found is not None
    assert found.id == job_id


def test_every_format_is_offered_once() -> None:
    names = [e.name for e in formats()]
    assert len(names) == len(set(names))
    assert {"onnx", "onnx-sim", "ort", "rknn", "markdown", "json"} <= set(names)


def test_text_is_shown_and_long_text_cut(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert preview(tmp_path / "a.json") == ('{"a": 1}', "json")
    (tmp_path / "long.md").write_text("x" * 100_000)
    text = preview(tmp_path / "long.md")
    assert text is not None
    assert text[0].endswith("\n...")
    (tmp_path / "m.onnx").write_bytes(b"\0")
    assert preview(tmp_path / "m.onnx") is None
    with pytest.raises(InputError):
        preview(tmp_path / "gone.json")
