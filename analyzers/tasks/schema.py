"""Read YAML mappings into frozen records: every key is known, every value has the record's type."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from analyzers.errors import TaskError

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping of a task file.

    Attributes:
        values: Its keys and values, as YAML gave them.
        name: Where it stands, "" for the whole file.
        path: The task file.
    """

    values: Mapping[str, object]
    name: str
    path: Path

    def key(self, key: str) -> str:
        """Return the full name of a key, for messages."""
        return f"{self.name}.{key}" if self.name else key


def malformed(section: Section, message: str, *, hint: str) -> TaskError:
    """Return the error for a part of the task file that cannot be used."""
    return TaskError("malformed_task", message, where=str(section.path), hint=hint)


def as_section(value: object, name: str, path: Path) -> Section:
    """Return a value as a mapping with text keys.

    Raises:
        TaskError: ``malformed_task``.
    """
    section = Section({}, name, path)
    if not isinstance(value, dict):
        raise malformed(
            section,
            f"'{name or 'the file'}' has to be a mapping, not {_kind(value)}",
            hint="Write 'key: value' lines",
        )
    for key in value:
        if not isinstance(key, str):
            raise malformed(section, f"The key {key!r} of '{name}' is no text", hint="Put it in quotes")
    return Section(value, name, path)


def check_keys(section: Section, known: typing.Collection[str]) -> None:
    """Refuse keys that mean nothing here.

    Raises:
        TaskError: ``malformed_task``, with the keys that were possible.
    """
    for key in section.values:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            guess = f"Did you mean '{near[0]}'? " if near else ""
            raise malformed(
                section,
                f"Unknown key '{section.key(key)}'",
                hint=f"{guess}Possible here: {', '.join(sorted(known))}",
            )


def read_record(kind: type[Record], section: Section, *, skip: typing.Collection[str] = ()) -> Record:
    """Make a record from a mapping whose keys are its fields; absent keys keep their defaults.

    Supported field types: bool, int, float, str, Path (a file beside the task file), Literal, tuples (a
    single value stands for a tuple of one) and ``| None``.

    Args:
        kind: The record.
        section: The mapping.
        skip: Keys that were read already.

    Raises:
        TaskError: ``malformed_task``.
    """
    assert dataclasses.is_dataclass(kind)
    hints = typing.get_type_hints(kind)
    fields = [f.name for f in dataclasses.fields(kind)]
    check_keys(section, {*fields, *skip})
    values = {k: _convert(v, hints[k], section, k) for k, v in section.values.items() if k not in skip}
    try:
        return kind(**values)
    except TaskError as cause:
        place = f"{section.path} ({cause.where})" if cause.where else str(section.path)
        raise TaskError(cause.code, cause.message, where=place, hint=cause.hint) from cause


def read_choice(section: Section, key: str, known: typing.Collection[str], default: str) -> str:
    """Return the value of a key that names one of several things.

    Raises:
        TaskError: ``malformed_task``.
    """
    value = section.values.get(key, default)
    if not isinstance(value, str) or value not in known:
        near = difflib.get_close_matches(value, known, n=1) if isinstance(value, str) else []
        guess = f"Did you mean '{near[0]}'? " if near else ""
        raise malformed(
            section,
            f"'{section.key(key)}' cannot be {_kind(value)}",
            hint=f"{guess}Possible: {', '.join(sorted(known))}",
        )
    return value


def _convert(value: object, wanted: object, section: Section, key: str) -> object:
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _convert(value, next(a for a in arguments if a is not type(None)), section, key)
    if origin is Literal:
        return read_choice(section, key, arguments, "")
    if origin is tuple:
        return _convert_tuple(value, arguments, section, key)
    if wanted is Path:
        return _convert_path(value, section, key)
    if wanted is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise malformed(section, f"'{section.key(key)}' has to be finite", hint="Write a number")
        return float(value)
    if isinstance(wanted, type) and type(value) is wanted:
        return value
    name = wanted.__name__ if isinstance(wanted, type) else str(wanted)
    raise malformed(
        section,
        f"'{section.key(key)}' has to be {_NAMES.get(name, name)}, not {_kind(value)}",
        hint="Correct the value",
    )


def _convert_tuple(
    value: object, arguments: tuple[object, ...], section: Section, key: str
) -> tuple[object, ...]:
    items = value if isinstance(value, list) else [value]
    is_open = len(arguments) == 2 and arguments[1] is Ellipsis
    if not items or (not is_open and len(items) != len(arguments)):
        count = "at least one value" if is_open else f"{len(arguments)} values"
        raise malformed(
            section, f"'{section.key(key)}' needs {count}, it has {len(items)}", hint="Write a list: [a, b]"
        )
    wanted = [arguments[0]] * len(items) if is_open else arguments
    return tuple(_convert(item, kind, section, key) for item, kind in zip(items, wanted, strict=True))


def _convert_path(value: object, section: Section, key: str) -> Path:
    """Return a file beside the task file or below; a task file reaches nothing else."""
    if not isinstance(value, str):
        raise malformed(section, f"'{section.key(key)}' has to be a file name", hint="Correct the value")
    folder = section.path.parent.resolve()
    path = (folder / value).resolve()
    if not path.is_relative_to(folder):
        raise malformed(
            section, f"'{section.key(key)}' leaves the folder of the task file", hint="Put the file beside it"
        )
    if not path.is_file():
        raise malformed(
            section,
            f"'{section.key(key)}' names '{value}', which does not exist",
            hint="Put the file beside it",
        )
    return path


_NAMES = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"}


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else repr(value)[:60]
