"""``tearline diagnose``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from analyzers.deserialize import read_record
from workbench.commands.compose import takes
from workbench.commands.options import Asked, read_asked

EXAMPLES = r"""
tearline diagnose model.onnx model_int8.onnx --data photos/ --task task.yaml
tearline diagnose model.onnx model_int8.onnx --data inputs.npz --calibration calibration.npz
tearline diagnose model.onnx model_int8.onnx --data inputs.npz --candidate-data board_inputs.npz \
    --json diagnosis.json
"""


@takes(asked=read_asked)
def diagnose(
    *,
    asked: Asked,
    threshold_db: Annotated[
        float,
        typer.Option(metavar="DB", help="An output is bad when its SQNR is below it."),
    ] = 16.9,
    proof_samples: Annotated[int, typer.Option(min=1, help="Samples that causes are proved on.")] = 8,
    max_runs: Annotated[int, typer.Option(min=1, help="Most what-if models to run.")] = 120,
) -> None:
    """Say what is wrong, why, and what to do: causes are proved by undoing them.

    Exits with 1 if the verdict is anything but healthy. With CANDIDATE given, --calibration is what its
    ranges were measured on: it is compared with the samples.
    """
    from analyzers.records import DiagnoseOptions, Diagnosis
    from workbench.commands.diagnosis_report import diagnosis_lines
    from workbench.commands.report import show, warn
    from workbench.commands.running import run_job
    from workbench.requests import DiagnoseRequest

    options = DiagnoseOptions(threshold_db=threshold_db, samples=proof_samples, max_runs=max_runs)
    result = run_job(
        "diagnose", DiagnoseRequest(asked.inputs, options), partial(read_record, Diagnosis), asked.run
    )
    warn(result.warnings)
    show(diagnosis_lines(result))
    if result.verdict != "healthy":
        raise typer.Exit(1)
