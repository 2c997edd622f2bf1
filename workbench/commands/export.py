"""``tearline export``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from analyzers.deserialize import read_record
from workbench.commands.compose import takes
from workbench.commands.options import RunOptions, read_run
from workbench.commands.outputs import check_writable
from workbench.commands.words import bad_option

EXAMPLES = r"""
tearline export --list
tearline export search.json --format onnx -o mixed.onnx
tearline export search.json --format rknn --base model.quantization.cfg -o mixed.quantization.cfg
"""


@takes(run=read_run)
def export(
    *,
    search: Annotated[
        Path | None,
        typer.Argument(
            metavar="SEARCH.json", help="What `tearline search --json` wrote.", show_default=False
        ),
    ] = None,
    list_formats: Annotated[bool, typer.Option("--list", help="Show the formats and do nothing.")] = False,
    format_name: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="One of --list.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write.", show_default=False),
    ] = None,
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A file of yours to merge the answer into (rknn).", show_default=False
        ),
    ] = None,
    run: RunOptions,
) -> None:
    """Write the answer of a search for a toolchain, and read it back to be sure."""
    from analyzers.exporters import ExportResult, find_exporter
    from workbench.commands.export_report import export_lines, format_lines
    from workbench.commands.report import show, warn
    from workbench.commands.running import run_job
    from workbench.requests import ExportRequest

    if list_formats:
        show(format_lines())
        return
    if search is None:
        raise bad_option("There is nothing to export", "Give SEARCH.json, or --list to see the formats")
    if format_name is None or output is None:
        raise bad_option("An export needs --format NAME and --output FILE", "See the formats with --list")
    find_exporter(format_name)
    check_writable(output)
    request = ExportRequest(
        search=search.absolute(),
        format=format_name,
        output=output.absolute(),
        base=None if base is None else base.absolute(),
        allow_code=True,
    )
    result = run_job("export", request, partial(read_record, ExportResult), run)
    warn(result.warnings)
    show(export_lines(result))
