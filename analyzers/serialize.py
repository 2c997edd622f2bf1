"""Records to JSON values and files; the only place where undefined numbers become null."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import TypeAlias

import numpy as np

from analyzers.errors import InputError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
DB_LIMIT = 200.0
# What is in the unit of the score, in records that say which that is, and in all that they hold.
_SCORES = frozenset({"value", "details", "target", "gap", "before", "after", "drop", "drop_low", "drop_high"})
_DB_METRICS = frozenset({"sqnr", "slice-sqnr"})


def to_json(value: object, *, key: str = "", is_scored_in_db: bool = False) -> JsonValue:
    """Return the JSON form of a record, a container of records, or a plain value.

    ``nan`` becomes null; decibels are clamped to +-200; other infinities become null; sets are sorted; paths
    become strings. A trailing underscore of a field name is dropped.

    Args:
        value: What is turned into JSON.
        key: The name it has; those that end in ``_db`` are decibels.
        is_scored_in_db: It is part of a record whose scores are decibels: scores in it are, too.
    """
    in_db = is_scored_in_db or _is_scored_in_db(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {
            f.name.rstrip("_"): to_json(getattr(value, f.name), key=f.name, is_scored_in_db=in_db)
            for f in fields
        }
    if isinstance(value, dict):
        is_db = _is_db(key, in_db)
        return {
            str(k): to_json(v, key=key if is_db else str(k), is_scored_in_db=in_db) for k, v in value.items()
        }
    if isinstance(value, frozenset | set):
        return [to_json(v, key=key, is_scored_in_db=in_db) for v in sorted(value)]
    if isinstance(value, list | tuple):
        return [to_json(v, key=key, is_scored_in_db=in_db) for v in value]
    if isinstance(value, np.ndarray):
        return to_json(value.tolist(), key=key, is_scored_in_db=in_db)
    if isinstance(value, np.generic):
        return to_json(value.item(), key=key, is_scored_in_db=in_db)
    if isinstance(value, float):
        return _number(value, is_db=_is_db(key, in_db))
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def _is_scored_in_db(record: object) -> bool:
    return getattr(record, "unit", "") == "dB" or getattr(record, "metric", "") in _DB_METRICS


def _is_db(key: str, is_scored_in_db: bool) -> bool:
    if key.endswith("_db"):
        return True
    return is_scored_in_db and (key in _SCORES or key == "score" or key.endswith("_score"))


def _number(value: float, *, is_db: bool) -> float | None:
    if math.isnan(value):
        return None
    if is_db:
        return max(-DB_LIMIT, min(DB_LIMIT, value))
    return None if math.isinf(value) else value


def write_json(value: object, path: Path) -> None:
    """Write a record as JSON, atomically: the file is whole or absent.

    Raises:
        InputError: The path cannot be written.
    """
    text = json.dumps(to_json(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as cause:
        partial.unlink(missing_ok=True) if partial.parent.is_dir() else None
        raise InputError(
            "output_not_writable",
            f"Cannot write the result: {cause.strerror}",
            where=str(path),
            hint="Choose a folder that exists and that you may write to",
        ) from cause
