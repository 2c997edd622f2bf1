"""JSON values back to records: the twin of ``serialize``, strict, for files that anyone may have edited."""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from analyzers.errors import InputError

Record = TypeVar("Record")


class _MismatchError(Exception):
    """A value does not fit its field; says which and why."""


def from_json(kind: type[Record], value: object, *, where: str = "") -> Record:
    """Build a record from its JSON form, checking every field.

    null becomes ``nan`` where a float is wanted, lists become tuples, strings become paths or sets' members.

    Args:
        kind: The record class.
        value: What ``serialize.to_json`` made of such a record, through a file or not.
        where: The file, for the error.

    Raises:
        InputError: A field is missing, unknown or of another type.
    """
    try:
        record: Record = _convert(kind, value, kind.__name__)
    except (_MismatchError, ValueError) as cause:
        raise InputError(
            "malformed_result",
            f"This is not a {kind.__name__} as this version of Tearline writes it: {cause}",
            where=where,
            hint="Give a JSON file that this version wrote, unchanged",
        ) from cause
    return record


def read_record(kind: type[Record], path: Path, *, beside: Collection[str] = ()) -> Record:
    """Read a record from a JSON file.

    Args:
        kind: The record class.
        path: The file.
        beside: Keys of the file that are not the record's; left out.

    Raises:
        InputError: The file is absent, no JSON, or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as cause:
        raise InputError(
            "file_absent", f"Cannot read the file: {cause.strerror}", where=str(path), hint="Check the path"
        ) from cause
    except (ValueError, RecursionError) as cause:
        raise InputError(
            "malformed_result", "The file is not JSON", where=str(path), hint="Give a file that --json wrote"
        ) from cause
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if key not in beside}
    return from_json(kind, value, where=str(path))


def _convert(kind: Any, value: object, place: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _union(get_args(kind), value, place)
    if origin is Literal:
        if value not in get_args(kind):
            raise _MismatchError(f"{place} is {value!r}, not one of {', '.join(map(str, get_args(kind)))}")
        return value
    if origin in (tuple, frozenset):
        return _sequence(origin, get_args(kind), value, place)
    if origin is dict:
        table = _expect(value, dict, place)
        return {str(k): _convert(get_args(kind)[1], v, f"{place}.{k}") for k, v in table.items()}
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, place)
    if kind in _SCALARS:
        return _SCALARS[kind](value, place)
    if kind in (object, Any):
        return value
    raise ValueError(f"{place} has a type that JSON cannot hold: {kind}")


def _record(kind: Any, value: object, place: str) -> Any:
    table = _expect(value, dict, place)
    hints = get_type_hints(kind)
    names = {f.name.rstrip("_"): f for f in dataclasses.fields(kind)}
    unknown = sorted(set(table) - set(names))
    if unknown:
        raise _MismatchError(f"{place} has no field {unknown[0]!r}")
    given: dict[str, Any] = {}
    for key, field in names.items():
        if key in table:
            given[field.name] = _convert(hints[field.name], table[key], f"{place}.{key}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _MismatchError(f"{place} lacks the field {key!r}")
    return kind(**given)


def _union(kinds: tuple[Any, ...], value: object, place: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    reasons: list[str] = []
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _convert(kind, value, place)
        except _MismatchError as mismatch:
            reasons.append(str(mismatch))
    raise _MismatchError(reasons[0])


def _sequence(origin: Any, kinds: tuple[Any, ...], value: object, place: str) -> Any:
    items = _expect(value, list, place)
    if origin is tuple and (len(kinds) != 2 or kinds[1] is not Ellipsis):
        if len(items) != len(kinds):
            raise _MismatchError(f"{place} has {len(items)} entries instead of {len(kinds)}")
        return tuple(
            _convert(k, v, f"{place}[{i}]") for i, (k, v) in enumerate(zip(kinds, items, strict=True))
        )
    return origin(_convert(kinds[0], v, f"{place}[{i}]") for i, v in enumerate(items))


Wanted = TypeVar("Wanted")


def _expect(value: object, kind: type[Wanted], place: str) -> Wanted:
    if not isinstance(value, kind):
        raise _MismatchError(f"{place} is {_describe(value)}, not a {kind.__name__}")
    return value


def _float(value: object, place: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _MismatchError(f"{place} is {_describe(value)}, not a number")
    return float(value)


def _int(value: object, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _MismatchError(f"{place} is {_describe(value)}, not a whole number")
    return value


def _describe(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


_SCALARS: dict[object, Callable[[object, str], object]] = {
    float: _float,
    int: _int,
    bool: lambda value, place: _expect(value, bool, place),
    str: lambda value, place: _expect(value, str, place),
    Path: lambda value, place: Path(_expect(value, str, place)),
}
