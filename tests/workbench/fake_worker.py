"""A worker that knows only the kinds of this file; what it runs cannot be named in a job's file."""

import faulthandler
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from analyzers.errors import InputError
from analyzers.records import Trial
from analyzers.steps import Step
from workbench.worker import run_job


@dataclass(frozen=True)
class Answer:
    value: float


def count(params):
    """Yield a step per number; misbehave where asked to."""
    for i in range(params["n"]):
        time.sleep(params.get("pause", 0.0))
        text = f"number {i + 1} of {params['n']}"
        record = Trial((f"layer_{i}",), i / 10, 4, 0.5)
        yield Step("count", i + 1, params["n"], "" if params.get("silent") else text, record)
        if i == params.get("wrong_at"):
            raise InputError(
                "wrong_shape", "Input 'x' wants 3 channels", where="a.npz", hint="Check the data"
            )
        if i == params.get("bug_at"):
            raise RuntimeError("no such thing")
        if i == params.get("hang_at"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
        if i == params.get("crash_at"):
            faulthandler._sigsegv()
        if i == params.get("killed_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        if i == params.get("exit_at"):
            print("the library gave up", flush=True)
            os._exit(7)
        if i == params.get("allocate_at"):
            bytearray(params["bytes"])
        if i == params.get("full_at"):
            # The kernel's own answer of a full disk.
            Path("/dev/full").write_text("x" * 10000)
        if i == params.get("child_at"):
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(60)
                os._exit(0)
            Path("child").write_text(str(pid))
    Path(os.environ["TMPDIR"], "scratch").write_text("x")
    return Answer(float(params["n"]))


if __name__ == "__main__":
    run_job(Path(sys.argv[1]), {"count": count})
