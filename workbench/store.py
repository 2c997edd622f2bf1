"""The workspace folder: where results, uploads and trials are kept, and how files in it are written.

runs/<id>/   job.json status.json events.jsonl log.txt result.json: one folder per job
uploads/     what the browser sent, each in a folder of its own
models/      candidates made here
trials.sqlite  every plan that was ever scored
"""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.errors import InputError

if TYPE_CHECKING:
    from analyzers.serialize import JsonValue

DEFAULT_WORKSPACE = Path(".tearline")
WORKSPACE_VARIABLE = "TEARLINE_WORKSPACE"
_RUN_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Workspace:
    """An existing workspace folder; see ``open_workspace``."""

    root: Path

    @property
    def runs(self) -> Path:
        """One folder per job."""
        return self.root / "runs"

    @property
    def uploads(self) -> Path:
        """Files from the browser."""
        return self.root / "uploads"

    @property
    def models(self) -> Path:
        """Candidates that were quantized here."""
        return self.root / "models"

    @property
    def trials(self) -> Path:
        """Data base of scored plans."""
        return self.root / "trials.sqlite"


def default_workspace() -> Path:
    """Return the folder of ``TEARLINE_WORKSPACE``, else ``.tearline`` in the current folder."""
    return Path(os.environ.get(WORKSPACE_VARIABLE) or DEFAULT_WORKSPACE)


def open_workspace(root: Path) -> Workspace:
    """Make the workspace's folders, readable by their owner only.

    Raises:
        InputError: The folder cannot be made or written.
    """
    workspace = Workspace(root.absolute())
    try:
        workspace.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (workspace.runs, workspace.uploads, workspace.models):
            folder.mkdir(mode=0o700, exist_ok=True)
        probe = workspace.runs / f".probe-{secrets.token_hex(8)}"
        probe.touch()
        probe.unlink()
    except OSError as cause:
        raise InputError(
            "workspace_not_writable",
            f"Cannot use the workspace folder: {cause.strerror}",
            where=str(root),
            hint="Choose another folder with --workspace",
        ) from cause
    return workspace


def new_run(workspace: Workspace) -> Path:
    """Make the folder of a new job; its name is 32 hex digits that nobody can guess."""
    run = workspace.runs / secrets.token_hex(16)
    run.mkdir(mode=0o700)
    return run


def run_folder(workspace: Workspace, run_id: str) -> Path:
    """Return a job's folder; ids may come from a URL and are never trusted.

    Raises:
        KeyError: There is no such job.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise KeyError(run_id)
    run = workspace.runs / run_id
    if not (run / "job.json").is_file():
        raise KeyError(run_id)
    return run


def write_text(path: Path, text: str) -> None:
    """Write a file atomically: readers see the old text or the new one, never half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_json(path: Path) -> JsonValue:
    """Return a file's JSON value; None where it is absent or no JSON."""
    try:
        value: JsonValue = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value
