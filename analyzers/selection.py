"""Which samples of a set are used: a number, a step, or a list of names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from analyzers.errors import SampleError

_EVERY = re.compile(r"(\d*)::(\d+)")
# A folder in front or a suffix behind: nobody writes a number so.
_PATH = re.compile(r"[/\\]|\.[A-Za-z]\w*$")
_MAX_LIST_BYTES = 64 << 20
_FORMS = "Use N for the first N, START::STEP, or a text file with one sample name per line"


def select_names(names: Sequence[str], selection: str | None) -> list[int]:
    """Return the indices of the chosen names.

    Args:
        names: All names, in order.
        selection: "N", "START::STEP", a file with one name per line, or None for all.

    Raises:
        SampleError: ``bad_selection``, or ``file_absent`` where a file was meant that is not there.
    """
    indices = range(len(names))
    if selection is None:
        return list(indices)
    counted = _counted(selection)
    if counted is not None:
        return list(indices[counted])
    wanted = _read_list(selection)
    known = set(names)
    for name in sorted(wanted):
        if name not in known:
            near = difflib.get_close_matches(name, names, n=1)
            raise SampleError(
                "bad_selection",
                f"The list names '{name}', which is not in the set",
                where=selection,
                hint=f"Did you mean '{near[0]}'?"
                if near
                else "Use the file names as they stand in the folder",
            )
    return [i for i in indices if names[i] in wanted]


def names_a_file(selection: str) -> bool:
    """Tell whether a selection is meant as the path of a list, whether that is there or not."""
    if _counted(selection) is not None:
        return False
    return _PATH.search(selection) is not None or _exists(Path(selection))


def _counted(selection: str) -> slice | None:
    """Return what a number or a step means; None where it is neither."""
    text = selection.strip()
    if text.isdecimal():
        return slice(int(text))
    every = _EVERY.fullmatch(text)
    if every and int(every[2]) > 0:
        return slice(int(every[1] or 0), None, int(every[2]))
    return None


def _read_list(selection: str) -> frozenset[str]:
    path = Path(selection)
    if not _exists(path):
        if names_a_file(selection):
            raise SampleError(
                "file_absent",
                "There is no such list of samples",
                where=selection,
                hint=f"Check the path. {_FORMS}",
            )
        raise SampleError("bad_selection", f"'{selection}' selects no samples", hint=_FORMS)
    try:
        if path.stat().st_size > _MAX_LIST_BYTES:
            raise ValueError("it is too long")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as cause:
        raise SampleError(
            "bad_selection", f"The list cannot be read: {cause}", where=selection, hint=_FORMS
        ) from cause
    return frozenset(line.strip() for line in lines if line.strip() and not line.startswith("#"))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long a name, for example
        return False
