"""Read the labels of a classification set: one class index per sample."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from analyzers.errors import TaskError

_MAX_BYTES = 256 << 20
_HINT = "Give a json {name: class index}, or lines 'name,class index'"


def read_labels(path: Path) -> dict[str, int]:
    """Return sample name -> class index, from a json mapping or from lines of a name and a number.

    A first line without a number is taken for a heading.

    Raises:
        TaskError: ``file_absent`` or ``malformed_annotations``.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("it is too large")
        text = path.read_text(encoding="utf-8-sig")
        pairs = _from_json(text) if path.suffix.lower() == ".json" else _from_lines(text)
    except FileNotFoundError as cause:
        raise TaskError("file_absent", "There is no such file of labels", where=str(path)) from cause
    except (OSError, ValueError, RecursionError, csv.Error) as cause:
        raise TaskError(
            "malformed_annotations", f"The labels cannot be read: {cause}", where=str(path), hint=_HINT
        ) from cause
    labels: dict[str, int] = {}
    for name, label in pairs:
        if labels.setdefault(name, label) != label:
            raise TaskError(
                "malformed_annotations", f"'{name}' has two labels", where=str(path), hint="Keep one of them"
            )
    return labels


def _from_json(text: str) -> list[tuple[str, int]]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is no mapping")
    for name, label in value.items():
        if type(label) is not int or label < 0:
            raise ValueError(f"the label of '{name}' is no class index: {label!r}")
    return list(value.items())


def _from_lines(text: str) -> list[tuple[str, int]]:
    lines = [line for line in text.splitlines() if line.strip()]
    rows = (
        list(csv.reader(lines))
        if any("," in line for line in lines)
        else [li.rsplit(None, 1) for li in lines]
    )
    pairs = []
    for number, row in enumerate(rows, start=1):
        is_label = len(row) >= 2 and row[1].strip().isdecimal()
        if not is_label and number == 1:
            continue
        if not is_label:
            raise ValueError(f"line {number} is no name and class index: {lines[number - 1]!r}")
        pairs.append((row[0].strip(), int(row[1])))
    return pairs
