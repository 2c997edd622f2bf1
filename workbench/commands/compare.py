"""``tearline compare``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from analyzers.deserialize import read_record
from workbench.commands.compose import takes
from workbench.commands.options import Asked, read_asked

EXAMPLES = r"""
tearline compare model.onnx model_int8.onnx --data inputs.npz
tearline compare model.onnx model_int8.onnx --data photos/ --task task.yaml --samples 16
tearline compare model.onnx --calibration calibration/ --data photos/ --task task.yaml
tearline compare model.onnx model_int8.onnx --data inputs.npz --fail-under 0.99 --json compare.json
"""


@takes(asked=read_asked)
def compare(
    *,
    asked: Asked,
    threshold: Annotated[
        float, typer.Option(min=-1.0, max=1.0, help="Mark operators whose cosine is below it.")
    ] = 0.99,
    isolated: Annotated[
        bool,
        typer.Option("--isolated/--no-isolated", help="Also run each layer alone on the reference's values."),
    ] = True,
    fail_under: Annotated[
        float | None,
        typer.Option(
            metavar="COSINE", help="Exit 1 if any operator's cosine is below it, for CI.", show_default=False
        ),
    ] = None,
) -> None:
    """Run both models side by side and compare them layer by layer."""
    from analyzers.records import CompareOptions, Comparison
    from workbench.commands.report import comparison_lines, show, warn
    from workbench.commands.running import run_job
    from workbench.commands.words import cosine, say
    from workbench.requests import CompareRequest

    request = CompareRequest(asked.inputs, CompareOptions(threshold=threshold, isolated=isolated))
    result = run_job("compare", request, partial(read_record, Comparison), asked.run)
    warn(result.warnings)
    show(comparison_lines(result))
    if fail_under is not None:
        under = [o for o in result.layers if o.cosine < fail_under or "nan" in o.flags or "inf" in o.flags]
        if under:
            worst = min(under, key=lambda o: o.cosine)
            say(
                f"{len(under)} operators are below cosine {fail_under:g}, "
                f"the lowest is {worst.node} with {cosine(worst.cosine)}"
            )
            raise typer.Exit(1)
