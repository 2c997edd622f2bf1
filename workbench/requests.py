"""What a job is asked for, one record per kind; ``to_json`` of it is the job's ``params``.

Paths are absolute: a worker runs in the folder of its job.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from analyzers.records import (
    BisectOptions,
    CompareOptions,
    DiagnoseOptions,
    Inputs,
    QuantizeOptions,
    SearchOptions,
)


@dataclass(frozen=True, slots=True)
class QuantizeRequest:
    """Make a candidate from a calibration set; kind "quantize".

    Attributes:
        reference: FP32 ONNX file.
        data: Calibration set.
        output: Where the candidate goes.
        task: Task file that says how images become tensors.
        samples: Which samples; see ``Inputs.samples``.
        options: How it is quantized.
        allow_code: See ``Inputs.allow_code``.
    """

    reference: Path
    data: Path
    output: Path
    task: Path | None = None
    samples: str | None = None
    options: QuantizeOptions = field(default_factory=QuantizeOptions)
    allow_code: bool = False


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """Compare layer by layer; kind "compare"."""

    inputs: Inputs
    options: CompareOptions = field(default_factory=CompareOptions)


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """Find the layers that break the output; kind "bisect"."""

    inputs: Inputs
    options: BisectOptions = field(default_factory=BisectOptions)


@dataclass(frozen=True, slots=True)
class DiagnoseRequest:
    """Say what is wrong and why; kind "diagnose"."""

    inputs: Inputs
    options: DiagnoseOptions = field(default_factory=DiagnoseOptions)


# Keys of a search's JSON beside those of ``SearchResult``: what it was run on.
BESIDE_A_SEARCH = ("inputs", "options", "provenance")


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Find the cheapest fallback set that reaches a target; kind "search"."""

    inputs: Inputs
    options: SearchOptions


RunRequest: TypeAlias = CompareRequest | BisectRequest | DiagnoseRequest | SearchRequest


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """Write a search's answer for a toolchain; kind "export".

    Attributes:
        search: JSON file of a search, which names the models.
        format: Name of the exporter.
        output: File to write.
        base: A file of the user's to merge the answer into, for formats that can.
        allow_code: See ``Inputs.allow_code``; what the search file says does not count.
    """

    search: Path
    format: str
    output: Path
    base: Path | None = None
    allow_code: bool = False


@dataclass(frozen=True, slots=True)
class RequantizeRequest:
    """Quantize anew with the answer's nodes left out, and score what onnxruntime gives; kind "requantize".

    Attributes:
        search: JSON file of a search.
        calibration: What ranges are measured on.
        output: Where the new candidate goes.
        allow_code: As in ``ExportRequest``.
    """

    search: Path
    calibration: Path
    output: Path
    allow_code: bool = False


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """Go the whole way on the shipped detector; kind "demo".

    Attributes:
        workspace: Folder that keeps scored plans and the exported file.
        workers: Processes that run models.
        samples: See ``Inputs.samples``.
        max_drop: See ``SearchOptions``; None for the demo's own.
    """

    workspace: Path
    workers: int = 1
    samples: str | None = None
    max_drop: float | None = None
