"""Read the files of a run folder; see ``docs/architecture.md`` for who writes them."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import psutil

from analyzers.deserialize import from_json, read_record
from analyzers.errors import InputError
from workbench.job_records import Claim, Job, JobError, JobStatus
from workbench.store import read_json

_LOG_BYTES = 4000


def read_status(run: Path) -> JobStatus:
    """Return what the worker wrote last; a status that cannot be read is a crash.

    Raises:
        KeyError: The job was deleted meanwhile.
    """
    try:
        return read_record(JobStatus, run / "status.json")
    except InputError as cause:
        if not (run / "job.json").exists():
            raise KeyError(run.name) from cause
        error = JobError("internal_error", "The job's status cannot be read", where=cause.where)
        return JobStatus(run.name, "", 0.0, state="crashed", error=error)


def is_abandoned(run: Path) -> bool:
    """Whether nobody is left to start this job: it ends with a program that is gone, or is damaged."""
    try:
        parent = read_record(Job, run / "job.json").parent
    except InputError:
        return True
    return parent is not None and not psutil.pid_exists(parent)


def read_claim(run: Path) -> Claim | None:
    """Return which process works on the job; None before one does."""
    value = read_json(run / "worker.json")
    return None if value is None else from_json(Claim, value)


def refresh(status: JobStatus, claim: Claim) -> JobStatus:
    """Let the clock of a running job go on between two writes of its worker."""
    now = time.time()
    eta = status.eta_seconds
    return replace(
        status,
        state="running",
        seconds=max(status.seconds, now - claim.started),
        eta_seconds=None if eta is None else max(0.0, eta - (now - status.updated)),
    )


def log_tail(run: Path) -> str:
    """Return the end of what the worker printed."""
    try:
        with (run / "log.txt").open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
