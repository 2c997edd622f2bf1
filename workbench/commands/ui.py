"""``tearline ui``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from workbench.store import WORKSPACE_VARIABLE

EXAMPLES = r"""
tearline ui --port 8600 --workspace ~/npu
"""


def ui(
    *,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on this machine.")] = 8501,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser window.")] = True,
    workspace: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where results are kept.  [default: $TEARLINE_WORKSPACE or .tearline]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Open the workbench in a browser."""
    app = Path(__file__).resolve().parent.parent / "app.py"
    command = [sys.executable, "-m", "streamlit", "run", str(app), f"--server.port={port}"]
    if not browser:
        command.append("--server.headless=true")
    if workspace is not None:
        os.environ[WORKSPACE_VARIABLE] = str(workspace.absolute())
    os.execv(sys.executable, command)  # noqa: S606 (a list, no shell; streamlit takes over, signals included)
