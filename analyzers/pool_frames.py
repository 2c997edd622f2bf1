"""How a pool and its workers talk: messages with their length in front, over the worker's own pipes.

Only processes that this program started are on these pipes; no file and no network ever is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import IO, Any, TypeAlias

Task: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
Reply: TypeAlias = tuple[bool, Any]

_LENGTH = struct.Struct("<Q")


def dumps(message: Task | Reply) -> bytes:
    """Return the bytes of a message."""
    return bytes(ForkingPickler.dumps(message))


def task_of(data: bytes) -> Task:
    """Return the task in a message; importing its function's module may raise anything."""
    task: Task = ForkingPickler.loads(data)
    return task


def reply_of(data: bytes) -> Reply:
    """Return the reply in a message."""
    reply: Reply = ForkingPickler.loads(data)
    return reply


def write(stream: IO[bytes], message: bytes) -> None:
    """Write one message.

    Raises:
        OSError: The other side is gone.
    """
    stream.write(_LENGTH.pack(len(message)))
    stream.write(message)
    stream.flush()


def read(stream: IO[bytes]) -> bytes | None:
    """Return the next message; None if the other side is gone, even in the middle of one."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None
