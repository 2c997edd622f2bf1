"""onnxruntime's static quantizer: ``nodes_to_exclude``, and a script that calls it.

``quantize_static`` ignores names that it does not know and nodes without a name, so the script names nodes
first and refuses names that the model does not have.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from analyzers.contracts import SampleSet
from analyzers.deserialize import from_json
from analyzers.errors import InputError
from analyzers.exporters import Exporter, ExportRequest, Written, check_plan
from analyzers.exporters._names import layers_of_nodes, nodes_of
from analyzers.exporters._quantizer import Quantizer, quantizer_of
from analyzers.exporters._script import SCRIPT
from analyzers.project import Pair
from analyzers.quantizing import quantize
from analyzers.records import Notice, Plan, QuantizeOptions, QuantizeResult
from analyzers.serialize import JsonValue, to_json
from analyzers.steps import Steps

_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}


@dataclass(frozen=True, slots=True)
class Settings:
    """Arguments of ``quantize_static`` by name; enumerations by the names of their members."""

    quant_format: str
    per_channel: bool
    activation_type: str
    weight_type: str
    calibrate_method: str
    extra_options: dict[str, bool | float]


@dataclass(frozen=True, slots=True)
class OrtFile:
    """The JSON file.

    Attributes:
        model: Name of the reference.
        nodes_to_exclude: Nodes that stay float.
        quantize_static: The other arguments.
    """

    model: str
    nodes_to_exclude: tuple[str, ...]
    quantize_static: Settings


def write(request: ExportRequest) -> Written:
    """Write the nodes as JSON, and the script that quantizes with them beside it."""
    quantizer = quantizer_of(request.pair, request.search)
    nodes = nodes_of(request.pair, request.plan.fallback)
    file = OrtFile(request.pair.reference.path.name, nodes, _settings(quantizer))
    request.output.write_text(_text(to_json(file)), encoding="utf-8")
    script = request.output.with_name(f"{request.output.stem}_quantize.py")
    script.write_text(SCRIPT.replace("{settings}", request.output.name), encoding="utf-8")
    return Written(notices=_notices(request, quantizer, nodes))


def read(path: Path, pair: Pair) -> frozenset[str]:
    """Return the layers whose nodes the file excludes."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as cause:
        raise InputError(
            "malformed_result", "The file is not JSON", where=str(path), hint="Export it again"
        ) from cause
    file = from_json(OrtFile, value, where=str(path))
    return layers_of_nodes(pair, file.nodes_to_exclude, where=str(path))


def requantize(
    pair: Pair, plan: Plan, calibration: SampleSet, options: QuantizeOptions, output: Path
) -> Steps[QuantizeResult]:
    """Quantize the reference again with the plan's nodes left in float: what the export really gives.

    Args:
        pair: The models that the plan is for.
        plan: Its layers stay float32, by onnxruntime's own rule: a tensor is quantized where any of its
            neighbours is.
        calibration: What ranges are measured on.
        options: How to quantize the rest.
        output: Where the new candidate goes.

    Raises:
        InputError: The plan does not fit the models, or calibration or output is wrong.
        BackendError: onnxruntime failed.
    """
    check_plan(pair, plan)
    options = replace(options, nodes_to_exclude=nodes_of(pair, plan.fallback))
    return (yield from quantize(pair.reference.path, calibration, options, output))


def _settings(quantizer: Quantizer) -> Settings:
    options = quantizer.options
    extra: dict[str, bool | float] = {}
    if options.symmetric:
        extra["ActivationSymmetric"] = True
    if options.method == "percentile":
        extra |= {"CalibPercentile": options.percentile, "CalibTensorRangeSymmetric": options.symmetric}
    return Settings(
        quant_format="QDQ" if options.format == "qdq" else "QOperator",
        per_channel=options.per_channel,
        activation_type=quantizer.activation_type,
        weight_type=quantizer.weight_type,
        calibrate_method=_METHODS[options.method],
        extra_options=extra,
    )


def _text(value: JsonValue) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _notices(request: ExportRequest, quantizer: Quantizer, nodes: tuple[str, ...]) -> tuple[Notice, ...]:
    notices = []
    if not quantizer.is_method_known:
        text = (
            "The candidate does not tell how its ranges were calibrated; the script says MinMax. Change "
            "calibrate_method if it was another"
        )
        notices.append(Notice("calibration_unknown", text))
    if quantizer.options.bins and quantizer.options.method != "minmax":
        text = f"quantize_static has no argument for the {quantizer.options.bins} bins of the calibration"
        notices.append(Notice("calibration_differs", text))
    if request.plan.rule != "nodes-to-exclude":
        text = (
            f"onnxruntime keeps a tensor in INT8 while any neighbour is INT8, the search's rule is "
            f"'{request.plan.rule}': the score will differ. Quantize with the script and score the result"
        )
        notices.append(Notice("other_storage_rule", text))
    if request.plan.precision == "fp16":
        text = "onnxruntime leaves excluded nodes in float32; convert them to float16 for the device"
        notices.append(Notice("other_precision", text))
    unnamed = _unnamed(request.pair, nodes)
    if unnamed:
        text = (
            "These nodes have no name of their own in the model, so onnxruntime cannot exclude them; the "
            f"script names them first: {', '.join(unnamed)}"
        )
        notices.append(Notice("unnamed_nodes", text, unnamed[0]))
    return tuple(notices)


def _unnamed(pair: Pair, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes that have no name, or a taken one, in the file itself."""
    proto = onnx.load(str(pair.reference.path), load_external_data=False)
    names = Counter(node.name for node in proto.graph.node if node.op_type != "Constant")
    return tuple(node for node in nodes if names[node] == 0)


ENTRY = Exporter(
    name="ort",
    title="onnxruntime quantize_static: nodes_to_exclude",
    version="onnxruntime 1.32.0",
    tier=1,
    suffix=".json",
    write=write,
    read=read,
)
