"""Every failure that a user can meet, as a small tree.

An error says what is wrong, where, and what to do next, and keeps the names as fields so that each
door (command line, workbench, ``import analyzers``) can turn it into words in one place.
Our own mistakes are ``ValueError`` or ``assert`` and nobody catches them.
"""

from __future__ import annotations


class TearlineError(Exception):
    """Base of all errors that are shown to users.

    Attributes:
        code: A stable snake_case word for scripts, for example ``external_data_missing``.
        message: What is wrong, one sentence.
        where: The file, layer or tensor it is about; may be empty.
        hint: What to do next, one sentence; may be empty.
    """

    def __init__(self, code: str, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild across process borders with all fields."""
        return (_rebuild, (type(self), self.code, self.message, self.where, self.hint))

    def __str__(self) -> str:
        parts = [self.message.rstrip(".")]
        if self.where:
            parts.append(self.where)
        if self.hint:
            parts.append(self.hint.rstrip("."))
        return ", ".join(parts)


def _rebuild(kind: type[TearlineError], code: str, message: str, where: str, hint: str) -> TearlineError:
    return kind(code, message, where=where, hint=hint)


class InputError(TearlineError):
    """The input is wrong and the user can fix it; exit code 2."""


class ModelLoadError(InputError):
    """A model file cannot be read or run."""


class PairingError(InputError):
    """Reference and candidate do not belong together."""


class SampleError(InputError):
    """A calibration or evaluation set is wrong."""


class TaskError(InputError):
    """A task file, annotation file, decoder or metric is wrong."""


class BackendError(TearlineError):
    """The runtime failed on an input that looked right; the cause is chained."""
