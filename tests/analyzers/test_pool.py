from __future__ import annotations

import json
import math
import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError

import psutil
import pytest

from analyzers.errors import BackendError, SampleError
from analyzers.pool import Inline, WorkerPool


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool(2)
    yield made
    made.kill()


def test_results_come_from_other_processes_and_in_the_order_asked_for(pool: WorkerPool) -> None:
    assert list(pool.map(math.factorial, range(8))) == [math.factorial(i) for i in range(8)]
    pids = {pool.submit(os.getpid).result() for _ in range(4)}
    assert os.getpid() not in pids
    assert len(pids) <= 2


def test_what_a_task_raises_is_raised_here(pool: WorkerPool) -> None:
    with pytest.raises(ZeroDivisionError):
        pool.submit(operator.truediv, 1, 0).result()
    with pytest.raises(json.JSONDecodeError):
        pool.submit(json.loads, "{").result()
    assert pool.submit(math.sqrt, 4.0).result() == 2.0


def test_a_worker_that_keeps_dying_is_a_backend_error_and_the_pool_goes_on(pool: WorkerPool) -> None:
    with pytest.raises(BackendError) as caught:
        pool.submit(os._exit, 3).result()
    assert caught.value.code == "worker_crashed"
    assert "exit code 3" in caught.value.message
    with pytest.raises(BackendError) as caught:
        pool.submit(os.abort).result()
    assert "SIGABRT" in caught.value.message
    assert pool.submit(math.sqrt, 9.0).result() == 3.0


def test_work_whose_worker_is_killed_once_is_done_by_another() -> None:
    with WorkerPool(1) as pool:
        first = pool.submit(os.getpid).result()
        future = pool.submit(time.sleep, 1.0)
        time.sleep(0.2)
        os.kill(first, signal.SIGKILL)
        assert future.result() is None
        assert pool.submit(os.getpid).result() != first


def test_printing_does_not_get_between_the_replies(pool: WorkerPool) -> None:
    assert pool.submit(print, "hello").result() is None
    assert pool.submit(os.write, 1, b"bytes\n").result() == 6


def test_large_arrays_pass_in_both_directions(pool: WorkerPool) -> None:
    data = os.urandom(5_000_000)
    assert pool.submit(bytes.upper, data).result() == data.upper()


def test_killing_ends_a_running_task_at_once() -> None:
    pool = WorkerPool(2)
    pids = {pool.submit(os.getpid).result()}
    running = [pool.submit(time.sleep, 60.0) for _ in range(2)]
    waiting = pool.submit(time.sleep, 60.0)
    time.sleep(0.3)
    started = time.monotonic()
    pool.kill()
    assert time.monotonic() - started < 2.0
    for future in running:
        with pytest.raises((CancelledError, BackendError)):
            future.result()
    assert waiting.cancelled()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_an_error_inside_a_with_block_does_not_wait_for_running_work() -> None:
    started = time.monotonic()

    def fail_while_working() -> None:
        with WorkerPool(1) as pool:
            pool.submit(time.sleep, 60.0)
            time.sleep(0.2)
            raise SampleError("zero_samples", "nothing")

    with pytest.raises(SampleError):
        fail_while_working()
    assert time.monotonic() - started < 5.0


_PARENT = """
import os, sys, time
from analyzers.pool import WorkerPool
pool = WorkerPool(2)
futures = [pool.submit(os.getpid) for _ in range(2)]
pids = {f.result() for f in futures}
for _ in range(2):
    pool.submit(time.sleep, 120.0)
time.sleep(0.5)
print(*pids, flush=True)
time.sleep(120)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_workers_ignore_an_interrupt_and_die_with_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    time.sleep(0.2)
    assert all(psutil.pid_exists(pid) for pid in pids)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], timeout=5)
    assert alive == []


def test_a_script_without_a_main_guard_can_use_a_pool() -> None:
    script = (
        "import math\n"
        "from analyzers.pool import WorkerPool\n"
        "print(WorkerPool(1).submit(math.sqrt, 16).result())\n"
    )
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "4.0", done.stderr


def test_inline_work_behaves_alike() -> None:
    inline = Inline()
    assert list(inline.map(math.sqrt, [1.0, 4.0])) == [1.0, 2.0]
    with pytest.raises(ZeroDivisionError):
        inline.submit(operator.truediv, 1, 0).result()
