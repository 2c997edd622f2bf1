import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from analyzers.errors import InputError
from workbench.job_records import JobStatus
from workbench.jobs import Jobs
from workbench.store import Workspace

FAKE = (sys.executable, "-P", str(Path(__file__).with_name("fake_worker.py")))


@pytest.fixture
def jobs(tmp_path):
    with Jobs(tmp_path / "ws", command=FAKE) as opened:
        yield opened
        for status in opened.list():
            opened.cancel(status.id)


def wait(jobs: Jobs, job_id: str, until=lambda s: not s.is_live, seconds: float = 20.0) -> JobStatus:
    deadline = time.monotonic() + seconds
    while not until(status := jobs.status(job_id)):
        assert time.monotonic() < deadline, status
        time.sleep(0.02)
    return status


def is_at(step: int):
    return lambda s: s.done >= step or not s.is_live


def test_a_job_leaves_its_result_and_its_events(jobs):
    job_id = jobs.submit("count", {"n": 3})
    status = wait(jobs, job_id)
    assert (status.state, status.stage, status.done, status.total) == ("done", "count", 3, 3)
    assert status.error is None
    assert jobs.result(job_id) == {"value": 3.0}
    events, offset = jobs.events(job_id)
    assert [e.record["fallback"] for e in events] == [["layer_0"], ["layer_1"], ["layer_2"]]
    assert {e.record_type for e in events} == {"Trial"}
    assert jobs.events(job_id, offset) == ((), offset)


def test_events_can_be_followed_while_the_job_runs(jobs):
    job_id = jobs.submit("count", {"n": 30, "pause": 0.02})
    wait(jobs, job_id, is_at(2))
    first, offset = jobs.events(job_id)
    wait(jobs, job_id)
    rest, _ = jobs.events(job_id, offset)
    assert first
    assert [e.done for e in first + rest] == list(range(1, 31))


def test_a_half_written_event_waits_for_its_end(jobs):
    job_id = jobs.submit("count", {"n": 1})
    wait(jobs, job_id)
    path = jobs.result_path(job_id).with_name("events.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    events, offset = jobs.events(job_id)
    assert len(events) == 1
    assert offset == len(whole)


def test_a_running_job_tells_its_time_left(jobs):
    job_id = jobs.submit("count", {"n": 40, "pause": 0.05})
    status = wait(jobs, job_id, lambda s: s.eta_seconds is not None)
    assert status.state == "running"
    assert 0 < status.eta_seconds < 20
    assert status.seconds > 0


def test_jobs_wait_for_each_other_and_are_listed_newest_first(jobs):
    first = jobs.submit("count", {"n": 10, "pause": 0.05})
    second = jobs.submit("count", {"n": 1})
    wait(jobs, first, is_at(1))
    assert jobs.status(second).state == "queued"
    assert [s.id for s in jobs.list()] == [second, first]
    assert wait(jobs, first).state == "done"
    assert wait(jobs, second).state == "done"


@pytest.mark.parametrize(
    ("params", "state", "code", "words"),
    [
        ({"wrong_at": 1}, "failed", "wrong_shape", "3 channels"),
        ({"bug_at": 1}, "failed", "internal_error", "RuntimeError: no such thing"),
        ({"full_at": 1}, "failed", "disk_full", "disk is full"),
        ({"crash_at": 1}, "crashed", "worker_crashed", "SIGSEGV"),
        ({"killed_at": 1}, "crashed", "worker_crashed", "ran out of memory"),
        ({"exit_at": 1}, "crashed", "worker_crashed", "exit code 7): the library gave up"),
    ],
)
def test_a_failure_says_what_happened_and_keeps_what_was_found(jobs, params, state, code, words):
    job_id = jobs.submit("count", {"n": 3, **params})
    status = wait(jobs, job_id)
    assert status.state == state
    assert status.error.code == code
    assert words in status.error.message
    assert status.stage == "count"
    assert len(jobs.events(job_id)[0]) == 2
    assert jobs.result(job_id) is None


def test_an_allocation_beyond_the_limit_fails_the_job_only(jobs):
    params = {"n": 2, "allocate_at": 0, "bytes": 2 << 30}
    status = wait(jobs, jobs.submit("count", params, memory_bytes=1 << 30))
    assert (status.state, status.error.code) == ("failed", "out_of_memory")


@pytest.mark.parametrize("how", [{}, {"hang_at": 2}, {"child_at": 2}])
def test_a_running_job_is_cancelled_within_a_second(jobs, how):
    job_id = jobs.submit("count", {"n": 1000, "pause": 0.02, **how})
    wait(jobs, job_id, lambda s: s.done >= 3 or (s.done >= 1 and s.seconds > 1))
    began = time.monotonic()
    status = jobs.cancel(job_id)
    # A second on a machine that has nothing else to do.
    assert time.monotonic() - began < 3
    assert status.state == "cancelled"
    child = jobs.result_path(job_id).with_name("child")
    if child.exists():
        pid = int(child.read_text())
        while _is_running(pid):
            assert time.monotonic() - began < 5
            time.sleep(0.02)
    assert not jobs.result_path(job_id).with_name("tmp").exists()


def test_a_queued_job_is_cancelled_without_being_run(jobs):
    first = jobs.submit("count", {"n": 1000, "pause": 0.02})
    second = jobs.submit("count", {"n": 1})
    wait(jobs, first, is_at(1))
    assert jobs.cancel(second).state == "cancelled"
    jobs.cancel(first)
    time.sleep(0.5)
    assert jobs.status(second).state == "cancelled"
    assert jobs.events(second) == ((), 0)


def test_jobs_survive_a_restart_of_the_program(tmp_path):
    with Jobs(tmp_path, command=FAKE) as before:
        running = before.submit("count", {"n": 40, "pause": 0.05})
        waiting = before.submit("count", {"n": 1})
        wait(before, running, is_at(1))
    time.sleep(0.5)
    with Jobs(tmp_path, command=FAKE) as after:
        assert after.status(running).state == "running"
        assert after.status(waiting).state == "queued"
        assert wait(after, running).state == "done"
        assert wait(after, waiting).state == "done"
    before.close()


def test_a_worker_killed_while_nobody_watched_is_found_dead(tmp_path):
    with Jobs(tmp_path, command=FAKE) as before:
        job_id = before.submit("count", {"n": 1000, "pause": 0.02})
        wait(before, job_id, is_at(2))
        claim = json.loads((before.workspace.runs / job_id / "worker.json").read_text())
        with Jobs(tmp_path, max_parallel=0) as after:
            os.kill(claim["pid"], signal.SIGKILL)
            status = wait(after, job_id)
        assert (status.state, status.error.code) == ("crashed", "worker_crashed")
        before.close()


def test_a_number_that_belongs_to_another_process_by_now_is_not_taken_for_the_worker(tmp_path):
    with Jobs(tmp_path, max_parallel=0, command=FAKE) as jobs:
        job_id = jobs.submit("count", {"n": 1})
        stranger = {"pid": os.getpid(), "started": psutil.Process().create_time() - 3600}
        (jobs.workspace.runs / job_id / "worker.json").write_text(json.dumps(stranger))
        assert jobs.status(job_id).state == "crashed"


def test_two_programs_on_one_queue_run_a_job_once(tmp_path):
    with Jobs(tmp_path, command=FAKE, max_parallel=0) as one, Jobs(tmp_path, command=FAKE) as two:
        job_id = one.submit("count", {"n": 5, "pause": 0.02})
        one.start(job_id)
        assert wait(two, job_id).state == "done"
        assert wait(one, job_id).state == "done"
        assert [e.done for e in one.events(job_id)[0]] == [1, 2, 3, 4, 5]
        time.sleep(0.5)


def test_a_job_ends_with_the_program_that_started_it(tmp_path):
    with Jobs(tmp_path, command=FAKE, max_parallel=0) as jobs:
        params = {"n": 1000, "pause": 0.02}
        # Not our own number: for the worker this is a parent that has gone.
        job_id = jobs.submit("count", params, parent=os.getppid())
        jobs.start(job_id)
        assert wait(jobs, job_id).state == "cancelled"


@pytest.mark.parametrize(
    "job_id", ["", "..", "../../etc", "/etc", "a" * 31, "A" * 32, "a" * 32, "g" * 32, "a" * 33]
)
def test_an_id_that_is_no_job_of_ours_is_refused_everywhere(jobs, job_id):
    for ask in (jobs.status, jobs.events, jobs.result, jobs.cancel, jobs.log, jobs.start):
        with pytest.raises(KeyError):
            ask(job_id)


def test_a_job_file_cannot_name_code_to_run(jobs):
    status = wait(jobs, jobs.submit("os.system", {"n": 1}))
    assert (status.state, status.error.code) == ("failed", "internal_error")
    assert "unknown kind" in status.error.message


def test_files_in_the_run_folder_are_not_imported(jobs):
    job_id = jobs.submit("count", {"n": 1})
    (jobs.workspace.runs / job_id / "numpy.py").write_text("raise SystemExit('taken over')")
    assert wait(jobs, job_id).state == "done"


def test_a_damaged_status_is_a_crash_and_no_traceback(jobs):
    job_id = jobs.submit("count", {"n": 1})
    wait(jobs, job_id)
    (jobs.workspace.runs / job_id / "status.json").write_text("{")
    assert jobs.status(job_id).state == "crashed"
    assert len(jobs.list()) == 1


def test_a_damaged_job_is_listed_and_does_not_stop_the_others(jobs):
    damaged = jobs.submit("count", {"n": 1, "pause": 0.5})
    (jobs.workspace.runs / damaged / "job.json").write_text("{")
    assert wait(jobs, jobs.submit("count", {"n": 1})).state == "done"
    assert wait(jobs, damaged).state in ("cancelled", "crashed")
    assert len(jobs.list()) == 2


def test_a_workspace_that_cannot_be_written_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as raised:
        Jobs(tmp_path / "file")
    assert raised.value.code == "workspace_not_writable"


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_log_that_cannot_be_written_does_not_hide_why_a_job_failed(tmp_path):
    with Jobs(tmp_path, max_parallel=0, command=FAKE) as jobs:
        job_id = jobs.submit("count", {"n": 3, "full_at": 1})
        (jobs.workspace.runs / job_id / "log.txt").symlink_to("/dev/full")
        jobs.start(job_id)
        status = wait(jobs, job_id)
        assert (status.state, status.error.code) == ("failed", "disk_full")


def test_a_job_that_cannot_be_written_leaves_nothing(tmp_path):
    with Jobs(tmp_path, max_parallel=0) as jobs:
        # Longer than any file name may be, so that the folder cannot be made.
        jobs.workspace = Workspace(tmp_path / ("x" * 300))
        with pytest.raises(InputError) as raised:
            jobs.submit("count", {"n": 1})
        assert raised.value.code == "workspace_not_writable"
