import signal
from pathlib import Path

import pytest

from workbench.crashes import explain_crash


@pytest.mark.parametrize(
    ("code", "log", "expected", "words"),
    [
        (-signal.SIGSEGV, "", "worker_crashed", "The model made the worker crash during 'rank' (SIGSEGV)"),
        (-signal.SIGABRT, "free(): invalid pointer\n", "worker_crashed", "(SIGABRT)"),
        (
            -signal.SIGABRT,
            "terminate called after\n  what():  std::bad_alloc\n",
            "out_of_memory",
            "out of memory",
        ),
        (-signal.SIGKILL, "", "worker_crashed", "most likely because the machine ran out of memory"),
        (-200, "", "worker_crashed", "(signal 200)"),
        (1, "OSError: [Errno 28] No space left on device\n", "disk_full", "disk became full"),
        (
            1,
            "x\nModuleNotFoundError: no module\n\n",
            "worker_crashed",
            "(exit code 1): ModuleNotFoundError: no module",
        ),
        (None, "", "worker_crashed", "ended without a result during 'rank'"),
    ],
)
def test_a_crash_is_put_into_words(code, log, expected, words):
    error = explain_crash(code, log, stage="rank", log=Path("/ws/log.txt"))
    assert error.code == expected
    assert words in error.message
    assert error.where == "/ws/log.txt"
    assert error.hint


def test_a_worker_that_never_began_has_no_stage():
    assert "before it began" in explain_crash(1, "", stage="", log=Path("log.txt")).message
