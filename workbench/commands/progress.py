"""Progress on stderr: a bar where there is a terminal, plain lines in logs and pipes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workbench.commands.words import duration, printable, say
from workbench.job_records import Event, JobStatus

Show = Callable[[JobStatus, tuple[Event, ...]], None]
_LINE_SECONDS = 5.0


@contextmanager
def progress() -> Iterator[Show]:
    """Yield a function that shows a job's state and its new events."""
    if sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield _lines()


def describe(status: JobStatus) -> str:
    """Return a line such as ``compare 12/128, 0:41 left``."""
    if not status.total:
        return f"{status.stage}, {duration(status.seconds)} so far"
    line = f"{status.stage} {status.done}/{status.total}"
    if status.eta_seconds is not None and status.done < status.total:
        line += f", {duration(status.eta_seconds)} left"
    return line


def _lines() -> Show:
    known: set[str] = set()
    shown_at = time.monotonic()

    def show(status: JobStatus, events: tuple[Event, ...]) -> None:
        nonlocal shown_at
        for event in events:
            if event.text and (event.record is not None or event.stage not in known):
                say(f"{event.stage}: {event.text}")
                known.add(event.stage)
                shown_at = time.monotonic()
        if status.stage and time.monotonic() - shown_at >= _LINE_SECONDS:
            say(describe(status))
            known.add(status.stage)
            shown_at = time.monotonic()

    return show


@contextmanager
def _bar() -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def show(status: JobStatus, events: tuple[Event, ...]) -> None:
            for event in events:
                if event.text and event.record is not None:
                    bar.console.print(Text(printable(f"{event.stage}: {event.text}")))
            if status.stage:
                bar.update(
                    task,
                    description=printable(describe(status)),
                    completed=status.done,
                    total=status.total or None,
                )

        yield show
