"""``from analyzers import ...``: the third door, as a script uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import analyzers
from analyzers import (
    BisectOptions,
    CompareOptions,
    InputError,
    Inputs,
    QuantizeOptions,
    SearchOptions,
    bisect,
    compare,
    export,
    quantize,
    read,
    search,
)
from analyzers.api import search_steps
from analyzers.records import SearchResult
from analyzers.search_file import read_search_file, search_json
from analyzers.serialize import write_json
from analyzers.steps import finish
from tests import networks
from tests.analyzers.planted import plant

TARGET = SearchOptions(target=20.0)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    """What the questions are asked of: a candidate in which ``conv1`` has wrong weights."""
    _, inputs = plant(tmp_path_factory.mktemp("api"), ["conv1"])
    return inputs


@pytest.fixture(scope="module")
def found(inputs: Inputs) -> SearchResult:
    return search(inputs, TARGET)


@pytest.fixture(scope="module")
def file(inputs: Inputs, found: SearchResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``tearline search --json`` writes; the trials are those of ``found``."""
    path = tmp_path_factory.mktemp("file") / "search.json"
    write_json(search_json(finish(search_steps(inputs, TARGET))), path)
    return path


def test_importing_the_package_loads_no_runtime() -> None:
    code = "import sys, analyzers; print([n for n in ('onnxruntime', 'onnx', 'numpy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", analyzers.__all__)
def test_every_public_name_is_what_it_is_called(name: str) -> None:
    """A module of the same name, once imported, would take the place of a function."""
    value = getattr(analyzers, name)
    assert callable(value)
    assert value.__name__ == name


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'quantise'"):
        _ = analyzers.quantise


def test_read_gives_the_checked_model(inputs: Inputs) -> None:
    model = read(inputs.reference)
    assert [spec.name for spec in model.inputs] == ["image"]
    with pytest.raises(InputError) as caught:
        read(inputs.reference.with_name("none.onnx"))
    assert caught.value.code == "file_absent"


def test_quantize_makes_a_candidate_that_compare_finds_close(tmp_path: Path) -> None:
    model = networks.build(networks.PLAIN, networks.PLAIN_SHAPES)
    onnx.save(model, tmp_path / "fp32.onnx")
    feeds = networks.samples(model, 6)
    arrays = {f"s{index}::image": feed["image"] for index, feed in enumerate(feeds)}
    np.savez(tmp_path / "data.npz", **arrays)  # type: ignore[arg-type]
    made = quantize(
        tmp_path / "fp32.onnx",
        tmp_path / "data.npz",
        tmp_path / "int8.onnx",
        samples="4",
        options=QuantizeOptions(per_channel=False),
    )
    assert made.candidate == tmp_path / "int8.onnx"
    assert len(made.samples) == 4
    asked = Inputs(tmp_path / "fp32.onnx", made.candidate, data=tmp_path / "data.npz")
    answer = compare(asked, CompareOptions(isolated=False))
    assert answer.samples == 6
    assert min(row.cosine for row in answer.outputs) > 0.99


def test_bisect_finds_the_spoiled_layer(inputs: Inputs) -> None:
    answer = bisect(inputs, BisectOptions(samples=2))
    assert [c.layer for c in answer.culprits] == ["conv1"]


def test_search_answers_as_its_json_file_says(found: SearchResult, file: Path) -> None:
    assert found.reached
    assert "conv1" in found.fallback
    said = json.loads(file.read_text())
    assert tuple(said["fallback"]) == found.fallback
    assert said["score"] == found.score
    assert said["reference_score"] == 200.0


def test_export_writes_the_same_from_a_result_and_from_its_file(
    inputs: Inputs, found: SearchResult, file: Path, tmp_path: Path
) -> None:
    of_result = export(found, "onnx-sim", tmp_path / "result", inputs=inputs)
    of_file = export(file, "onnx-sim", tmp_path / "file")
    assert of_result.fallback == of_file.fallback == found.fallback
    assert (tmp_path / "result").read_bytes() == (tmp_path / "file").read_bytes()


def test_a_report_can_be_made_of_a_result(inputs: Inputs, found: SearchResult, tmp_path: Path) -> None:
    export(found, "markdown", tmp_path / "report.md", inputs=inputs)
    text = (tmp_path / "report.md").read_text()
    assert all(layer in text for layer in found.fallback)
    assert str(inputs.reference) in text


def test_export_of_a_result_needs_its_inputs_and_their_models(
    inputs: Inputs, found: SearchResult, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="inputs"):
        export(found, "json", tmp_path / "answer")
    (tmp_path / "other").mkdir()
    other = networks.build(networks.SILU, networks.SILU_SHAPES)
    reference, candidate = networks.quantized(other, tmp_path / "other")
    with pytest.raises(InputError):
        export(
            found,
            "json",
            tmp_path / "answer",
            inputs=replace(inputs, reference=reference, candidate=candidate),
        )
    assert not (tmp_path / "answer").exists()


def test_export_runs_code_that_a_file_names_only_where_that_is_allowed(file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def score(outputs, labels):\n    return 1.0\n")
    (tmp_path / "task.yaml").write_text("metric: mine.py:score\n")
    search_file = read_search_file(file)
    assert search_file.inputs is not None
    asked = replace(search_file.inputs, task=tmp_path / "task.yaml", allow_code=True)
    write_json(search_json(replace(search_file, inputs=asked)), tmp_path / "search.json")
    with pytest.raises(InputError) as caught:
        export(tmp_path / "search.json", "json", tmp_path / "answer")
    assert caught.value.code == "code_not_allowed"
    assert export(tmp_path / "search.json", "json", tmp_path / "answer", allow_code=True).fallback
