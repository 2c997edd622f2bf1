"""``tearline demo``."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated

import typer

from analyzers.deserialize import read_record
from workbench.commands.compose import takes
from workbench.commands.options import RunOptions, Samples, read_run, sample_choice

EXAMPLES = r"""
tearline demo
tearline demo --samples 40 --json demo.json
"""


@takes(run=read_run)
def demo(
    *,
    samples: Samples = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="How far below the reference's AP is acceptable.  [default: 0.01]",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that run models.  [default: one per core]", show_default=False),
    ] = None,
    run: RunOptions,
) -> None:
    """Go the whole way on the detector that is shipped: compare, bisect, search, export."""
    from analyzers.records import SearchResult
    from sample_models.demo import demo_paths
    from workbench.commands.export_report import export_lines
    from workbench.commands.report import (
        bisection_lines,
        comparison_summary,
        search_lines,
        show,
        warn,
    )
    from workbench.commands.running import run_job
    from workbench.requests import BESIDE_A_SEARCH, DemoRequest
    from workbench.tour import COMPARED, EXPORT_FORMAT, Tour, search_file

    request = DemoRequest(run.workspace, workers or os.cpu_count() or 1, sample_choice(samples), max_drop)
    tour = run_job("demo", request, partial(read_record, Tour), run)
    kept = search_file(run.workspace)
    search = read_record(SearchResult, kept, beside=BESIDE_A_SEARCH)
    warn((*tour.compare.warnings, *tour.bisect.warnings, *search.warnings, *tour.export.warnings))

    paths = demo_paths()
    given = f"{paths.reference} {paths.candidate} --data {paths.data} --task {paths.task}"
    scored = f"{given} --annotations {paths.annotations}"
    chosen = f" --samples {samples}" if samples else ""
    drop = paths.max_drop if max_drop is None else max_drop
    show(
        [
            f"$ tearline compare {scored} --samples {samples or COMPARED}",
            *comparison_summary(tour.compare),
            "",
        ]
    )
    show([f"$ tearline bisect {given}{chosen}", *bisection_lines(tour.bisect), ""])
    show(
        [
            f"$ tearline search {scored}{chosen} --max-drop {drop:g}",
            *search_lines(search),
            "",
        ]
    )
    exported = tour.export.files[0]
    show([f"$ tearline export {kept} --format {EXPORT_FORMAT} -o {exported}", *export_lines(tour.export)])
