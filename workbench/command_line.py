"""The command that does what a button does, to be copied into a terminal or a script."""

from __future__ import annotations

import shlex
from pathlib import Path

from analyzers.records import (
    BisectOptions,
    CompareOptions,
    DiagnoseOptions,
    Inputs,
    QuantizeOptions,
    SearchOptions,
)
from workbench.requests import (
    BisectRequest,
    CompareRequest,
    DiagnoseRequest,
    ExportRequest,
    RunRequest,
    SearchRequest,
)

_BREAK = " \\\n    "


def command_line(request: RunRequest) -> str:
    """Return the command line of a request; options that have their default are left out."""
    match request:
        case CompareRequest(inputs, options):
            name, own = "compare", _compare_options(options)
        case BisectRequest(inputs, bisect):
            name, own = "bisect", _bisect_options(bisect)
        case DiagnoseRequest(inputs, diagnose):
            name, own = "diagnose", _diagnose_options(diagnose)
        case SearchRequest(inputs, search):
            name, own = "search", [*_plan_options(inputs), *_search_options(search)]
    models = [_quote(inputs.reference)]
    if inputs.candidate is not None:
        models.append(_quote(inputs.candidate))
    lines = [f"tearline {name} {' '.join(models)}", *_input_options(inputs), *own]
    return _BREAK.join(lines)


def export_line(request: ExportRequest) -> str:
    """Return the command line of an export."""
    return f"tearline export {_quote(request.search)} --format {request.format} -o {_quote(request.output)}"


def _input_options(inputs: Inputs) -> list[str]:
    found: list[str] = []
    paths: tuple[tuple[str, Path | None], ...] = (
        ("--data", inputs.data),
        ("--candidate-data", inputs.candidate_data),
        ("--calibration", inputs.calibration),
        ("--name-map", inputs.name_map),
        ("--task", inputs.task),
        ("--annotations", inputs.annotations),
    )
    found.extend(f"{option} {_quote(path)}" for option, path in paths if path is not None)
    if inputs.metric is not None:
        found.append(f"--metric {inputs.metric}")
    if inputs.samples is not None:
        found.append(f"--samples {_quote(inputs.samples)}")
    if inputs.candidate is None:
        found.extend(_quantize_options(inputs.quantize))
    if inputs.mode == "literal":
        found.append("--literal")
    if inputs.workers != 1:
        found.append(f"--workers {inputs.workers}")
    return [*found, f"--workspace {_quote(inputs.workspace)}"]


def _quantize_options(options: QuantizeOptions) -> list[str]:
    default, found = QuantizeOptions(), []
    if options.method != default.method:
        found.append(f"--method {options.method}")
    if not options.per_channel:
        found.append("--per-tensor")
    if options.symmetric:
        found.append("--symmetric")
    if options.format != default.format:
        found.append(f"--quant-format {options.format}")
    if options.method == "percentile" and options.percentile != default.percentile:
        found.append(f"--percentile {options.percentile:g}")
    if options.bins != default.bins:
        found.append(f"--bins {options.bins}")
    return found


def _compare_options(options: CompareOptions) -> list[str]:
    found = []
    if options.threshold != CompareOptions().threshold:
        found.append(f"--threshold {options.threshold:g}")
    if not options.isolated:
        found.append("--no-isolated")
    return found


def _bisect_options(options: BisectOptions) -> list[str]:
    default, found = BisectOptions(), []
    if options.threshold_db != default.threshold_db:
        found.append(f"--threshold {options.threshold_db:g}")
    if options.max_runs != default.max_runs:
        found.append(f"--max-runs {options.max_runs}")
    if options.max_culprits != default.max_culprits:
        found.append(f"--max-culprits {options.max_culprits}")
    return found


def _diagnose_options(options: DiagnoseOptions) -> list[str]:
    default, found = DiagnoseOptions(), []
    if options.threshold_db != default.threshold_db:
        found.append(f"--threshold-db {options.threshold_db:g}")
    if options.samples != default.samples:
        found.append(f"--proof-samples {options.samples}")
    if options.max_runs != default.max_runs:
        found.append(f"--max-runs {options.max_runs}")
    return found


def _plan_options(inputs: Inputs) -> list[str]:
    """Return the options that say how plans are made; a profile of another target has its own rule."""
    default, found = Inputs(inputs.reference), []
    is_own = inputs.target_profile != default.target_profile
    if is_own:
        found.append(f"--target-profile {_quote(inputs.target_profile)}")
    if is_own or inputs.rule != default.rule:
        found.append(f"--rule {inputs.rule}")
    if is_own or inputs.precision != default.precision:
        found.append(f"--precision {inputs.precision}")
    return found


def _search_options(options: SearchOptions) -> list[str]:
    found = []
    if options.target is not None:
        found.append(f"--target {options.target:g}")
    if options.max_drop is not None:
        found.append(f"--max-drop {options.max_drop:g}")
    if options.budget is not None:
        found.append(f"--budget {options.budget:g}")
    found.extend(f"--keep-int8 {_quote(g)}" for g in options.keep_int8)
    found.extend(f"--force-fallback {_quote(g)}" for g in options.force_fallback)
    if options.max_layers is not None:
        found.append(f"--max-layers {options.max_layers}")
    if options.holdout:
        found.append(f"--holdout {options.holdout:g}")
    return found


def _quote(value: object) -> str:
    return shlex.quote(str(value))
