"""Target profiles: what a device does with a plan and what it costs there, read from YAML and checked.

A profile is a set of statements, each with its source. What a profile does not say is unknown and stays so
(None here); whoever needs a number anyway says which one it took instead. See docs/targets.md for the schema.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeVar

import yaml

from analyzers.errors import InputError
from analyzers.records import Inputs, Precision, Rule

DEFAULT_PROFILE = "generic"
UNKNOWN = "unknown"
_FOLDER = Path(__file__).parent / "targets"
_MAX_BYTES = 1 << 20
_LARGEST = 1e30
_HINT = "See docs/targets.md for what a profile holds"

Value = TypeVar("Value")
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Statement(Generic[Value]):
    """Something that is known of a target, and from where."""

    value: Value
    source: str


@dataclass(frozen=True, slots=True)
class Fallback:
    """How layers outside INT8 are computed and stored; None where unknown.

    Attributes:
        precision: What a layer falls back to.
        rule: Which tensors of a plan stay INT8.
    """

    precision: Statement[Precision] | None = None
    rule: Statement[Rule] | None = None


@dataclass(frozen=True, slots=True)
class Speed:
    """What takes how long; None where unknown.

    Attributes:
        int8_macs_per_second: Multiply-accumulates of INT8 layers.
        fp16_macs_per_second: The same of layers in FP16, on whatever unit computes them.
        fp32_macs_per_second: The same in FP32.
        bytes_per_second: Traffic of weights, tensors and conversions.
        island_seconds: What one more island of fallback layers costs: an exchange and synchronisation.
    """

    int8_macs_per_second: Statement[float] | None = None
    fp16_macs_per_second: Statement[float] | None = None
    fp32_macs_per_second: Statement[float] | None = None
    bytes_per_second: Statement[float] | None = None
    island_seconds: Statement[float] | None = None


@dataclass(frozen=True, slots=True)
class TargetProfile:
    """One device.

    Attributes:
        name: What users call it.
        title: What it is, in a few words.
        fallback: How plans are made for it.
        speed: What they cost on it.
    """

    name: str
    title: str
    fallback: Fallback = Fallback()
    speed: Speed = Speed()


def builtin_profiles() -> tuple[str, ...]:
    """Return the names of the profiles that come with Tearline, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def read_profile(name: str) -> TargetProfile:
    """Read a profile.

    Args:
        name: A name of ``builtin_profiles`` or the path of a YAML file.

    Raises:
        InputError: ``unknown_profile``, ``file_absent`` or ``malformed_profile``, which names the key.
    """
    if not is_profile_file(name):
        _check_known(name)
        return parse_profile(_FOLDER / f"{name}.yaml")
    return parse_profile(Path(name))


def is_profile_file(name: str) -> bool:
    """Tell whether a profile is named by its file and not as one that comes with Tearline."""
    return os.sep in name or "/" in name or name.lower().endswith((".yaml", ".yml"))


def for_target(
    inputs: Inputs, name: str, *, rule: Rule | None = None, precision: Precision | None = None
) -> Inputs:
    """Return inputs whose plans are made for a target.

    Args:
        inputs: What a search is given.
        name: A name of ``builtin_profiles`` or the path of a YAML file.
        rule: Storage rule; None for the profile's.
        precision: Fallback precision; None for the profile's.

    Raises:
        InputError: As ``read_profile``.
    """
    stated = read_profile(name).fallback
    default = Inputs(inputs.reference)
    return dataclasses.replace(
        inputs,
        target_profile=name,
        rule=rule or (stated.rule.value if stated.rule else default.rule),
        precision=precision or (stated.precision.value if stated.precision else default.precision),
    )


def parse_profile(path: Path) -> TargetProfile:
    """Read a profile from its file.

    Raises:
        InputError: ``file_absent`` or ``malformed_profile``.
    """
    values = _mapping(_read_yaml(path), "", path)
    _check_keys(values, [field.name for field in dataclasses.fields(TargetProfile)], "", path)
    return TargetProfile(
        name=_text(values.get("name"), "name", path),
        title=_text(values.get("title"), "title", path),
        fallback=_part(Fallback, values.get("fallback", {}), "fallback", path),
        speed=_part(Speed, values.get("speed", {}), "speed", path),
    )


def _check_known(name: str) -> None:
    known = builtin_profiles()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        guess = f"Did you mean '{near[0]}'? " if near else ""
        raise InputError(
            "unknown_profile",
            f"There is no target profile '{name}'",
            hint=f"{guess}Choose one of: {', '.join(known)}, or give a YAML file",
        )


def _read_yaml(path: Path) -> object:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("it is larger than a profile can be")
        value: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as cause:
        raise InputError("file_absent", "There is no such profile", where=str(path), hint=_HINT) from cause
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as cause:
        text = " ".join(str(cause).split())[:300]
        raise _malformed(path, f"The profile cannot be read: {text}") from cause
    return value


def _part(kind: type[Part], value: object, name: str, path: Path) -> Part:
    """Read a section: every key is a field of the record, every value a statement or "unknown"."""
    values = _mapping(value, name, path)
    hints = typing.get_type_hints(kind)
    _check_keys(values, hints, name, path)
    found: dict[str, object] = {}
    for key, given in values.items():
        statement = next(a for a in typing.get_args(hints[key]) if a is not type(None))
        (wanted,) = typing.get_args(statement)
        found[key] = None if given == UNKNOWN else _statement(wanted, given, f"{name}.{key}", path)
    return kind(**found)


def _statement(wanted: object, value: object, key: str, path: Path) -> Statement[object]:
    values = _mapping(value, key, path)
    names = [field.name for field in dataclasses.fields(Statement)]
    _check_keys(values, names, key, path)
    source = values.get("source")
    if not isinstance(source, str) or not source.strip():
        raise _malformed(path, f"'{key}' has no source: every statement says from where it is known")
    if "value" not in values:
        raise _malformed(path, f"'{key}' has no value; write '{key.rpartition('.')[2]}: unknown' instead")
    return Statement(_value(wanted, values["value"], key, path), " ".join(source.split()))


def _value(wanted: object, value: object, key: str, path: Path) -> object:
    if typing.get_origin(wanted) is Literal:
        choices = typing.get_args(wanted)
        if not isinstance(value, str) or value not in choices:
            raise _malformed(path, f"'{key}' is {_kind(value)}, not one of {', '.join(choices)}")
        return value
    assert wanted is float, f"statements of {wanted} cannot be read"
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        # YAML 1.1 reads 1e9 as text: a number needs a point and a signed exponent there.
        raise _malformed(path, f"'{key}' is {_kind(value)}, not a number such as 1.5e+9")
    if value < 0 or (value == 0 and key.endswith("_per_second")):
        raise _malformed(path, f"'{key}' is {value:g}, which cannot be")
    return float(value)


def _mapping(value: object, name: str, path: Path) -> Mapping[str, object]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        where = f"'{name}'" if name else "The profile"
        raise _malformed(path, f"{where} has to be a mapping of names, not {_kind(value)}")
    return value


def _check_keys(values: Mapping[str, object], known: Collection[str], name: str, path: Path) -> None:
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            guess = f"Did you mean '{near[0]}'? " if near else ""
            full = f"{name}.{key}" if name else key
            raise _malformed(path, f"Unknown key '{full}'", f"{guess}Possible here: {', '.join(known)}")


def _text(value: object, key: str, path: Path) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _malformed(path, f"'{key}' has to be text, it is {_kind(value)}")
    return " ".join(value.split())


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else repr(value)[:60]


def _malformed(path: Path, message: str, hint: str = _HINT) -> InputError:
    return InputError("malformed_profile", message, where=str(path), hint=hint)
