"""What a report says, whatever its form: the set, its proof, the scores, and what they were measured on."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from analyzers.backends.onnxruntime_schemas import VERSION as ONNXRUNTIME
from analyzers.exporters import ExportRequest
from analyzers.graph import Model
from analyzers.records import Inputs, QuantizeOptions, SearchOptions, SearchResult, Trial
from analyzers.search_file import SearchFile


@dataclass(frozen=True, slots=True)
class Versions:
    """What computed."""

    tearline: str
    onnxruntime: str


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model file.

    Attributes:
        path: The file.
        digest: sha256 of it and its external data.
        opset: Opset of the default domain as it was read: at least 13.
        producer: What wrote it, as it says itself.
    """

    path: Path
    digest: str
    opset: int
    producer: str


@dataclass(frozen=True, slots=True)
class Member:
    """A layer of the fallback set.

    Attributes:
        layer: Its name.
        op_type: Type of its first node.
        nodes: Its reference nodes.
        weight_bytes: float32 bytes of its constants.
        without: The trial of the set without this layer; None if there is none.
        is_needed: That trial missed the target.
    """

    layer: str
    op_type: str
    nodes: tuple[str, ...]
    weight_bytes: int
    without: Trial | None
    is_needed: bool


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that is reported.

    Attributes:
        versions: What computed.
        reference: The FP32 model.
        candidate: The quantized model.
        members: The fallback set.
        search: The search's answer.
        inputs: What it was run on.
        options: What it was asked for.
        commands: How to repeat it on the command line; empty where the inputs are not known.
    """

    versions: Versions
    reference: ModelFacts
    candidate: ModelFacts
    members: tuple[Member, ...]
    search: SearchResult
    inputs: Inputs | None
    options: SearchOptions | None
    commands: tuple[str, ...]


def make_report(request: ExportRequest) -> Report:
    """Gather what is reported; the request has a search."""
    search = request.search
    assert search is not None
    return Report(
        versions=Versions(version("tearline"), ONNXRUNTIME),
        reference=_facts(request.pair.reference),
        candidate=_facts(request.pair.candidate),
        members=_members(request, search.result),
        search=search.result,
        inputs=search.inputs,
        options=search.options,
        commands=() if search.inputs is None else _commands(search, search.inputs),
    )


def _facts(model: Model) -> ModelFacts:
    producer = " ".join(p for p in (model.ir.producer_name, model.ir.producer_version) if p)
    return ModelFacts(model.path, model.digest, int(model.ir.graph.opset_imports.get("", 0)), producer)


def _members(request: ExportRequest, result: SearchResult) -> tuple[Member, ...]:
    fallback = frozenset(result.fallback)
    trials = {frozenset(trial.fallback): trial for trial in (*result.trials, *result.proof)}
    members = []
    for layer in request.pair.pairing.layers:
        if layer.name not in request.plan.fallback:
            continue
        trial = trials.get(fallback - {layer.name})
        is_needed = trial is not None and not trial.score >= result.target
        members.append(Member(layer.name, layer.op_type, layer.nodes, layer.weight_bytes, trial, is_needed))
    return tuple(members)


def _commands(search: SearchFile, inputs: Inputs) -> tuple[str, ...]:
    result, options = search.result, search.options
    words: list[object] = ["tearline", "search", inputs.reference]
    if inputs.candidate is not None:
        words.append(inputs.candidate)
    words += _option("--data", inputs.data)
    words += _option("--samples", inputs.samples)
    words += _option("--candidate-data", inputs.candidate_data)
    words += _option("--task", inputs.task)
    words += _option("--annotations", inputs.annotations)
    words += _option("--metric", inputs.metric)
    words += _option("--calibration", inputs.calibration)
    words += _option("--name-map", inputs.name_map)
    if inputs.candidate is None:
        words += _quantization(inputs.quantize)
    words += _asked(result, options)
    is_own = inputs.target_profile != "generic"
    words += _option("--target-profile", inputs.target_profile if is_own else None)
    # A profile of another target may have defaults of its own.
    if is_own or result.rule != "per-edge":
        words += ["--rule", result.rule]
    if is_own or result.precision != "fp16":
        words += ["--precision", result.precision]
    if result.mode == "literal":
        words.append("--literal")
    words += ["--json", "search.json"]
    return (
        _line(words),
        _line(["tearline", "export", "search.json", "--format", "onnx-sim", "-o", "mixed.onnx"]),
    )


def _asked(result: SearchResult, options: SearchOptions | None) -> list[object]:
    """Return the options of the search; without a record of them, the target alone."""
    if options is None:
        return ["--target", f"{result.target:.6g}"]
    default = SearchOptions()
    words = [*_option("--target", options.target), *_option("--max-drop", options.max_drop)]
    if options.budget != default.budget:
        words += ["--budget", f"{options.budget:g}"]
    for flag, patterns in (("--keep-int8", options.keep_int8), ("--force-fallback", options.force_fallback)):
        for pattern in patterns:
            words += [flag, pattern]
    words += _option("--max-layers", options.max_layers)
    if options.holdout:
        words += ["--holdout", f"{options.holdout:g}"]
    return words


def _quantization(options: QuantizeOptions) -> list[object]:
    default = QuantizeOptions()
    words: list[object] = []
    if options.method != default.method:
        words += ["--method", options.method]
    if not options.per_channel:
        words.append("--per-tensor")
    if options.symmetric:
        words.append("--symmetric")
    if options.format != default.format:
        words += ["--quant-format", options.format]
    if options.percentile != default.percentile:
        words += ["--percentile", f"{options.percentile:g}"]
    if options.bins != default.bins:
        words += ["--bins", options.bins]
    return words


def _option(flag: str, value: object | None) -> list[object]:
    return [] if value is None else [flag, value]


def _line(words: list[object]) -> str:
    return shlex.join(str(word) for word in words)
