"""Work that outlives a page: a queue of jobs, one worker process each, all state in the workspace.

The run folders are the only truth, so a page reload, a restart of the app or a second program on the same
workspace finds every job as it is. Nothing here runs a model.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Set
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import psutil

from analyzers.deserialize import from_json, read_record
from analyzers.errors import InputError
from analyzers.serialize import JsonValue, to_json
from workbench.crashes import explain_crash
from workbench.job_records import Claim, Event, Job, JobError, JobState, JobStatus
from workbench.processes import clear_group, is_alive, kill_group, terminate_group
from workbench.run_files import is_abandoned, log_tail, read_claim, read_status, refresh
from workbench.store import Workspace, new_run, open_workspace, read_json, run_folder, write_text

__all__ = ["Event", "JobError", "JobState", "JobStatus", "Jobs"]

# -P keeps the run folder, which is the current folder of a worker, out of its import path.
WORKER = (sys.executable, "-P", "-m", "workbench.worker")
_PUMP_SECONDS = 0.2
_GRACE_SECONDS = 0.7


class Jobs:
    """The jobs of a workspace; holds the worker processes that it started and the thread that starts them."""

    def __init__(
        self,
        workspace: Path,
        max_parallel: int = 1,
        *,
        command: tuple[str, ...] = WORKER,
        grace: float = _GRACE_SECONDS,
    ) -> None:
        """Open the jobs of a workspace.

        Args:
            workspace: The workspace folder; made if absent.
            max_parallel: Queued jobs that may run at once; 0 leaves queued jobs to others (see ``start``).
            command: How a worker is called; the run folder is appended.
            grace: Seconds that a cancelled worker has before it is killed.

        Raises:
            InputError: The workspace cannot be written.
        """
        self.workspace: Workspace = open_workspace(workspace)
        self._command = command
        self._grace = grace
        self._max_parallel = max_parallel
        self._ended: set[str] = set()
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()
        if max_parallel > 0:
            threading.Thread(target=self._pump, daemon=True, name="job-pump").start()

    def close(self) -> None:
        """Start no more jobs; running ones go on."""
        self._closed.set()
        for job_id, worker in tuple(self._workers.items()):
            if not self.status(job_id).is_live:
                worker.wait()
                self._note_end(job_id)

    def __enter__(self) -> Jobs:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def submit(
        self, kind: str, params: JsonValue, *, memory_bytes: int | None = None, parent: int | None = None
    ) -> str:
        """Queue a job and return its id, 32 hex digits.

        Args:
            kind: Which work, see ``workbench.kinds``.
            params: JSON form of the request; paths in it are absolute.
            memory_bytes: Most memory that one worker process may allocate.
            parent: End the job when this process ends; None to let it outlive the program.

        Raises:
            InputError: The workspace cannot be written, for example because the disk is full.
        """
        job = Job(kind, params, time.time(), memory_bytes, parent)
        run = None
        try:
            run = new_run(self.workspace)
            status = JobStatus(run.name, kind, job.created, updated=job.created)
            write_text(run / "status.json", json.dumps(to_json(status)))
            write_text(run / "job.json", json.dumps(to_json(job)))
        except OSError as cause:
            if run is not None:
                shutil.rmtree(run, ignore_errors=True)
            raise InputError(
                "workspace_not_writable",
                f"Cannot write the job: {cause.strerror}",
                where=str(self.workspace.root),
                hint="Free some space, or choose another folder with --workspace",
            ) from cause
        return run.name

    def start(self, job_id: str) -> None:
        """Start a queued job now, whatever else runs."""
        run = run_folder(self.workspace, job_id)
        environment = {
            **os.environ,
            # Sums in one thread have one order, so results do not depend on the machine.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "TMPDIR": str(run / "tmp"),
        }
        with self._lock, (run / "log.txt").open("ab") as log:
            if job_id in self._workers:
                return
            self._workers[job_id] = subprocess.Popen(
                [*self._command, str(run)],
                cwd=run,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def status(self, job_id: str) -> JobStatus:
        """Return a job's state; a job whose worker is gone says why.

        Raises:
            KeyError: There is no such job.
        """
        run = run_folder(self.workspace, job_id)
        with self._lock:
            status = read_status(run)
            if status.is_live:
                claim = read_claim(run)
                if claim is None and self._is_waiting(run):
                    return status
                if claim is not None and self._is_running(job_id, claim):
                    return refresh(status, claim)
                # The worker is gone; its last words may have been written since the first look.
                status = read_status(run)
                if status.is_live:
                    status = self._settle(run, status, claim)
            self._note_end(job_id)
            return status

    def events(self, job_id: str, since: int = 0) -> tuple[tuple[Event, ...], int]:
        """Return the events after a byte offset, and the offset to ask from next time.

        Raises:
            KeyError: There is no such job.
        """
        path = run_folder(self.workspace, job_id) / "events.jsonl"
        try:
            with path.open("rb") as file:
                file.seek(max(0, since))
                data = file.read()
        except FileNotFoundError:
            return (), since
        whole = data[: data.rfind(b"\n") + 1]
        events = tuple(from_json(Event, json.loads(line)) for line in whole.splitlines())
        return events, since + len(whole)

    def result(self, job_id: str) -> JsonValue:
        """Return the result's JSON value; None unless the job is done.

        Raises:
            KeyError: There is no such job.
        """
        return read_json(self.result_path(job_id))

    def result_path(self, job_id: str) -> Path:
        """Return where a done job's result is.

        Raises:
            KeyError: There is no such job.
        """
        return run_folder(self.workspace, job_id) / "result.json"

    def log(self, job_id: str) -> str:
        """Return the end of what a job's worker printed.

        Raises:
            KeyError: There is no such job.
        """
        return log_tail(run_folder(self.workspace, job_id))

    def job(self, job_id: str) -> Job:
        """Return what was asked for.

        Raises:
            KeyError: There is no such job.
        """
        return read_record(Job, run_folder(self.workspace, job_id) / "job.json")

    def cancel(self, job_id: str) -> JobStatus:
        """Stop a job; returns when it has ended, within a second.

        Raises:
            KeyError: There is no such job.
        """
        run = run_folder(self.workspace, job_id)
        status = self.status(job_id)
        if not status.is_live:
            return status
        (run / "cancel").touch()
        terminated: int | None = None
        deadline = time.monotonic() + self._grace
        while time.monotonic() < deadline:
            is_live = self.status(job_id).is_live
            pid = self._living_worker(job_id, run)
            if pid is None and not is_live:
                break
            if pid is not None and pid != terminated:
                terminate_group(pid)
                terminated = pid
            time.sleep(0.02)
        self._kill(job_id, run)
        return self.status(job_id)

    def list(self) -> tuple[JobStatus, ...]:
        """Return all jobs, newest first."""
        return self._statuses(frozenset())

    def _statuses(self, skipped: Set[str]) -> tuple[JobStatus, ...]:
        found: dict[str, JobStatus] = {}
        for run in self.workspace.runs.iterdir():
            if run.name not in skipped:
                with contextlib.suppress(KeyError):
                    found[run.name] = self.status(run.name)
        return tuple(sorted(found.values(), key=lambda s: (-s.created, s.id)))

    def _pump(self) -> None:
        while not self._closed.wait(_PUMP_SECONDS):
            with contextlib.suppress(OSError, KeyError, InputError):
                self._start_next()

    def _start_next(self) -> None:
        # Jobs with a parent belong to a command that runs them itself.
        jobs = [s for s in self._statuses(self._ended) if s.is_live and self.job(s.id).parent is None]
        started = [s for s in jobs if s.state == "running" or s.id in self._workers]
        waiting = [s for s in reversed(jobs) if s not in started]
        for status in waiting[: max(0, self._max_parallel - len(started))]:
            self.start(status.id)

    def _is_waiting(self, run: Path) -> bool:
        worker = self._workers.get(run.name)
        if worker is not None:
            return worker.poll() is None
        return not (run / "cancel").exists() and not is_abandoned(run)

    def _is_running(self, job_id: str, claim: Claim) -> bool:
        worker = self._workers.get(job_id)
        if worker is not None and worker.pid == claim.pid:
            return worker.poll() is None
        return is_alive(claim.pid, claim.started)

    def _living_worker(self, job_id: str, run: Path) -> int | None:
        claim = read_claim(run)
        if claim is not None:
            return claim.pid if self._is_running(job_id, claim) else None
        worker = self._workers.get(job_id)
        return worker.pid if worker is not None and worker.poll() is None else None

    def _kill(self, job_id: str, run: Path) -> None:
        """End what is left of a worker, also processes that outlived it, and wait for it."""
        claim, pid = read_claim(run), self._living_worker(job_id, run)
        if claim is not None:
            clear_group(claim.pid, claim.started)
        elif pid is not None:
            kill_group(pid)
        if pid is not None:
            with contextlib.suppress(psutil.Error):
                psutil.Process(pid).wait(timeout=5)
        shutil.rmtree(run / "tmp", ignore_errors=True)

    def _settle(self, run: Path, status: JobStatus, claim: Claim | None) -> JobStatus:
        """Write the end state of a job whose worker is gone, and clear what it left behind."""
        if claim is not None:
            clear_group(claim.pid, claim.started)
        if (run / "cancel").exists() or (claim is None and is_abandoned(run)):
            status = replace(status, state="cancelled", eta_seconds=None)
        else:
            code = self._exit_code(run.name, claim)
            error = explain_crash(code, log_tail(run), stage=status.stage, log=run / "log.txt")
            status = replace(status, state="crashed", error=error, eta_seconds=None)
        (run / "reserve").unlink(missing_ok=True)
        shutil.rmtree(run / "tmp", ignore_errors=True)
        with contextlib.suppress(OSError):
            write_text(run / "status.json", json.dumps(to_json(status)))
        return status

    def _exit_code(self, job_id: str, claim: Claim | None) -> int | None:
        worker = self._workers.get(job_id)
        if worker is None or (claim is not None and worker.pid != claim.pid):
            return None
        return worker.poll()

    def _note_end(self, job_id: str) -> None:
        self._ended.add(job_id)
        # A worker ends a moment after its last words; until it is waited for it remains a zombie.
        for ended, worker in tuple(self._workers.items()):
            if ended in self._ended and worker.poll() is not None:
                del self._workers[ended]
