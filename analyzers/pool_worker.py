"""A worker of the pool: ``python -m analyzers.pool_worker``, started by ``analyzers.pool`` only."""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import traceback
from typing import IO

from analyzers import pool_frames


def main() -> None:
    """Run tasks from standard input until it ends."""
    # Ctrl-C is meant for the program that started the workers; it ends them when it has tidied up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever prints, a user's decoder or a library, must not get between the replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, messages), daemon=True).start()
    while True:
        pool_frames.write(replies, _reply(messages.get()))


def _receive(tasks: IO[bytes], messages: queue.SimpleQueue[bytes]) -> None:
    """Take in tasks; the end of the input is the end of the program that wants the replies."""
    while (message := pool_frames.read(tasks)) is not None:
        messages.put(message)
    os._exit(0)


def _reply(message: bytes) -> bytes:
    try:
        function, arguments, named = pool_frames.task_of(message)
        return pool_frames.dumps((True, function(*arguments, **named)))
    except Exception as failure:
        failure.add_note(traceback.format_exc())
        try:
            return pool_frames.dumps((False, failure))
        except Exception:  # an exception that cannot be sent
            return pool_frames.dumps((False, RuntimeError(traceback.format_exc())))


if __name__ == "__main__":
    main()
