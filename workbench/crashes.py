"""Why a worker died without a word, as far as its exit code and the end of its log tell."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

from workbench.job_records import JobError

_MEMORY_SIGNS = ("bad_alloc", "MemoryError", "Cannot allocate memory")
DISK_HINT = "Free some space, or choose another folder with --workspace; finished trials are kept"
_MEMORY_HINT = "Use fewer workers or a smaller model, or give the machine more memory"


def explain_crash(code: int | None, log_tail: str, *, stage: str, log: Path) -> JobError:
    """Put a dead worker into words.

    Args:
        code: Its exit code, negative for a signal, as subprocess has it; None where another program
            started it.
        log_tail: The end of what it printed.
        stage: What it was doing; "" if it had not begun.
        log: Where all that it printed is.
    """
    doing = f" during '{stage}'" if stage else " before it began"
    if any(sign in log_tail for sign in _MEMORY_SIGNS):
        return JobError(
            "out_of_memory", f"The worker ran out of memory{doing}", where=str(log), hint=_MEMORY_HINT
        )
    if os.strerror(errno.ENOSPC) in log_tail:
        return JobError("disk_full", f"The disk became full{doing}", where=str(log), hint=DISK_HINT)
    if code is not None and -code == getattr(signal, "SIGKILL", None):
        return JobError(
            "worker_crashed",
            f"The worker was killed from outside{doing}, most likely because the machine ran out of memory",
            where=str(log),
            hint=_MEMORY_HINT,
        )
    if code is not None and code < 0:
        return JobError(
            "worker_crashed",
            f"The model made the worker crash{doing} ({_signal_name(-code)})",
            where=str(log),
            hint="Simplify the model or export it again; the log names the place",
        )
    how = "" if code is None else f" (exit code {code})"
    return JobError(
        "worker_crashed",
        f"The worker ended without a result{doing}{how}{_last_line(log_tail)}",
        where=str(log),
        hint="Start it again; finished trials are kept",
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_line(log_tail: str) -> str:
    lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""
