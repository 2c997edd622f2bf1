"""Worker processes by number: is it the one that we know, and how to end it with all that it started."""

from __future__ import annotations

import contextlib
import os
import signal

import psutil

# Clocks that are set while a job runs shift the start times that the system reports.
_CLOCK_SECONDS = 5.0


def is_alive(pid: int, started: float) -> bool:
    """Whether the process of that number is the one that began then; numbers are used again."""
    try:
        found = psutil.Process(pid)
        return abs(found.create_time() - started) < _CLOCK_SECONDS and found.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def clear_group(pid: int, started: float) -> None:
    """Kill what a dead worker left running, unless its number belongs to a stranger by now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if abs(psutil.Process(pid).create_time() - started) >= _CLOCK_SECONDS:
            return
    kill_group(pid)


def terminate_group(pid: int) -> None:
    """Ask a worker and the processes that it started to end."""
    _signal_group(pid, signal.SIGTERM)


def kill_group(pid: int) -> None:
    """End a worker and the processes that it started, without asking."""
    _signal_group(pid, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
        if hasattr(os, "killpg"):
            # Workers lead a session of their own, so the group bears their number.
            os.killpg(pid, number)
        else:
            worker = psutil.Process(pid)
            for member in (*worker.children(recursive=True), worker):
                member.terminate()
