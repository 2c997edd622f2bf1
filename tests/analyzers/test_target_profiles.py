from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from analyzers.errors import InputError
from analyzers.records import Inputs
from analyzers.target_profiles import Statement, builtin_profiles, for_target, parse_profile, read_profile

PROFILE = """
name: board
title: A board
fallback:
  rule: {value: hybrid, source: its manual}
speed:
  int8_macs_per_second: {value: 2.0e+12, source: its data sheet}
  island_seconds: {value: 0, source: measured}
  bytes_per_second: unknown
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "board.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", builtin_profiles())
def test_every_profile_that_ships_is_well_formed_and_named_as_its_file(name: str) -> None:
    profile = read_profile(name)
    assert profile.name == name
    for part in (profile.fallback, profile.speed):
        for field in dataclasses.fields(part):
            stated = getattr(part, field.name)
            assert stated is None or len(stated.source) > 20


def test_the_generic_profile_knows_every_number_since_others_borrow_from_it() -> None:
    speed = read_profile("generic").speed
    assert all(getattr(speed, field.name) is not None for field in dataclasses.fields(speed))


def test_a_profile_of_the_users_is_read_by_its_path_and_unknown_stays_unknown(tmp_path: Path) -> None:
    profile = read_profile(str(written(tmp_path, PROFILE)))
    assert profile.name == "board"
    assert profile.fallback.rule == Statement("hybrid", "its manual")
    assert profile.fallback.precision is None
    assert profile.speed.int8_macs_per_second == Statement(2e12, "its data sheet")
    assert profile.speed.island_seconds == Statement(0.0, "measured")
    assert profile.speed.bytes_per_second is None
    assert profile.speed.fp16_macs_per_second is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("title: A board", "", "'title' has to be text"),
        ("title: A board", "title: [1]", "'title' has to be text, it is a list"),
        ("name: board", "name: board\nspeeds: {}", "Unknown key 'speeds'"),
        ("island_seconds", "island_second", "Unknown key 'speed.island_second'"),
        ("value: hybrid", "value: mixed", "'fallback.rule' is 'mixed', not one of per-edge"),
        ("{value: hybrid, source: its manual}", "hybrid", "'fallback.rule' has to be a mapping"),
        (", source: its manual", "", "'fallback.rule' has no source"),
        ("source: its manual", "source: ' '", "'fallback.rule' has no source"),
        ("value: hybrid, ", "", "write 'rule: unknown' instead"),
        ("2.0e+12", "2e12", "'speed.int8_macs_per_second' is '2e12', not a number"),
        ("2.0e+12", "0", "'speed.int8_macs_per_second' is 0"),
        ("2.0e+12", "-1.0", "'speed.int8_macs_per_second' is -1"),
        ("2.0e+12", ".inf", "not a number such as"),
        ("2.0e+12", ".nan", "not a number such as"),
        ("2.0e+12", "9" * 400, "not a number such as"),
        ("2.0e+12", "true", "not a number such as"),
        (PROFILE, "- a\n- b", "The profile has to be a mapping"),
        (PROFILE, "a: [", "The profile cannot be read"),
        (PROFILE, "", "The profile has to be a mapping of names, not nothing"),
        (PROFILE, "!!python/object:os.system {}", "The profile cannot be read"),
    ],
)
def test_a_bad_profile_is_an_input_error_that_names_the_key(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    assert old in PROFILE
    path = written(tmp_path, PROFILE.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        parse_profile(path)
    assert caught.value.code == "malformed_profile"
    assert words in caught.value.message
    assert caught.value.where == str(path)
    assert caught.value.hint


def test_a_misspelt_key_and_a_misspelt_name_are_guessed(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        parse_profile(written(tmp_path, PROFILE.replace("island_seconds", "island_second")))
    assert "Did you mean 'island_seconds'?" in caught.value.hint
    with pytest.raises(InputError) as caught:
        read_profile("genric")
    assert caught.value.code == "unknown_profile"
    assert "Did you mean 'generic'?" in caught.value.hint


def test_an_absent_or_huge_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_profile(str(tmp_path / "none.yaml"))
    assert caught.value.code == "file_absent"
    with pytest.raises(InputError) as caught:
        parse_profile(written(tmp_path, "#" * (2 << 20)))
    assert caught.value.code == "malformed_profile"


def test_a_file_that_swells_when_it_is_printed_is_refused_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 20)]
    with pytest.raises(InputError) as caught:
        parse_profile(written(tmp_path, "\n".join([*lines, "name: *a19"])))
    assert caught.value.code == "malformed_profile"


def test_a_profile_says_how_plans_are_made_where_the_user_does_not(tmp_path: Path) -> None:
    name = str(written(tmp_path, PROFILE))
    inputs = Inputs(Path("m.onnx"), rule="nodes-to-exclude", precision="fp32")
    made = for_target(inputs, name)
    assert (made.target_profile, made.rule, made.precision) == (name, "hybrid", "fp16")
    asked = for_target(inputs, name, rule="per-edge", precision="fp32")
    assert (asked.rule, asked.precision) == ("per-edge", "fp32")
    assert for_target(Inputs(Path("m.onnx")), "generic") == Inputs(Path("m.onnx"))
