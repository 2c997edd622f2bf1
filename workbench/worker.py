"""The process in which models run: ``python -m workbench.worker RUN_DIR``.

One worker does one job and ends. Whatever a model does to it - a crash, a runaway allocation, an endless
loop - the program that started it only sees a job that failed. Everything it has to say goes into the run
folder; ``workbench.jobs`` reads it there.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import json
import os
import shutil
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psutil

from analyzers.deserialize import read_record
from analyzers.errors import TearlineError
from analyzers.serialize import to_json, write_json
from analyzers.steps import Step, Steps, finish
from workbench.crashes import DISK_HINT
from workbench.job_records import Claim, Event, Job, JobError, JobState, JobStatus
from workbench.store import write_text

Kinds = Mapping[str, Callable[[object], Steps[object]]]

# Deleted to make room for the last status when the disk is full.
_RESERVE_BYTES = 64 * 1024
_STATUS_SECONDS = 0.25
_PARENT_SECONDS = 0.2


class Cancelled(BaseException):
    """Raised in the main thread by SIGTERM; no ``except Exception`` on the way may swallow it."""


def run_job(run: Path, kinds: Kinds) -> None:
    """Do the job of a run folder and leave its end state there.

    Args:
        run: The folder with ``job.json``.
        kinds: What can be done, by name: request in JSON form -> steps that return a record.
    """
    claim = _claim(run)
    if claim is None:
        return
    job = read_record(Job, run / "job.json")
    journal = Journal(run, JobStatus(run.name, job.kind, job.created), started=claim.started)
    try:
        with _cancellable(job.parent):
            if (run / "cancel").exists():
                raise Cancelled
            _prepare(run, job)
            journal.begin()
            result = finish(_steps(job, kinds), journal.step)
            write_json(result, run / "result.json")
            journal.end("done")
    except Cancelled:
        journal.end("cancelled")
    except Exception as failure:
        # First the status: on a full disk the log has no room left.
        journal.end("failed", describe_failure(failure, run))
        with contextlib.suppress(OSError):
            traceback.print_exception(failure)
    finally:
        shutil.rmtree(run / "tmp", ignore_errors=True)


class Journal:
    """Writes what happens into the run folder: holds the open event file and the last status."""

    def __init__(self, run: Path, status: JobStatus, *, started: float) -> None:
        self._run = run
        self._status = status
        self._started = started
        self._stage_started = started
        self._reserve = run / "reserve"
        self._written = 0.0

    def begin(self) -> None:
        """Say that the job runs, and keep some room on the disk for its last words."""
        self._reserve.write_bytes(b"\0" * _RESERVE_BYTES)
        self._status = replace(self._status, state="running")
        self._write()

    def step(self, step: Step) -> None:
        """Note a step; those that bring a record are all kept, of the others as many as anyone can read."""
        now = time.time()
        is_new_stage = step.stage != self._status.stage
        if is_new_stage:
            self._stage_started = now
        self._status = replace(
            self._status,
            stage=step.stage,
            done=step.done,
            total=step.total,
            text=step.text,
            eta_seconds=estimate_remaining(now - self._stage_started, step.done, step.total),
        )
        is_due = is_new_stage or now - self._written >= _STATUS_SECONDS
        if step.record is not None or (step.text and is_due):
            self._append(step, now)
        if is_due:
            self._write()

    def end(self, state: JobState, error: JobError | None = None) -> None:
        """Write the end state, even on a full disk."""
        self._reserve.unlink(missing_ok=True)
        self._status = replace(self._status, state=state, error=error, eta_seconds=None)
        self._write()

    def _append(self, step: Step, now: float) -> None:
        record_type = "" if step.record is None else type(step.record).__name__
        event = Event(
            now - self._started,
            step.stage,
            step.done,
            step.total,
            step.text,
            record_type,
            to_json(step.record),
        )
        with (self._run / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(to_json(event), ensure_ascii=False) + "\n")

    def _write(self) -> None:
        now = time.time()
        self._status = replace(self._status, seconds=now - self._started, updated=now)
        write_text(self._run / "status.json", json.dumps(to_json(self._status)))
        self._written = now


def estimate_remaining(seconds: float, done: int, total: int) -> float | None:
    """Return the seconds that the rest of a stage takes at the pace so far; None while it is unknown."""
    if done <= 0 or total <= 0 or seconds <= 0:
        return None
    return seconds / done * max(0, total - done)


def describe_failure(failure: Exception, run: Path) -> JobError:
    """Turn an exception into words; conditions of the machine go before what they caused."""
    causes = list(_causes(failure))
    if any(_is_disk_full(c) for c in causes):
        return JobError("disk_full", "The disk is full", where=str(run), hint=DISK_HINT)
    if any(_is_out_of_memory(c) for c in causes):
        return JobError(
            "out_of_memory",
            "The job ran out of memory",
            hint="Use fewer workers or a smaller model, or allow more with --memory",
        )
    if isinstance(failure, TearlineError):
        return JobError(failure.code, failure.message, failure.where, failure.hint)
    return JobError(
        "internal_error",
        f"Tearline made a mistake: {type(failure).__name__}: {failure}",
        where=str(run / "log.txt"),
        hint="Please report it with that file",
    )


def _steps(job: Job, kinds: Kinds) -> Steps[object]:
    if job.kind not in kinds:
        raise ValueError(f"unknown kind of job: {job.kind!r}")
    return kinds[job.kind](job.params)


def _claim(run: Path) -> Claim | None:
    """Take the job; None if another worker has it, so that two programs may serve one queue."""
    claim = Claim(os.getpid(), psutil.Process().create_time())
    partial = run / f".claim.{os.getpid()}"
    partial.write_text(json.dumps(to_json(claim)), encoding="utf-8")
    try:
        # A link appears whole and at most once.
        (run / "worker.json").hardlink_to(partial)
    except FileExistsError:
        return None
    finally:
        partial.unlink()
    return claim


def _prepare(run: Path, job: Job) -> None:
    (run / "tmp").mkdir(exist_ok=True)
    with contextlib.suppress(OSError):
        # If the machine runs out of memory, this process is to go, not the app or the user's browser.
        Path("/proc/self/oom_score_adj").write_text("500", encoding="ascii")
    limit_memory(job.memory_bytes or psutil.virtual_memory().total)


def limit_memory(limit_bytes: int) -> None:
    """Let allocations beyond ``limit_bytes`` fail in this process, where the system can do that."""
    if sys.platform == "win32":
        return
    import resource

    # RLIMIT_DATA leaves out files that are mapped to be read, so models larger than the limit can be opened.
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    _, hard = resource.getrlimit(kind)
    soft = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (soft, hard))


@contextlib.contextmanager
def _cancellable(parent: int | None) -> Iterator[None]:
    def cancel(*_: object) -> None:
        # Once: a second signal must not interrupt the cleaning up.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Cancelled

    previous = signal.signal(signal.SIGTERM, cancel)
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True, name="parent-watch").start()
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous if previous is not None else signal.SIG_DFL)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(2.0)
    # Still here: stuck in native code. Its own group holds this process and those it started.
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def _causes(failure: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while failure is not None and id(failure) not in seen:
        seen.add(id(failure))
        yield failure
        failure = failure.__cause__ or failure.__context__


def _is_disk_full(failure: BaseException) -> bool:
    if isinstance(failure, OSError):
        return failure.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(failure, sqlite3.Error):
        return getattr(failure, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return os.strerror(errno.ENOSPC) in str(failure)


def _is_out_of_memory(failure: BaseException) -> bool:
    if isinstance(failure, MemoryError):
        return True
    text = str(failure)
    return any(sign in text for sign in ("bad_alloc", "bad allocation", "Failed to allocate memory"))


def main() -> None:
    """Do the job of the run folder given as the only argument."""
    faulthandler.enable()
    from workbench.kinds import KINDS

    run_job(Path(sys.argv[1]), KINDS)


if __name__ == "__main__":
    main()
