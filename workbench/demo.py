"""The project that the one-click demo opens: a detector, its INT8 twin and pictures, all shipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sample_models.demo import demo_paths
from workbench.projects import Goal, Project, Slot, Source, new_project, with_source


def demo_project() -> Project:
    """Return a new project with the demo's inputs."""
    paths = demo_paths()
    sources: tuple[tuple[Slot, Path, str], ...] = (
        ("reference", paths.reference, "small detector, trained on drawn scenes"),
        ("candidate", paths.candidate, "the same, quantized by the stock quantizer with per-tensor weights"),
        ("data", paths.data, "drawn scenes that the detector has not seen"),
        ("annotations", paths.annotations, "boxes of these scenes"),
        ("task", paths.task, "how its input is made and its outputs are read"),
        ("calibration", paths.calibration, "scenes for calibration"),
    )
    project = replace(new_project("Demo: small detector"), goal=Goal("drop", paths.max_drop), is_demo=True)
    for slot, path, words in sources:
        project = with_source(project, slot, Source(path, path.name, _size(path), words))
    return project


def builtin_tasks() -> dict[str, Path]:
    """Return the task files that are shipped, by name."""
    return {path.stem: path for path in sorted(demo_paths().task.parent.glob("*.yaml"))}


def missing_files() -> tuple[str, ...]:
    """Return names of shipped files that are not there; an installation that was cut short lacks some."""
    paths = demo_paths()
    wanted = (paths.reference, paths.candidate, paths.data, paths.annotations, paths.task, paths.calibration)
    return tuple(p.name for p in wanted if not p.exists())


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
