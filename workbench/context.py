"""What the pages share: the jobs of the workspace, the open project, answers that were read once."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import streamlit as st

from workbench.job_records import JobStatus
from workbench.jobs import Jobs
from workbench.projects import Kind, Project, read_project, save_project
from workbench.runs import Answer, adopt_job, read_answer, runs_of
from workbench.state import open_project, session
from workbench.store import default_workspace


def jobs() -> Jobs:
    """Return the jobs of the workspace; one object for all tabs."""
    return _open_jobs(str(default_workspace().absolute()))


@st.cache_resource(show_spinner=False)
def _open_jobs(root: str) -> Jobs:
    return Jobs(Path(root), max_parallel=1)


def project() -> Project | None:
    """Return the open project, if there is one; a job in the address opens its own."""
    now = session()
    if now.project:
        try:
            return read_project(jobs().workspace, now.project)
        except KeyError:
            return None
    if now.asked_job:
        found = adopt_job(jobs(), now.asked_job)
        if found is not None:
            asked = now.asked_job
            open_project(found.id, asked_job=asked)
        return found
    return None


def keep(changed: Project) -> None:
    """Save a project and look at it."""
    save_project(jobs().workspace, changed)
    if session().project != changed.id:
        open_project(changed.id)


def shown_run(opened: Project, kind: Kind) -> JobStatus | None:
    """Return the run of a kind that is looked at: the chosen one, else the newest."""
    found = runs_of(jobs(), opened, kind)
    wanted = {session().picked.get(kind, ""), session().asked_job}
    chosen = next((s for s in found if s.id in wanted), None)
    return chosen or (found[0] if found else None)


def answer_of(status: JobStatus, kind: type[Answer]) -> Answer:
    """Return the answer of a job that is done; read once, since it never changes.

    Raises:
        InputError: The file is damaged or from another version.
    """
    answer = _read(str(jobs().workspace.root), status.id, kind)
    return cast("Answer", answer)


@st.cache_resource(show_spinner=False, max_entries=24)
def _read(root: str, job_id: str, _kind: type[Answer]) -> object:
    return read_answer(_open_jobs(root), job_id, _kind)
