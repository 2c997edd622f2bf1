"""Name maps: which tensors belong together, as the user says where names and structure cannot tell."""

from __future__ import annotations

import json
from pathlib import Path

from analyzers.errors import InputError

_MOST_BYTES = 16 << 20


def read_name_map(path: Path) -> dict[str, str]:
    """Read a JSON object that maps tensors of the reference to tensors of the candidate.

    Raises:
        InputError: The file is absent or holds something else.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _malformed(path, "it is larger than 16 MiB")
        value = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except OSError as cause:
        raise InputError(
            "file_absent",
            f"Cannot read the name map: {cause.strerror}",
            where=str(path),
            hint="Check the path",
        ) from cause
    except (ValueError, RecursionError) as cause:
        raise _malformed(path, str(cause).splitlines()[0][:200] if str(cause) else "it is no JSON") from cause
    if not isinstance(value, dict) or not value:
        raise _malformed(path, "it is no JSON object with names in it")
    if not all(isinstance(name, str) for name in value.values()):
        raise _malformed(path, "a value is no name")
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse a name that is mapped twice, of which JSON would silently keep the last."""
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise ValueError(f"'{twice}' is mapped twice")
    return found


def _malformed(path: Path, why: str) -> InputError:
    return InputError(
        "bad_name_map",
        f"The name map cannot be used: {why}",
        where=str(path),
        hint='Write a JSON object: {"tensor of the reference": "tensor of the candidate"}',
    )
