"""Long computations are generators of steps; stopping one is not asking for the next.

A computation yields ``Step`` records and *returns* its result, so that a job can iterate it and show
progress, a test can make a list of it, and a script can just ask for the result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Step:
    """One visible step of a long computation.

    Attributes:
        stage: What is being done, in the words of the product ("compare", "rank", "prune").
        done: Finished units of this stage.
        total: Units of this stage; 0 where unknown.
        text: One line for people; may be empty.
        record: A finished partial result (a trial, a bisect step) or None.
    """

    stage: str
    done: int = 0
    total: int = 0
    text: str = ""
    record: object | None = None


Steps = Generator[Step, None, Result]


def finish(steps: Steps[Result], on_step: Callable[[Step], None] | None = None) -> Result:
    """Run a computation to its end and return its result."""
    while True:
        try:
            step = next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        if on_step is not None:
            on_step(step)
