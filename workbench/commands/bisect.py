"""``tearline bisect``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from analyzers.deserialize import read_record
from workbench.commands.compose import takes
from workbench.commands.options import Asked, read_asked

EXAMPLES = r"""
tearline bisect model.onnx model_int8.onnx --data photos/ --task task.yaml --samples 4
"""


@takes(asked=read_asked)
def bisect(
    *,
    asked: Asked,
    threshold: Annotated[
        float, typer.Option(metavar="DB", help="A hybrid is bad when its output SQNR is below it.")
    ] = 16.9,
    runs: Annotated[int, typer.Option("--max-runs", min=1, help="Most hybrids to run.")] = 200,
    culprits: Annotated[
        int, typer.Option("--max-culprits", min=1, help="Most layers to repair in turn.")
    ] = 8,
) -> None:
    """Find the layers that break the output: run hybrids of both models and halve the interval."""
    from analyzers.records import BisectOptions, BisectResult
    from workbench.commands.report import bisection_lines, show, warn
    from workbench.commands.running import run_job
    from workbench.requests import BisectRequest

    options = BisectOptions(threshold_db=threshold, max_runs=runs, max_culprits=culprits)
    if asked.inputs.metric is not None:
        options = replace(options, metric=asked.inputs.metric)
    result = run_job(
        "bisect", BisectRequest(asked.inputs, options), partial(read_record, BisectResult), asked.run
    )
    warn(result.warnings)
    show(bisection_lines(result))
