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


def to_json(value: object, *, key: str = "") -> JsonValue:
    """Return the JSON form of a record, a container of records, or a plain value.

    ``nan`` becomes null; values under a key that ends in ``_db`` are clamped to +-200; other infinities
    become null; sets are sorted; paths become strings. A trailing underscore of a field name is dropped.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name.rstrip("_"): to_json(getattr(value, f.name), key=f.name) for f in fields}
    if isinstance(value, dict):
        return {str(k): to_json(v, key=key if key.endswith("_db") else str(k)) for k, v in value.items()}
    if isinstance(value, frozenset | set):
        return [to_json(v, key=key) for v in sorted(value)]
    if isinstance(value, list | tuple):
        return [to_json(v, key=key) for v in value]
    if isinstance(value, np.ndarray):
        return to_json(value.tolist(), key=key)
    if isinstance(value, np.generic):
        return to_json(value.item(), key=key)
    if isinstance(value, float):
        return _number(value, key)
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def _number(value: float, key: str) -> float | None:
    if math.isnan(value):
        return None
    if key.endswith("_db"):
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
