"""Exports as text on stdout; apart from the other reports, since exporters take their time to import."""

from __future__ import annotations

from analyzers.exporters import ExportResult, all_exporters
from workbench.commands.report import table


def format_lines() -> list[str]:
    """Return a row per export format."""
    rows = [
        (e.name, e.title, e.version, "run in the toolchain" if e.tier == 1 else "after its documentation")
        for e in all_exporters().values()
    ]
    return table(("name", "what", "written for", "checked"), rows)


def export_lines(result: ExportResult) -> list[str]:
    """Return what was written and what it holds."""
    lines = [f"wrote: {path}" for path in result.files]
    lines.append(f"out of INT8, as read back: {', '.join(result.fallback) or 'no layer'}")
    if result.unmapped:
        lines.append(f"no name for these in {result.format}, they stay INT8: {', '.join(result.unmapped)}")
    return lines
