"""The options that commands share; they mean the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from analyzers.selection import names_a_file
from workbench.commands.compose import takes
from workbench.commands.outputs import check_writable
from workbench.commands.words import bad_option
from workbench.store import default_workspace

if TYPE_CHECKING:
    from analyzers.records import CalibrationMethod, Inputs, QuantFormat, QuantizeOptions

Reference = Annotated[Path, typer.Argument(metavar="REFERENCE", help="FP32 ONNX file.", show_default=False)]
Data = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DATA",
        help="Samples: a folder of images, an .npz file or a folder of .npz files.",
        show_default=False,
    ),
]
TaskFile = Annotated[
    Path | None,
    typer.Option(
        "--task", metavar="YAML", help="Task file: preprocessing, decoder and metric.", show_default=False
    ),
]
Samples = Annotated[
    str | None,
    typer.Option(
        "--samples",
        metavar="N|START::STEP|FILE",
        help="The first N samples in name order, every STEP-th from START, or those named in FILE.",
        show_default=False,
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write the whole answer as JSON.", show_default=False),
]

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_MEMORY_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a command's job is run.

    Attributes:
        workspace: Folder that keeps results and scored plans.
        memory_bytes: Most memory that one worker process may allocate; None for all of the machine's.
        json: File for the whole answer.
    """

    workspace: Path
    memory_bytes: int | None
    json: Path | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What comparisons, bisections and searches are all given."""

    inputs: Inputs
    run: RunOptions


def read_run(
    *,
    json: JsonFile = None,
    workspace: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where results and scored plans are kept.  [default: $TEARLINE_WORKSPACE or .tearline]",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Most memory that a worker may allocate, for example 6G.", show_default=False
        ),
    ] = None,
) -> RunOptions:
    """Read how the job is run; a file that cannot be written is refused before anything runs."""
    if json is not None:
        check_writable(json)
    return RunOptions(
        workspace=(workspace or default_workspace()).absolute(),
        memory_bytes=None if memory is None else memory_bytes(memory),
        json=json,
    )


def read_quantization(
    *,
    method: Annotated[
        str, typer.Option(metavar="minmax|entropy|percentile", help="How activation ranges are calibrated.")
    ] = "minmax",
    per_channel: Annotated[
        bool,
        typer.Option("--per-channel/--per-tensor", help="A weight scale per output channel, or one for all."),
    ] = True,
    symmetric: Annotated[
        bool, typer.Option("--symmetric/--asymmetric", help="Activations with zero point 0, or with any.")
    ] = False,
    quant_format: Annotated[
        str, typer.Option(metavar="qdq|qoperator", help="Form of the candidate's graph.")
    ] = "qdq",
    percentile: Annotated[
        float, typer.Option(min=50.0, max=100.0, help="Percent of the values that --method percentile keeps.")
    ] = 99.999,
    bins: Annotated[
        int,
        typer.Option(
            min=0, help="Histogram bins of entropy and percentile; 0 for onnxruntime's 128 and 2048."
        ),
    ] = 0,
) -> QuantizeOptions:
    """Read how a candidate is made."""
    from analyzers.records import QuantizeOptions

    return QuantizeOptions(
        method=cast("CalibrationMethod", one_of(method, ("minmax", "entropy", "percentile"), "--method")),
        per_channel=per_channel,
        symmetric=symmetric,
        format=cast("QuantFormat", one_of(quant_format, ("qdq", "qoperator"), "--quant-format")),
        percentile=percentile,
        bins=bins,
    )


@takes(quantize=read_quantization, run=read_run)
def read_asked(
    *,
    reference: Reference,
    candidate: Annotated[
        Path | None,
        typer.Argument(
            metavar="CANDIDATE",
            help="Quantized ONNX file; without it REFERENCE is quantized from --calibration.",
            show_default=False,
        ),
    ] = None,
    data: Data,
    task: TaskFile = None,
    annotations: Annotated[
        Path | None,
        typer.Option(metavar="COCO.json", help="Ground truth of the images.", show_default=False),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="sqnr|slice-sqnr", help="Score without labels: output SQNR in dB.", show_default=False
        ),
    ] = None,
    samples: Samples = None,
    candidate_data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA", help="What the candidate was fed, where that differs.", show_default=False
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(metavar="DATA", help="Calibration set, in the forms of --data.", show_default=False),
    ] = None,
    name_map: Annotated[
        Path | None,
        typer.Option(
            metavar="MAP.json",
            help="Tensors that belong together: {reference: candidate}.",
            show_default=False,
        ),
    ] = None,
    quantize: QuantizeOptions,
    literal: Annotated[
        bool,
        typer.Option(
            "--literal",
            help="Compute QuantizeLinear/DequantizeLinear as they stand, without integer kernels.",
        ),
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes that run models.")] = 1,
    run: RunOptions,
) -> Asked:
    """Read what every comparison of two models needs."""
    from analyzers.records import Inputs

    if candidate is None and calibration is None:
        raise bad_option(
            "There is no candidate to compare with",
            "Give CANDIDATE, or --calibration DATA to quantize REFERENCE on the way",
        )
    if metric is not None:
        one_of(metric, ("sqnr", "slice-sqnr"), "--metric")
    inputs = Inputs(
        reference=reference.absolute(),
        candidate=_absolute(candidate),
        data=data.absolute(),
        candidate_data=_absolute(candidate_data),
        calibration=_absolute(calibration),
        name_map=_absolute(name_map),
        task=_absolute(task),
        annotations=_absolute(annotations),
        metric=metric,
        samples=sample_choice(samples),
        quantize=quantize,
        workspace=run.workspace,
        workers=workers,
        mode="literal" if literal else "as-executed",
        allow_code=True,
    )
    return Asked(inputs, run)


def one_of(value: str, choices: Sequence[str], option: str) -> str:
    """Return the value if it is a choice.

    Raises:
        InputError: It is none.
    """
    if value not in choices:
        raise bad_option(f"{option} is '{value}'", f"Choose one of: {', '.join(choices)}")
    return value


def sample_choice(samples: str | None) -> str | None:
    """Return ``--samples`` with a file's path made absolute, since jobs run elsewhere."""
    if samples is None or not names_a_file(samples):
        return samples
    return str(Path(samples).absolute())


def memory_bytes(size: str) -> int:
    """Return the bytes of a size such as ``512M`` or ``6G``.

    Raises:
        InputError: It is no such size.
    """
    found = _MEMORY.fullmatch(size.strip())
    if found is None:
        raise bad_option(f"--memory is '{size}'", "Give a number and a unit, for example 512M or 6G")
    return int(float(found[1]) * _MEMORY_UNITS[found[2].upper()])


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()
