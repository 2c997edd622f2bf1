from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest

from analyzers.errors import InputError
from analyzers.records import (
    Fidelity,
    FrontPoint,
    Inputs,
    Notice,
    QuantizeOptions,
    SearchOptions,
    SearchResult,
    Trial,
)
from analyzers.search_file import (
    Provenance,
    SearchFile,
    read_search_file,
    search_json,
)

Json = dict[str, Any]

RESULT = SearchResult(
    reached=True,
    target=0.3,
    score=0.31,
    reference_score=0.34,
    candidate_score=0.14,
    all_fallback_score=0.33,
    fallback=("a", "b"),
    fallback_nodes=("a", "a_relu", "b"),
    minimal=True,
    proof=(Trial(("a",), 0.2, 8, 1.0), Trial(("b",), 0.25, 8, 1.0)),
    rule="per-edge",
    precision="fp16",
    mode="as-executed",
    metric="ap",
    unit="",
    front=(FrontPoint(("a", "b"), 0.31, 2, 1),),
    trials=(Trial((), 0.14, 8, 1.0, "candidate"), Trial(("a", "b"), 0.31, 8, 1.0, "gallop", ("a",))),
    evaluations=4.0,
    fidelity=Fidelity(0.14, 0.14, 0.0),
    ranking=("a", "b"),
    reason="Reached with 2 layers",
    samples=8,
    warnings=(Notice("x", "y"),),
)
FILE = SearchFile(
    RESULT,
    Inputs(Path("/models/a.onnx"), calibration=Path("/cal"), quantize=QuantizeOptions(method="entropy")),
    SearchOptions(max_drop=0.04, keep_int8=("head*",)),
    Provenance("0.1.0", "12", "34"),
)


def saved(table: object, folder: Path) -> Path:
    path = folder / "search.json"
    path.write_text(json.dumps(table))
    return path


def test_a_search_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_search_file(saved(search_json(FILE), tmp_path)) == FILE


def test_a_file_without_the_blocks_is_read_too(tmp_path: Path) -> None:
    path = saved(search_json(SearchFile(RESULT)), tmp_path)
    assert read_search_file(path) == SearchFile(RESULT)
    assert read_search_file(path).result == RESULT


def test_undefined_scores_come_back_undefined(tmp_path: Path) -> None:
    never_asked = replace(RESULT, all_fallback_score=nan)
    assert isnan(
        read_search_file(saved(search_json(SearchFile(never_asked)), tmp_path)).result.all_fallback_score
    )


def drop(key: str) -> Callable[[Json], object]:
    return lambda table: table.pop(key)


def put(value: object, *keys: str | int) -> Callable[[Json], object]:
    def change(table: Any) -> None:
        for key in keys[:-1]:
            table = table[key]
        table[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (drop("fallback"), "not the answer of a search"),
        (drop("target"), "not the answer of a search"),
        (drop("score"), "lacks the field 'score'"),
        (drop("trials"), "lacks the field 'trials'"),
        (put(1, "surprise"), "has no field 'surprise'"),
        (put("0.3", "score"), "'0.3', not a number"),
        (put(1, "reached"), "1, not a bool"),
        (put(True, "samples"), "True, not a whole number"),
        (put("a", "fallback"), "'a', not a list"),
        (put([1], "fallback"), "1, not a str"),
        (put(["a", "a"], "fallback"), "'a' twice"),
        (put([], "fallback"), "contradict each other"),
        (put([], "fallback_nodes"), "contradict each other"),
        (put("int4", "precision"), "'int4', not one of"),
        (put("whatever", "rule"), "'whatever', not one of"),
        (put(0, "samples"), "'samples' is 0"),
        (put(None, "trials", 0), "None, not a dict"),
        (put("x", "trials", 0, "seconds"), "'x', not a number"),
        (put(3, "inputs"), "3, not a dict"),
        (put(3, "inputs", "reference"), "3, not a str"),
        (put("float", "inputs", "quantize", "method"), "'float', not one of"),
        (put([], "provenance"), "not a dict"),
    ],
)
def test_a_malformed_search_file_says_what_is_wrong(
    change: Callable[[Json], object], said: str, tmp_path: Path
) -> None:
    table: Json = dict(search_json(FILE))
    change(table)
    path = saved(table, tmp_path)
    with pytest.raises(InputError, match=said) as caught:
        read_search_file(path)
    assert caught.value.code == "malformed_result"
    assert caught.value.where == str(path)


@pytest.mark.parametrize("text", ["", "{", "\x00\xff", "[]", "3", "null", '{"a": ' * 200_000])
def test_what_is_no_search_is_malformed(text: str, tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_search_file(path)
    assert caught.value.code == "malformed_result"


def test_bytes_that_are_no_text_are_malformed(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    path.write_bytes(b"\x80\x04\x95")
    with pytest.raises(InputError, match="not JSON"):
        read_search_file(path)


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_opened_is_absent(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_search_file(tmp_path / name)
    assert caught.value.code == "file_absent"
