"""The typed session of one browser tab, and the address bar; nothing else touches ``st.session_state``.

Truth is on disk: the session only says which project, which run of each kind and which layer are looked at.
A reload starts a new session, which takes these from the address.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import streamlit as st

from workbench.projects import Kind, Slot

_KEY = "session"
_PARAMS = ("project", "job", "layer")


@dataclass(frozen=True, slots=True)
class Session:
    """What a tab looks at.

    Attributes:
        project: Id of the open project; "" for none.
        picked: Kind of job -> id of the run that was chosen; the newest where nothing was.
        asked_job: The job that the address named when the tab was opened.
        layer: Node that is selected on every page.
        uploads: Slot -> how many uploads were taken over; part of the uploader's key, so that it empties.
    """

    project: str = ""
    picked: Mapping[Kind, str] = field(default_factory=dict)
    asked_job: str = ""
    layer: str = ""
    uploads: Mapping[Slot, int] = field(default_factory=dict)


def session() -> Session:
    """Return the session; a new tab starts with what its address says."""
    if _KEY not in st.session_state:  # noqa: TID251
        _store(Session(project=_param("project"), asked_job=_param("job"), layer=_param("layer")))
    return cast("Session", st.session_state[_KEY])  # noqa: TID251


def open_project(project_id: str, *, asked_job: str = "") -> None:
    """Look at another project, or at none; ``asked_job`` is the run to begin with."""
    layer = session().layer if asked_job else ""
    _store(replace(session(), project=project_id, picked={}, asked_job=asked_job, layer=layer))


def pick_run(kind: Kind, job_id: str) -> None:
    """Look at this run wherever its kind is shown."""
    now = session()
    _store(replace(now, picked={**now.picked, kind: job_id}, asked_job=""))


def select_layer(node: str) -> None:
    """Select a node on every page."""
    _store(replace(session(), layer=node))


def count_upload(slot: Slot) -> None:
    """Empty the uploader of a slot; others may be receiving a file just now."""
    now = session()
    _store(replace(now, uploads={**now.uploads, slot: now.uploads.get(slot, 0) + 1}))


def show_address(*, project: str = "", job: str = "", layer: str = "") -> None:
    """Let the address bar say what is seen, so that it can be reloaded, bookmarked and sent."""
    wanted = {"project": project, "job": job, "layer": layer}
    now = {name: _param(name) for name in _PARAMS}
    if now != wanted:
        st.query_params.from_dict({name: value for name, value in wanted.items() if value})


def selected_rows(key: str) -> tuple[int, ...]:
    """Return the rows that are selected in a table."""
    rows = _selection(key).get("rows", [])
    return tuple(int(row) for row in rows) if isinstance(rows, list) else ()


def select_rows(key: str, rows: tuple[int, ...]) -> None:
    """Select rows of a table that is drawn later in this run."""
    st.session_state[key] = {"selection": {"rows": list(rows), "columns": [], "cells": []}}  # noqa: TID251


def selected_point(key: str, selection: str, column: str) -> str:
    """Return a field of the point that was clicked in a chart; "" if none was."""
    points = _selection(key).get(selection, [])
    if isinstance(points, list) and points and isinstance(points[0], Mapping):
        return str(points[0].get(column, ""))
    return ""


def _selection(key: str) -> Mapping[str, object]:
    value = st.session_state.get(key)  # noqa: TID251
    found = value.get("selection", {}) if isinstance(value, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def _store(session_now: Session) -> None:
    st.session_state[_KEY] = session_now  # noqa: TID251


def _param(name: str) -> str:
    return str(st.query_params.get(name, ""))
