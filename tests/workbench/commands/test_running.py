import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

SCRIPT = str(Path(__file__).parent.parent / "fake_command.py")


def command(workspace, params, *more):
    return [sys.executable, SCRIPT, str(workspace), json.dumps(params), *map(str, more)]


def run(*args):
    return subprocess.run(
        command(*args), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )


def wait_for_events(workspace: Path) -> Path:
    deadline = time.monotonic() + 20
    while not (found := [p for p in workspace.glob("runs/*/events.jsonl") if p.stat().st_size]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found[0].parent


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_answer_goes_to_stdout_and_progress_to_stderr(tmp_path):
    done = run(tmp_path / "ws", {"n": 3}, tmp_path / "answer.json")
    assert (done.returncode, done.stdout) == (0, "value: 3\n")
    assert "count: number 1 of 3" in done.stderr
    assert "error" not in done.stderr
    assert json.loads((tmp_path / "answer.json").read_text()) == {"value": 3.0}


def test_progress_in_a_log_tells_the_time_left(tmp_path):
    done = run(tmp_path / "ws", {"n": 70, "pause": 0.1, "silent": True})
    assert any(line.startswith("count ") and line.endswith(" left") for line in done.stderr.splitlines())


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"wrong_at": 1}, "error[wrong_shape]: Input 'x' wants 3 channels, a.npz, Check the data"),
        (
            {"crash_at": 1},
            "error[worker_crashed]: The model made the worker crash during 'count' (SIGSEGV), ",
        ),
        ({"killed_at": 1}, "error[worker_crashed]: The worker was killed from outside during 'count', "),
        ({"full_at": 1}, "error[disk_full]: The disk is full, "),
        ({"bug_at": 1}, "error[internal_error]: Tearline made a mistake: RuntimeError: no such thing, "),
    ],
)
def test_a_failure_is_one_line_exit_2_and_no_file(tmp_path, params, line):
    done = run(tmp_path / "ws", {"n": 3, **params}, tmp_path / "answer.json")
    assert (done.returncode, done.stdout) == (2, "")
    errors = [found for found in done.stderr.splitlines() if found.startswith("error[")]
    assert len(errors) == 1
    assert errors[0].startswith(line)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "answer.json").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["ws"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("params", [{}, {"hang_at": 0}])
def test_a_signal_cancels_the_job_within_a_second(tmp_path, number, code, params):
    args = command(tmp_path / "ws", {"n": 10_000, "pause": 0.01, **params}, tmp_path / "answer.json")
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        folder = wait_for_events(tmp_path / "ws")
        worker = json.loads((folder / "worker.json").read_text())["pid"]
        began = time.monotonic()
        running.send_signal(number)
        out, err = running.communicate(timeout=10)
        # A second on a machine that has nothing else to do.
        assert time.monotonic() - began < 5
    assert (running.returncode, out) == (code, "")
    assert "cancelled" in err
    assert "Traceback" not in err
    assert is_gone(worker)
    assert json.loads((folder / "status.json").read_text())["state"] == "cancelled"
    assert not (tmp_path / "answer.json").exists()


def test_a_worker_does_not_outlive_a_killed_command(tmp_path):
    with subprocess.Popen(command(tmp_path / "ws", {"n": 10_000, "pause": 0.01})) as running:
        folder = wait_for_events(tmp_path / "ws")
        worker = json.loads((folder / "worker.json").read_text())["pid"]
        running.kill()
        running.wait()
        deadline = time.monotonic() + 5
        while not is_gone(worker):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert json.loads((folder / "status.json").read_text())["state"] == "cancelled"


def test_a_reader_that_leaves_early_gets_no_traceback(tmp_path):
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(
        command(tmp_path / "ws", {"n": 1}), stdout=write, stderr=subprocess.PIPE, text=True
    ) as running:
        os.close(write)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 141
    assert "Traceback" not in err
    assert "BrokenPipe" not in err
