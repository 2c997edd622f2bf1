"""What every exporter promises: what it writes can be read back, and wrong names do not pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzers import exporters
from analyzers.errors import BackendError, InputError
from analyzers.exporters import (
    Exporter,
    ExportRequest,
    Written,
    all_exporters,
    check_read_back,
    find_exporter,
    write_export,
)
from analyzers.project import Pair
from analyzers.records import Plan
from tests.analyzers.exporters.plans import make_pair, members, plan_shapes, searched

PAIRS = [("plain", "QDQ"), ("silu", "QOperator"), ("attention", "QDQ")]


@pytest.fixture(scope="module", params=PAIRS, ids=lambda p: "-".join(p))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name, form = request.param
    return make_pair(name, tmp_path_factory.mktemp(name), form)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair("plain", tmp_path_factory.mktemp("plain"))


each_exporter = pytest.mark.parametrize("name", all_exporters())


def request_of(pair: Pair, plan: Plan, exporter: Exporter, folder: Path) -> ExportRequest:
    return ExportRequest(pair, plan, folder / f"plan{exporter.suffix}", search=searched(pair, plan))


def test_the_formats_that_are_promised_are_there() -> None:
    assert {"onnx", "onnx-sim", "ort", "rknn", "markdown", "json"} <= set(all_exporters())


@each_exporter
def test_a_plan_is_read_back_as_it_was_written(name: str, pair: Pair, tmp_path: Path) -> None:
    exporter = find_exporter(name)
    for shape in plan_shapes(pair):
        result = write_export(exporter, request_of(pair, Plan(shape), exporter, tmp_path))
        assert exporter.read(result.files[0], pair) == shape == frozenset(result.fallback)
        assert all(path.is_file() for path in result.files)
        assert result.unmapped == ()


@each_exporter
def test_files_appear_only_when_they_are_complete(name: str, plain: Pair, tmp_path: Path) -> None:
    exporter = find_exporter(name)
    result = write_export(exporter, request_of(plain, Plan(frozenset({"dw"})), exporter, tmp_path / "new"))
    assert {path.name for path in (tmp_path / "new").iterdir()} == {path.name for path in result.files}


@each_exporter
def test_a_wrong_name_is_caught(name: str, plain: Pair, tmp_path: Path) -> None:
    exporter = find_exporter(name)
    plan = Plan(frozenset({"dww"}))
    with pytest.raises(InputError, match=r"has no layer 'dww'.*Did you mean 'dw'") as caught:
        write_export(exporter, ExportRequest(plain, plan, tmp_path / "x", search=searched(plain, plan)))
    assert caught.value.code == "unknown_layer"
    assert not list(tmp_path.iterdir())


@each_exporter
def test_a_file_that_holds_another_plan_is_caught(name: str, plain: Pair, tmp_path: Path) -> None:
    exporter = find_exporter(name)
    written = request_of(plain, Plan(frozenset({"dw", "head"})), exporter, tmp_path)
    write_export(exporter, written)
    for other in ({"dw"}, {"dw", "head", "conv1"}, set[str]()):
        with pytest.raises(BackendError, match="does not hold the plan"):
            check_read_back(
                exporter, written.output, request_of(plain, Plan(frozenset(other)), exporter, tmp_path)
            )


@each_exporter
def test_a_layer_that_only_moves_values_is_refused(name: str, plain: Pair, tmp_path: Path) -> None:
    plan = Plan(frozenset({"pool"}))
    request = ExportRequest(plain, plan, tmp_path / "x", search=searched(plain, plan))
    with pytest.raises(InputError) as caught:
        write_export(find_exporter(name), request)
    assert caught.value.code == "layer_without_precision"


@each_exporter
def test_an_output_that_cannot_be_written_is_an_input_error(name: str, plain: Pair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    exporter = find_exporter(name)
    with pytest.raises(InputError) as caught:
        write_export(exporter, request_of(plain, Plan(frozenset({"dw"})), exporter, tmp_path / "file"))
    assert caught.value.code == "output_not_writable"


@pytest.mark.parametrize("name", [n for n, e in all_exporters().items() if e.suffix != ".onnx"])
@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "no such file: [", "\x00", "[" * 100_000])
def test_reading_something_else_is_an_input_error(name: str, text: str, plain: Pair, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(InputError):
        find_exporter(name).read(tmp_path / "file", plain)


@pytest.mark.parametrize("name", [n for n, e in all_exporters().items() if e.suffix == ".onnx"])
def test_a_model_of_someone_else_is_no_export(name: str, plain: Pair) -> None:
    with pytest.raises(InputError, match="does not say which plan"):
        find_exporter(name).read(plain.candidate.path, plain)


@pytest.mark.parametrize("name", [n for n, e in all_exporters().items() if not e.takes_base])
def test_a_file_to_merge_into_is_refused_where_it_would_be_ignored(
    name: str, plain: Pair, tmp_path: Path
) -> None:
    plan = Plan(frozenset({"dw"}))
    request = ExportRequest(
        plain, plan, tmp_path / "x", search=searched(plain, plan), base=plain.reference.path
    )
    with pytest.raises(InputError, match="cannot be merged"):
        write_export(find_exporter(name), request)


@pytest.mark.parametrize("name", [n for n, e in all_exporters().items() if e.needs_search])
def test_a_report_without_a_search_is_refused(name: str, plain: Pair, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        write_export(find_exporter(name), ExportRequest(plain, Plan(frozenset({"dw"})), tmp_path / "x"))
    assert caught.value.code == "search_missing"


def test_an_unknown_format_names_those_that_are_known() -> None:
    with pytest.raises(InputError, match="onnx-sim"):
        find_exporter("tflite")


def test_an_exporter_that_forgets_a_layer_leaves_no_file(plain: Pair, tmp_path: Path) -> None:
    def write(request: ExportRequest) -> Written:
        request.output.write_text(json.dumps(sorted(request.plan.fallback)[1:]))
        return Written()

    def read(path: Path, _: Pair) -> frozenset[str]:
        return frozenset(json.loads(path.read_text()))

    forgetful = Exporter("forgetful", "", "", 2, ".json", write, read)
    plan = Plan(frozenset(members(plain)[:2]))
    with pytest.raises(BackendError, match="it lacks conv0"):
        write_export(forgetful, ExportRequest(plain, plan, tmp_path / "x.json"))
    assert not list(tmp_path.iterdir())


def test_layers_without_a_name_in_the_format_are_reported_and_not_claimed(
    plain: Pair, tmp_path: Path
) -> None:
    def write(request: ExportRequest) -> Written:
        request.output.write_text("dw")
        return Written(unmapped=("head",))

    partial = Exporter("partial", "", "", 2, ".txt", write, lambda path, _: frozenset([path.read_text()]))
    plan = Plan(frozenset({"dw", "head"}))
    result = write_export(partial, ExportRequest(plain, plan, tmp_path / "x.txt"))
    assert (result.fallback, result.unmapped) == (("dw",), ("head",))


def test_a_search_that_missed_its_target_says_so_in_every_export(plain: Pair, tmp_path: Path) -> None:
    plan = Plan(frozenset({"dw"}))
    search = searched(plain, plan, reached=False, score=0.2)
    request = ExportRequest(plain, plan, tmp_path / "x.json", search=search)
    codes = [n.code for n in write_export(find_exporter("json"), request).warnings]
    assert codes == ["target_not_reached"]


def test_layers_are_listed_in_topological_order(plain: Pair) -> None:
    assert exporters.ordered(plain, frozenset({"head", "dw", "zzz"})) == ("dw", "head", "zzz")
