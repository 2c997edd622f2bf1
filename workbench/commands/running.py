"""Run a command's work as a job: the same worker, the same files as from a page."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from analyzers.errors import TearlineError
from workbench.commands.options import RunOptions
from workbench.commands.outputs import write_output
from workbench.commands.progress import progress
from workbench.commands.words import say

if TYPE_CHECKING:
    from workbench.job_records import JobStatus
    from workbench.jobs import Jobs

_POLL_SECONDS = 0.1
Answer = TypeVar("Answer")


class StoppedError(Exception):
    """The user, or the system, asked the command to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def run_job(
    kind: str,
    request: object,
    read: Callable[[Path], Answer],
    options: RunOptions,
    *,
    worker: tuple[str, ...] | None = None,
) -> Answer:
    """Do a request in a worker, show progress, write ``--json`` and return the answer.

    Args:
        kind: See ``workbench.kinds``.
        request: The request record of that kind.
        read: Reads the answer from the job's result file.
        options: How to run it.
        worker: How a worker is called; None for our own.

    Raises:
        TearlineError: The job failed or its worker crashed.
        StoppedError: A signal came; the job is cancelled.
    """
    from analyzers.serialize import to_json
    from workbench.jobs import WORKER, Jobs

    with Jobs(options.workspace, max_parallel=0, command=worker or WORKER) as jobs, _stoppable():
        job_id = jobs.submit(kind, to_json(request), memory_bytes=options.memory_bytes, parent=os.getpid())
        try:
            jobs.start(job_id)
            status = _follow(jobs, job_id)
        except StoppedError:
            jobs.cancel(job_id)
            say("cancelled; what was finished is kept")
            raise
        if status.error is not None:
            error = status.error
            raise TearlineError(error.code, error.message, where=error.where, hint=error.hint)
        if status.state != "done":
            raise TearlineError("cancelled", "The job was cancelled from elsewhere")
        result = jobs.result_path(job_id)
        if options.json is not None:
            write_output(options.json, result.read_bytes())
        return read(result)


def _follow(jobs: Jobs, job_id: str) -> JobStatus:
    offset = 0
    with progress() as show:
        while True:
            # The status first: a job that has ended writes no more events.
            status = jobs.status(job_id)
            events, offset = jobs.events(job_id, offset)
            show(status, events)
            if not status.is_live:
                return status
            time.sleep(_POLL_SECONDS)


@contextmanager
def _stoppable() -> Iterator[None]:
    known = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # What the shell had us ignore (nohup) stays ignored.
    numbers = [number for number in known if signal.getsignal(number) is not signal.SIG_IGN]

    def stop(number: int, _: FrameType | None) -> None:
        # Once: impatience must not interrupt the cancelling.
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise StoppedError(number)

    previous = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)
