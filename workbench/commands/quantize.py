"""``tearline quantize``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analyzers.deserialize import read_record
from workbench.commands.compose import takes
from workbench.commands.options import (
    Data,
    Reference,
    RunOptions,
    Samples,
    TaskFile,
    read_quantization,
    read_run,
    sample_choice,
)
from workbench.commands.outputs import check_writable

if TYPE_CHECKING:
    from analyzers.records import QuantizeOptions

EXAMPLES = r"""
tearline quantize model.onnx --data calibration/ --task task.yaml --samples 32 -o model_int8.onnx
"""


@takes(quantize=read_quantization, run=read_run)
def quantize(
    *,
    reference: Reference,
    data: Data,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="CANDIDATE", help="ONNX file to write.", show_default=False),
    ],
    task: TaskFile = None,
    samples: Samples = None,
    quantize: QuantizeOptions,
    run: RunOptions,
) -> None:
    """Make an INT8 candidate from a calibration set with onnxruntime's static quantizer."""
    from analyzers.records import QuantizeResult
    from workbench.commands.report import quantization_lines, show, warn
    from workbench.commands.running import run_job
    from workbench.requests import QuantizeRequest

    check_writable(output)
    request = QuantizeRequest(
        reference=reference.absolute(),
        data=data.absolute(),
        output=output.absolute(),
        task=None if task is None else task.absolute(),
        samples=sample_choice(samples),
        options=quantize,
        allow_code=True,
    )
    result = run_job("quantize", request, partial(read_record, QuantizeResult), run)
    warn(result.warnings)
    show(quantization_lines(result))
