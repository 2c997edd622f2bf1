"""Files that a command writes: tried before anything long runs, whole or absent afterwards."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from analyzers.errors import InputError


def check_writable(path: Path) -> None:
    """Make sure that a file can be written later, without touching it.

    Raises:
        InputError: The folder is absent or may not be written, or the path is a folder.
    """
    if path.is_dir():
        raise _not_writable(path, "it is a folder")
    if _is_special(path):
        return
    probe = path.with_name(f".{path.name}.{secrets.token_hex(4)}.probe")
    try:
        probe.touch()
        probe.unlink()
    except OSError as cause:
        raise _not_writable(path, str(cause.strerror)) from cause


def write_output(path: Path, data: bytes) -> None:
    """Write a file atomically; devices and pipes are written as they are.

    Raises:
        InputError: It cannot be written.
    """
    target = path if _is_special(path) else path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        target.write_bytes(data)
        if target is not path:
            target.replace(path)
    except OSError as cause:
        if target is not path:
            target.unlink(missing_ok=True)
        raise _not_writable(path, str(cause.strerror)) from cause


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _not_writable(path: Path, reason: str) -> InputError:
    return InputError(
        "output_not_writable",
        f"Cannot write the file: {reason}",
        where=str(path),
        hint="Choose a folder that exists and that you may write to",
    )
