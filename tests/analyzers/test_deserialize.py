import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from analyzers.deserialize import from_json, read_record
from analyzers.errors import InputError
from analyzers.records import Inputs, QuantizeOptions, SearchOptions, Trial
from analyzers.serialize import to_json, write_json


@dataclass(frozen=True)
class Part:
    name: str
    size: int | None = None


@dataclass(frozen=True)
class Whole:
    kind: Literal["small", "large"]
    score: float
    parts: tuple[Part, ...]
    pair: tuple[int, str]
    names: frozenset[str]
    table: dict[str, float]
    path: Path
    note: object = None
    is_set: bool = False
    extra: tuple[str, ...] = field(default_factory=tuple)


WHOLE = Whole(
    "small",
    1.5,
    (Part("a"), Part("b", 2)),
    (1, "x"),
    frozenset({"p", "q"}),
    {"k": 2.0},
    Path("/m.onnx"),
    [1, {"a": 2}],
)
INPUTS = Inputs(Path("ref.onnx"), data=Path("d"), samples="0::4", quantize=QuantizeOptions(method="entropy"))


@pytest.mark.parametrize(
    "record", [WHOLE, INPUTS, SearchOptions(max_drop=0.01, keep_int8=("a*",)), Part("é")]
)
def test_a_record_comes_back_as_it_was(record, tmp_path):
    write_json(record, tmp_path / "r.json")
    assert read_record(type(record), tmp_path / "r.json") == record


def test_an_undefined_number_comes_back_undefined():
    back = from_json(Trial, to_json(Trial(("a",), math.nan, 4, 1.0)))
    assert math.isnan(back.score)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "huge"}, "Whole.kind is 'huge', not one of small, large"),
        ({"score": "1"}, "Whole.score is '1', not a number"),
        ({"score": True}, "Whole.score is True, not a number"),
        ({"parts": {}}, "Whole.parts is {}, not a list"),
        ({"parts": [{"name": "a", "size": 1.5}]}, "Whole.parts[0].size is 1.5, not a whole number"),
        ({"parts": [{"size": 1}]}, "Whole.parts[0] lacks the field 'name'"),
        ({"pair": [1]}, "Whole.pair has 1 entries instead of 2"),
        ({"table": []}, "Whole.table is [], not a dict"),
        ({"path": 3}, "Whole.path is 3, not a str"),
        ({"is_set": 0}, "Whole.is_set is 0, not a bool"),
        ({"unheard": 1}, "Whole has no field 'unheard'"),
    ],
)
def test_a_value_of_another_type_is_named(change, words):
    with pytest.raises(InputError) as raised:
        from_json(Whole, {**to_json(WHOLE), **change}, where="r.json")
    assert raised.value.code == "malformed_result"
    assert words in raised.value.message
    assert raised.value.where == "r.json"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "file_absent"),
        ("{", "malformed_result"),
        ("[" * 100000, "malformed_result"),
        ("3", "malformed_result"),
    ],
)
def test_a_file_that_holds_no_record_is_an_input_error(text, code, tmp_path):
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError) as raised:
        read_record(Part, path)
    assert raised.value.code == code


def test_a_value_that_is_no_utf8_is_an_input_error(tmp_path):
    (tmp_path / "r.json").write_bytes(json.dumps({"name": "a"}).encode("utf-16"))
    with pytest.raises(InputError):
        read_record(Part, tmp_path / "r.json")


def test_what_stands_beside_the_record_can_be_left_out(tmp_path):
    write_json({**to_json(Part("a")), "provenance": {}}, tmp_path / "r.json")
    assert read_record(Part, tmp_path / "r.json", beside=("provenance",)) == Part("a")
