"""Every trial that ever ended, in one SQLite file of the workspace.

A trial is found again by the content of all that its score depends on. The row is written when the trial
ends, so killing the program at any moment loses at most the trial that was running; two searches may share
the file. What the metric kept of each sample stays too, so that scores can be computed again without a model.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import io
import json
import math
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import numpy as np

from analyzers.errors import InputError
from analyzers.records import Array, Mode, Plan
from analyzers.serialize import to_json

FILE_NAME = "trials.sqlite"
_WAIT_SECONDS = 60.0
_RUNTIMES = ("onnxruntime", "numpy", "onnx", "onnx-ir", "opencv-python-headless", "faster-coco-eval")

_TABLES = """
CREATE TABLE IF NOT EXISTS trials (
    key TEXT PRIMARY KEY,
    description TEXT NOT NULL,
    score REAL,
    details TEXT NOT NULL,
    samples INTEGER NOT NULL,
    seconds REAL NOT NULL,
    ended REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS observations (
    key TEXT NOT NULL REFERENCES trials(key),
    place INTEGER NOT NULL,
    name TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (key, place)
) WITHOUT ROWID;
"""


@functools.cache
def code_version() -> str:
    """Return a digest of the engine's source and of the libraries that compute with it.

    A score that an older version of the code left must not pass for one of this version, and nobody
    remembers to raise a number by hand.
    """
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    for name in _RUNTIMES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            digest.update(f"{name} {importlib.metadata.version(name)}\n".encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class TrialKey:
    """All that a trial's score depends on.

    Attributes:
        models: Digest of reference and candidate.
        subject: "plan", or "reference" / "candidate" for the files as they are.
        plan: The plan; None for files as they are.
        samples: Digest of the set and of the samples chosen from it.
        metric: Digest of task, annotations and metric.
        mode: Session mode.
        code: Version of the code and of the libraries that compute.
    """

    models: str
    subject: str
    plan: Plan | None
    samples: str
    metric: str
    mode: Mode
    code: str = field(default_factory=code_version)

    @property
    def digest(self) -> str:
        """The row's key."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def text(self) -> str:
        """The key in words, kept beside it."""
        return json.dumps(to_json(self), sort_keys=True)


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """What a trial left.

    Attributes:
        score: The task metric.
        details: Further numbers of the metric.
        samples: How many samples were run.
        seconds: Wall time that it took.
    """

    score: float
    details: dict[str, float]
    samples: int
    seconds: float


class TrialStore:
    """An open store; holds a connection, so it is closed or used in a ``with``."""

    def __init__(self, path: Path) -> None:
        """Open or make the file.

        Raises:
            InputError: It cannot be opened or is no data base.
        """
        self._path = path
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, timeout=_WAIT_SECONDS)
            try:
                # Readers and one writer at a time do not block each other; after a crash the log is replayed.
                self._connection.execute("PRAGMA journal_mode=WAL")
                self._connection.execute("PRAGMA synchronous=NORMAL")
                self._connection.executescript(_TABLES)
            except sqlite3.Error:
                self._connection.close()
                raise

    def get(self, key: TrialKey) -> StoredTrial | None:
        """Return what an earlier trial with this key left; None if there was none."""
        query = "SELECT score, details, samples, seconds FROM trials WHERE key = ?"
        with _explained(self._path):
            row = self._connection.execute(query, (key.digest,)).fetchone()
        if row is None:
            return None
        score, details, samples, seconds = row
        numbers = {str(k): _undefined_is_nan(v) for k, v in json.loads(details).items()}
        return StoredTrial(_undefined_is_nan(score), numbers, int(samples), float(seconds))

    def observations(self, key: TrialKey) -> tuple[tuple[str, ...], tuple[Array, ...]]:
        """Return sample names and what the metric kept of each; empty for an unknown key."""
        query = "SELECT name, data FROM observations WHERE key = ? ORDER BY place"
        with _explained(self._path):
            rows = self._connection.execute(query, (key.digest,)).fetchall()
        return tuple(str(name) for name, _ in rows), tuple(_array(data) for _, data in rows)

    def put(
        self, key: TrialKey, trial: StoredTrial, names: Sequence[str], observations: Sequence[Array]
    ) -> None:
        """Keep a finished trial, all of it or nothing; one that is there already stays as it is.

        Raises:
            InputError: The disk is full or the file cannot be written.
        """
        details = {name: None if math.isnan(value) else value for name, value in trial.details.items()}
        score = None if math.isnan(trial.score) else trial.score
        row = (key.digest, key.text, score, json.dumps(details), trial.samples, trial.seconds, time.time())
        rows = [
            (key.digest, place, name, _bytes(array))
            for place, (name, array) in enumerate(zip(names, observations, strict=True))
        ]
        with _explained(self._path), self._connection:
            self._connection.execute("INSERT OR IGNORE INTO trials VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            self._connection.executemany("INSERT OR IGNORE INTO observations VALUES (?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __enter__(self) -> TrialStore:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def _bytes(array: Array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _array(data: bytes) -> Array:
    loaded: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return loaded


def _undefined_is_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system say into an error that names the file and a way out."""
    try:
        yield
    except (sqlite3.Error, OSError) as cause:
        if "full" in str(cause):
            raise InputError(
                "disk_full",
                "The disk is full; finished trials are kept",
                where=str(path),
                hint="Free some space and start again: no finished trial runs twice",
            ) from cause
        raise InputError(
            "workspace_not_writable",
            f"The store of trials cannot be used: {cause}",
            where=str(path),
            hint="Choose another folder with --workspace, or remove the file",
        ) from cause
