"""What is known about a job: its request, its state, its events. All of it lives in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

JobState = Literal["queued", "running", "done", "failed", "cancelled", "crashed"]
LIVE_STATES: tuple[JobState, ...] = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Job:
    """What was asked for: ``job.json``.

    Attributes:
        kind: Which work; a key of ``workbench.kinds.KINDS``.
        params: The JSON form of that kind's request record.
        created: Unix seconds.
        memory_bytes: Most memory that one worker process may allocate; None for all of the machine's.
        parent: The job ends with this process; None for a job that outlives the program that started it.
    """

    kind: str
    params: object
    created: float
    memory_bytes: int | None = None
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Which process works on the job: ``worker.json``, written by that process, once."""

    pid: int
    started: float


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed or crashed; the same fields as ``TearlineError``."""

    code: str
    message: str
    where: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The state of a job: ``status.json``.

    Attributes:
        id: 32 hex digits.
        kind: As in ``Job``.
        created: Unix seconds.
        state: "failed" jobs say what was wrong, "crashed" ones lost their worker.
        stage: What is being done, in the words of ``Step.stage``.
        done: Finished units of this stage.
        total: Units of this stage; 0 where unknown.
        text: One line for people.
        seconds: Wall time since the worker began.
        eta_seconds: Estimated wall time to the end of this stage; None where unknown.
        error: Set if failed or crashed.
        updated: Unix seconds of the last change.
    """

    id: str
    kind: str
    created: float
    state: JobState = "queued"
    stage: str = ""
    done: int = 0
    total: int = 0
    text: str = ""
    seconds: float = 0.0
    eta_seconds: float | None = None
    error: JobError | None = None
    updated: float = 0.0

    @property
    def is_live(self) -> bool:
        """Whether the state can still change."""
        return self.state in LIVE_STATES


@dataclass(frozen=True, slots=True)
class Event:
    """A step worth keeping: one line of ``events.jsonl``.

    Attributes:
        seconds: Wall time since the worker began.
        stage: As in ``Step``.
        done: As in ``Step``.
        total: As in ``Step``.
        text: As in ``Step``.
        record_type: Class name of the record ("Trial", "BisectStep"); "" without one.
        record: JSON form of the finished partial result.
    """

    seconds: float
    stage: str
    done: int
    total: int
    text: str
    record_type: str
    record: object
