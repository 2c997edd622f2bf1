"""Decoders and metrics of the user's own, named as ``file.py:function`` in a task file.

Running them is running the user's program: only the command line and ``import analyzers`` allow it, never
a task file that was uploaded.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from analyzers.errors import TaskError
from analyzers.hashing import file_digest


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function in a Python file, loaded where it is needed.

    Attributes:
        path: The file.
        name: The function.
        digest: Content hash of the file.
    """

    path: Path
    name: str
    digest: str

    def load(self) -> Callable[..., object]:
        """Return the function; the file is run once per process.

        Raises:
            TaskError: ``user_code_failed``.
        """
        return _load(self.path, self.name, self.digest)


def is_user_code(value: object) -> bool:
    """Tell whether a task file's value names a function of the user's own."""
    return isinstance(value, str) and ".py:" in value


def read_user_function(value: str, folder: Path, *, allow_code: bool) -> UserFunction:
    """Return the function that ``file.py:function`` names, relative to a folder.

    Raises:
        TaskError: ``code_not_allowed``, ``file_absent`` or ``user_code_failed``.
    """
    file, _, name = value.rpartition(":")
    if not allow_code:
        raise TaskError(
            "code_not_allowed",
            f"The task file names code of its own ('{value}'), which is not run here",
            hint="Use the command line or 'import analyzers', or one of the built-in decoders and metrics",
        )
    path = (folder / file).resolve()
    if not path.is_file():
        raise TaskError(
            "file_absent", f"The task file names '{value}', and there is no such file", where=str(path)
        )
    function = UserFunction(path, name, file_digest(path))
    function.load()
    return function


@lru_cache(maxsize=32)
def _load(path: Path, name: str, digest: str) -> Callable[..., object]:
    spec = importlib.util.spec_from_file_location(f"tearline_user_{digest[:12]}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as cause:
        raise TaskError(
            "user_code_failed",
            f"The file cannot be run: {type(cause).__name__}: {cause}",
            where=str(path),
            hint="Correct the file",
        ) from cause
    function = getattr(module, name, None)
    if not callable(function):
        raise TaskError(
            "user_code_failed",
            f"The file has no function '{name}'",
            where=str(path),
            hint="Correct the task file",
        )
    found: Callable[..., object] = function
    return found
