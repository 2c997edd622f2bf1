"""Worker processes that run models, behind the interface of ``concurrent.futures``.

``ProcessPoolExecutor`` is not used: it runs the caller's ``__main__`` again in every worker (scripts without
a guard, notebooks and the workbench cannot have that), gives up for good after one crash, and cannot stop a
running task.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from analyzers import pool_frames
from analyzers.errors import BackendError

P = ParamSpec("P")
T = TypeVar("T")

# -P keeps the current folder, which may hold anything, out of the worker's import path.
WORKER = (sys.executable, "-P", "-m", "analyzers.pool_worker")
_ATTEMPTS = 2


class WorkerPool(Executor):
    """A fixed number of worker processes, each started when it first has something to do.

    A task is a function of a module and arguments that can be sent to another process. A task whose worker
    dies is run once more in a new one. Workers end with the process that started them, however that ends.
    """

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise ValueError("a pool needs at least one worker")
        self._tasks: queue.SimpleQueue[tuple[Future[Any], pool_frames.Task] | None] = queue.SimpleQueue()
        self._is_closed = False
        self._is_killed = False
        self._slots = [_Slot() for _ in range(workers)]
        self._threads = [
            threading.Thread(target=self._serve, args=(slot,), daemon=True, name=f"worker-{index}")
            for index, slot in enumerate(self._slots)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``fn`` in a worker; see ``concurrent.futures.Executor.submit``.

        The future raises what the function raised, or a ``BackendError`` ``worker_crashed``.
        """
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        future: Future[T] = Future()
        self._tasks.put((future, (fn, args, kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers when running tasks have ended, and waiting ones too unless they are cancelled."""
        if not self._is_closed:
            self._is_closed = True
            if cancel_futures:
                self._cancel_waiting()
            for _ in self._threads:
                self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def kill(self) -> None:
        """End the workers now, whatever they are doing."""
        self._is_killed = True
        self._cancel_waiting()
        for slot in self._slots:
            slot.kill()
        self.shutdown(wait=True, cancel_futures=True)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the workers, or kill them if something went wrong."""
        if kind is None:
            self.shutdown()
        else:
            self.kill()

    def _cancel_waiting(self) -> None:
        while True:
            try:
                task = self._tasks.get_nowait()
            except queue.Empty:
                return
            if task is not None:
                task[0].cancel()

    def _serve(self, slot: _Slot) -> None:
        """Give tasks to one worker, one at a time, until there are no more."""
        while (entry := self._tasks.get()) is not None:
            future, task = entry
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self._run(slot, task))
            except BaseException as failure:  # whoever waits for the future must hear of it
                future.set_exception(failure)
        slot.end()

    def _run(self, slot: _Slot, task: pool_frames.Task) -> object:
        message = pool_frames.dumps(task)
        for _ in range(_ATTEMPTS):
            if self._is_killed:
                raise CancelledError
            reply = slot.ask(message)
            if reply is not None:
                return _unwrap(reply)
        if self._is_killed:
            raise CancelledError
        raise BackendError(
            "worker_crashed",
            f"The process that runs the models died twice on the same work ({slot.last_words})",
            hint="If memory ran out use fewer --workers; else the model crashes onnxruntime: report it there",
        )


class Inline(Executor):
    """Run everything at once in this process: for tests, and for code that is in a worker already."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run ``fn`` now and return its finished future."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as failure:
            future.set_exception(failure)
        return future


class _Slot:
    """The place of one worker process, which may be replaced when it dies."""

    def __init__(self) -> None:
        self.last_words = "it could not be started"
        self._worker: subprocess.Popen[bytes] | None = None
        self._is_killed = False
        self._lock = threading.Lock()

    def ask(self, message: bytes) -> pool_frames.Reply | None:
        """Send a task and wait for the reply; None if the worker died."""
        worker = self._started()
        if worker is None:
            return None
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            pool_frames.write(worker.stdin, message)
            reply = pool_frames.read(worker.stdout)
        except OSError:
            reply = None
        if reply is None:
            self.last_words = _describe_end(worker.wait())
            self._forget()
            return None
        return pool_frames.reply_of(reply)

    def end(self) -> None:
        """Let the worker end by closing its input."""
        worker = self._worker
        if worker is not None:
            assert worker.stdin is not None
            try:
                worker.stdin.close()
            except OSError:
                worker.kill()
            worker.wait()
            self._forget()

    def kill(self) -> None:
        """End the worker now and start no other."""
        with self._lock:
            self._is_killed = True
            if self._worker is not None:
                self._worker.kill()

    def _started(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._worker is None and not self._is_killed:
                self._worker = subprocess.Popen(
                    WORKER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_environment()
                )
            return self._worker

    def _forget(self) -> None:
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            for stream in (worker.stdin, worker.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except OSError:
                        continue


def _environment() -> dict[str, str]:
    """Return the worker's environment: this package importable, and one thread per library."""
    root = str(Path(__file__).resolve().parents[1])
    others = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, others] if others else [root]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "OPENCV_FOR_THREADS_NUM": "1",
    }


def _unwrap(reply: pool_frames.Reply) -> object:
    is_done, value = reply
    if is_done:
        return value
    assert isinstance(value, BaseException)
    if isinstance(value, MemoryError):
        raise BackendError(
            "out_of_memory",
            "There was not enough memory to run the model",
            hint="Use fewer --workers or smaller samples",
        ) from value
    raise value


def _describe_end(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
