from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st

from workbench.store import WORKSPACE_VARIABLE, Workspace, open_workspace


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv(WORKSPACE_VARIABLE, str(tmp_path))
    yield open_workspace(tmp_path)
    st.cache_resource.clear()
