"""What is in the code is used, and what it uses is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("analyzers", "workbench", "sample_models", "calib_data")
# Where work begins: the three doors, programs that run as processes of their own, and a folder of data.
ENTRIES = (
    "analyzers",
    "analyzers.api",
    "analyzers.pool_worker",
    "analyzers.targets",
    "workbench.app",
    "workbench.cli",
    "workbench.probe",
    "workbench.worker",
)
# Every file of these folders is found by the folder that it is in.
DISCOVERED = (
    "analyzers.diagnoses",
    "analyzers.exporters",
    "analyzers.metrics",
    "analyzers.tasks.decoders",
    "analyzers.tasks.metrics",
    "workbench.app_pages",
)
# Distribution -> what it is imported as, where the names differ.
IMPORTED_AS = {"opencv-python-headless": "cv2", "PyYAML": "yaml"}


def modules(*packages: str) -> dict[str, Path]:
    found = {}
    for package in packages:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> set[str]:
    """Return all names that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_every_module_is_used_by_a_door() -> None:
    known = modules("analyzers", "workbench")
    todo = [name for name in known if name in ENTRIES or _is_discovered(*name.rpartition("."))]
    reached = set(todo)
    while todo:
        new = {name for name in imports(known[todo.pop()]) if name in known} - reached
        reached |= new
        todo += new
    parents = {name.rpartition(".")[0] for name in reached}
    assert set(known) - reached - parents == set()


def _is_discovered(folder: str, _: str, name: str) -> bool:
    return folder in DISCOVERED and not name.startswith("_")


def test_what_is_imported_is_declared_and_the_other_way_round() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    declared, optional = (
        {IMPORTED_AS.get(name, name.replace("-", "_")) for name in map(_distribution, listed)}
        for listed in (project["dependencies"], extras)
    )
    used = {name.partition(".")[0] for path in modules(*PACKAGES).values() for name in imports(path)}
    used -= {*sys.stdlib_module_names, *PACKAGES}
    assert declared - used == set()
    assert used - declared - optional == set()


def _distribution(requirement: str) -> str:
    found = re.match(r"[\w-]+", requirement)
    assert found is not None
    return found[0]
