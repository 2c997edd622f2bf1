from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.errors import InputError
from analyzers.exporters import all_exporters
from analyzers.exporting import export_search, provenance_of, requantize_search
from analyzers.project import Pair
from analyzers.records import Inputs, Plan
from analyzers.search_file import SearchFile, search_json
from analyzers.steps import finish
from tests.analyzers.exporters.plans import make_pair, searched
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples

PLAN = Plan(frozenset({"dw", "head"}))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return make_pair("plain", tmp_path)


def saved(pair: Pair, folder: Path, change: Callable[[SearchFile], SearchFile] = lambda file: file) -> Path:
    data = folder / "inputs.npz"
    feeds = samples(onnx.load(pair.reference.path), 3)
    np.savez(data, **{name: np.concatenate([f[name] for f in feeds]) for name in feeds[0]})
    inputs = Inputs(
        pair.reference.path, pair.candidate.path, data, metric="slice-sqnr", workspace=folder / "workspace"
    )
    path = folder / "search.json"
    file = replace(searched(pair, PLAN, metric="slice-sqnr", unit="dB"), inputs=inputs)
    path.write_text(json.dumps(search_json(change(file))))
    return path


@pytest.mark.parametrize("name", all_exporters())
def test_a_search_is_exported_from_its_file_alone(name: str, pair: Pair, tmp_path: Path) -> None:
    result = finish(export_search(saved(pair, tmp_path), name, tmp_path / "out" / "plan"))
    assert (result.format, result.fallback) == (name, ("dw", "head"))
    assert result.files[0] == tmp_path / "out" / "plan"
    assert all(path.is_file() for path in result.files)


def test_the_exported_model_is_run_on_the_searchs_samples(pair: Pair, tmp_path: Path) -> None:
    def as_literal(file: SearchFile) -> SearchFile:
        return replace(file, result=replace(file.result, mode="literal"))

    for change, codes in ((lambda file: file, []), (as_literal, ["needs_session_option"])):
        path = saved(pair, tmp_path, change)
        result = finish(export_search(path, "onnx-sim", tmp_path / "x.onnx"))
        assert [n.code for n in result.warnings] == codes


def test_samples_that_are_gone_do_not_keep_a_plan_from_being_exported(pair: Pair, tmp_path: Path) -> None:
    path = saved(pair, tmp_path)
    (tmp_path / "inputs.npz").unlink()
    assert finish(export_search(path, "onnx", tmp_path / "x.onnx")).fallback == ("dw", "head")


def test_a_plan_is_merged_into_a_file_of_the_users(pair: Pair, tmp_path: Path) -> None:
    base = tmp_path / "base.cfg"
    base.write_text(
        "custom_quantize_layers: {}\nquantize_parameters:\n    d: {}\n    k: {}\n    scores: {}\n"
    )
    finish(export_search(saved(pair, tmp_path), "rknn", tmp_path / "x.cfg", base=base))
    assert (
        (tmp_path / "x.cfg")
        .read_text()
        .endswith("quantize_parameters:\n    d: {}\n    k: {}\n    scores: {}\n")
    )


def test_a_search_that_does_not_say_where_its_models_are_is_refused(pair: Pair, tmp_path: Path) -> None:
    path = saved(pair, tmp_path, lambda file: replace(file, inputs=None))
    with pytest.raises(InputError, match="has no 'inputs'"):
        finish(export_search(path, "ort", tmp_path / "x.json"))


def test_models_that_changed_since_the_search_are_refused(pair: Pair, tmp_path: Path) -> None:
    path = saved(pair, tmp_path)
    quantized(build(PLAIN, PLAIN_SHAPES, seed=3), tmp_path)
    with pytest.raises(InputError) as caught:
        finish(export_search(path, "ort", tmp_path / "x.json"))
    assert caught.value.code == "models_changed"


def test_layers_that_are_grouped_otherwise_are_refused_without_digests_too(
    pair: Pair, tmp_path: Path
) -> None:
    def regrouped(file: SearchFile) -> SearchFile:
        result = replace(file.result, fallback_nodes=("dw", "head"))
        return replace(file, result=result, provenance=None)

    with pytest.raises(InputError) as caught:
        finish(export_search(saved(pair, tmp_path, regrouped), "ort", tmp_path / "x.json"))
    assert caught.value.code == "models_changed"


def test_a_layer_that_does_not_exist_is_named(pair: Pair, tmp_path: Path) -> None:
    def misspelled(file: SearchFile) -> SearchFile:
        result = replace(file.result, fallback=("dvv", "head"))
        return replace(file, result=result, provenance=None)

    with pytest.raises(InputError, match="has no layer 'dvv'"):
        finish(export_search(saved(pair, tmp_path, misspelled), "ort", tmp_path / "x.json"))


def test_an_unknown_format_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        finish(export_search(tmp_path / "none.json", "tflite", tmp_path / "x"))
    assert caught.value.code == "unknown_format"


def test_a_search_file_cannot_allow_code_by_itself(pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('ran')\n")
    task = tmp_path / "task.yaml"
    task.write_text("metric: mine.py:score\n")

    def with_code(file: SearchFile) -> SearchFile:
        assert file.inputs is not None
        return replace(file, inputs=replace(file.inputs, task=task, metric=None, allow_code=True))

    with pytest.raises(InputError):
        finish(export_search(saved(pair, tmp_path, with_code), "onnx-sim", tmp_path / "x.onnx"))


def test_the_digests_of_a_search_are_those_of_its_models(pair: Pair) -> None:
    found = provenance_of(pair)
    assert (found.reference_digest, found.candidate_digest) == (pair.reference.digest, pair.candidate.digest)


def test_what_onnxruntimes_quantizer_really_gives_is_scored(pair: Pair, tmp_path: Path) -> None:
    path = saved(pair, tmp_path)
    result = finish(requantize_search(path, tmp_path / "inputs.npz", tmp_path / "again.onnx"))
    assert result.candidate == tmp_path / "again.onnx"
    assert (result.score.metric, result.score.unit) == ("slice-sqnr", "dB")
    assert 10 < result.score.value < 80
    assert result.simulated_score == 0.3312
    operators = {node.name for node in onnx.load(result.candidate).graph.node}
    assert {"dw", "head"} <= operators
