"""Make a candidate from a reference and a calibration set, as users of onnxruntime would."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from analyzers import graph, reading
from analyzers.backends import onnxruntime_quantizer as quantizer
from analyzers.backends.onnxruntime import open_session
from analyzers.calibration import Counts, Extremes, bins_of, choose_range, count_values
from analyzers.contracts import SampleSet
from analyzers.errors import InputError, SampleError
from analyzers.records import Notice, QuantizeOptions, QuantizeResult
from analyzers.sample_checks import non_finite_inputs, non_finite_notice
from analyzers.steps import Step, Steps

_SHOWN_NAMES = 5
_LARGE_BYTES = 1 << 30
_OPSET_OF_HALF_SCALES = 19


def quantize(
    reference: Path, samples: SampleSet, options: QuantizeOptions, output: Path
) -> Steps[QuantizeResult]:
    """Quantize a float model with onnxruntime's static quantizer.

    The model is lifted to opset 13 in memory where it is older, since per-channel scales need it; node and
    tensor names stay. Samples are run one at a time. Same inputs give the same bytes.

    Args:
        reference: Float ONNX file.
        samples: Calibration set; samples that hold NaN or infinite values are skipped with a warning.
        options: How to quantize.
        output: Where the candidate is written; it appears only when it is complete.

    Raises:
        ModelLoadError: The reference cannot be read, or is quantized already.
        SampleError: ``calibration_empty``, or ``nan_in_calibration`` if no sample is left.
        InputError: ``unknown_node`` in the options, or the output cannot be written.
        BackendError: onnxruntime failed.
    """
    model = graph.read_model(reference)
    if _has_half_precision(model.ir):
        model = graph.read_model(reference, opset=_OPSET_OF_HALF_SCALES)
    if reading.is_quantized(model.ir):
        raise reading.already_quantized(reference)
    if len(samples) == 0:
        raise SampleError(
            "calibration_empty",
            "The calibration set is empty: it contains no sample",
            hint="Give a calibration set of at least one sample",
        )
    _check_nodes(model.ir, options.nodes_to_exclude)
    common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model.ir)
    with tempfile.TemporaryDirectory(prefix="tearline-") as folder:
        calibration = yield from _calibrate(model.ir, samples, options, Path(folder))
    yield Step("quantize", 0, 1)
    finite = {name: range_ for name, range_ in calibration.ranges.items() if range_.is_finite}
    excluded = _neighbours(model.ir, set(calibration.ranges) - set(finite))
    proto = quantizer.rewrite(model.ir, finite, [*excluded, *options.nodes_to_exclude], options)
    float_operators = _float_operators(model.ir, proto)
    _write(proto, output)
    open_session(output)
    yield Step("quantize", 1, 1)
    return QuantizeResult(
        candidate=output,
        options=options,
        samples=calibration.samples,
        float_operators=float_operators,
        warnings=(*model.notices, *_notices(calibration, excluded)),
    )


def _has_half_precision(model: ir.Model) -> bool:
    return any(value.dtype == ir.DataType.FLOAT16 for value in graph.all_values(model.graph))


@dataclass(frozen=True, slots=True)
class _Calibration:
    """What the samples said.

    Attributes:
        ranges: Tensor -> range to quantize over, in topological order.
        samples: Names of the samples that were used.
        skipped: Sample that was not used -> its inputs that are not finite.
        is_plain_minmax: Another method was asked for, and chose the extremes for every tensor.
    """

    ranges: dict[str, Extremes]
    samples: tuple[str, ...]
    skipped: dict[str, tuple[str, ...]]
    is_plain_minmax: bool


def _calibrate(
    model: ir.Model, samples: SampleSet, options: QuantizeOptions, folder: Path
) -> Steps[_Calibration]:
    skipped: dict[str, tuple[str, ...]] = {}
    passes = 1 if options.method == "minmax" else 2
    extremes = yield from _find_extremes(model, samples, skipped, passes, folder)
    used = [index for index, name in enumerate(samples.names) if name not in skipped]
    if not used:
        notice = non_finite_notice(skipped, code="nan_in_calibration", where="")
        raise SampleError(
            notice.code,
            f"No calibration sample can be used: {notice.message}",
            hint="Give calibration samples that are finite",
        )
    counts: dict[str, Counts] = {}
    if passes == 2:
        counts = yield from _count(model, extremes, samples, used, bins_of(options), folder)
    empty = np.zeros(0, np.int64)
    ranges: dict[str, Extremes] = {}
    for name, found in extremes.items():
        yield Step("choose ranges", len(ranges), len(extremes), name)
        ranges[name] = choose_range(counts.get(name, empty), found, options)
    is_plain_minmax = options.method != "minmax" and ranges == extremes
    return _Calibration(ranges, tuple(samples.names[i] for i in used), skipped, is_plain_minmax)


def _find_extremes(
    model: ir.Model, samples: SampleSet, skipped: dict[str, tuple[str, ...]], passes: int, folder: Path
) -> Steps[dict[str, Extremes]]:
    """Merge the extremes of all tensors; samples that are not finite are added to ``skipped``."""
    names = quantizer.calibrated_tensors(model)
    reader = quantizer.TensorReader(model, names, folder, extremes_only=True)
    extremes: dict[str, Extremes] = {}
    for index in range(len(samples)):
        sample = samples[index]
        yield Step("calibrate", index, passes * len(samples), sample.name)
        if inputs := non_finite_inputs(sample):
            skipped[sample.name] = inputs
            continue
        for name, found in quantizer.extremes_of(reader, sample.feeds).items():
            extremes[name] = extremes[name].merge(found) if name in extremes else found
    return extremes


def _count(
    model: ir.Model,
    extremes: dict[str, Extremes],
    samples: SampleSet,
    used: Sequence[int],
    bins: int,
    folder: Path,
) -> Steps[dict[str, Counts]]:
    limits = {name: found.limit for name, found in extremes.items() if found.is_finite}
    reader = quantizer.TensorReader(model, tuple(limits), folder, extremes_only=False)
    counts = {name: np.zeros(bins, np.int64) for name in limits}
    for position, index in enumerate(used):
        sample = samples[index]
        yield Step("calibrate", len(samples) + position, 2 * len(samples), sample.name)
        for name, values in zip(reader.names, reader.read(sample.feeds), strict=True):
            counts[name] += count_values(values, limits[name], bins)
    return counts


def _check_nodes(model: ir.Model, names: Sequence[str]) -> None:
    """Refuse names that the quantizer would silently ignore."""
    unknown = sorted(set(names) - {graph.node_name(node) for node in model.graph})
    if unknown:
        raise InputError(
            "unknown_node",
            f"The reference has no node '{unknown[0]}' to keep in float",
            hint="Give node names as the comparison lists them",
        )


def _neighbours(model: ir.Model, tensors: Collection[str]) -> list[str]:
    """Return the nodes that write or read one of these tensors."""
    return [
        graph.node_name(node)
        for node in model.graph
        if any(value is not None and value.name in tensors for value in (*node.inputs, *node.outputs))
    ]


def _notices(calibration: _Calibration, excluded: Sequence[str]) -> list[Notice]:
    notices = []
    if calibration.skipped:
        notices.append(non_finite_notice(calibration.skipped, code="nan_in_calibration", where=""))
    if calibration.is_plain_minmax:
        notices.append(
            Notice(
                "same_as_minmax",
                "The calibration method chose the same ranges as MinMax for every tensor; entropy needs more "
                "histogram bins than onnxruntime's default of 128 to choose others",
            )
        )
    zero = [name for name, range_ in calibration.ranges.items() if range_.is_finite and range_.is_zero]
    if zero:
        notices.append(
            Notice(
                "zero_range_in_calibration",
                f"{len(zero)} tensors were never active during calibration (always 0) and got the scale 1, "
                f"so what they hold later is rounded to whole numbers: {_shortened(zero)}",
                where=zero[0],
            )
        )
    endless = [name for name, range_ in calibration.ranges.items() if not range_.is_finite]
    if endless:
        notices.append(
            Notice(
                "infinite_range_in_calibration",
                f"{len(endless)} tensors held NaN or infinite values during calibration "
                f"({_shortened(endless)}); the operators around them stay in float: {_shortened(excluded)}",
                where=endless[0],
            )
        )
    return notices


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def _float_operators(model: ir.Model, candidate: onnx.ModelProto) -> tuple[str, ...]:
    """Return the reference's operators whose float result the candidate does not quantize."""
    quantized = {node.input[0] for node in candidate.graph.node if node.op_type == "QuantizeLinear"}
    remaining = {name for node in candidate.graph.node for name in node.output}
    remaining -= {n for d in candidate.graph.node if d.op_type == "DequantizeLinear" for n in d.output}
    return tuple(
        graph.node_name(node)
        for node in model.graph
        if any(
            value.dtype in graph.FLOAT_TYPES and value.name in remaining and value.name not in quantized
            for value in node.outputs
        )
    )


def _write(proto: onnx.ModelProto, output: Path) -> None:
    partial = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        if sum(len(tensor.raw_data) for tensor in proto.graph.initializer) > _LARGE_BYTES:
            weights = f"{output.name}.data"
            output.with_name(weights).unlink(missing_ok=True)  # onnx would append to it
            onnx.save_model(proto, partial, save_as_external_data=True, location=weights)
        else:
            partial.write_bytes(proto.SerializeToString(deterministic=True))
        partial.replace(output)
    except OSError as cause:
        partial.unlink(missing_ok=True) if partial.parent.is_dir() else None
        code = "disk_full" if cause.errno in (errno.ENOSPC, errno.EDQUOT) else "output_not_writable"
        raise InputError(
            code,
            f"Cannot write the candidate: {cause.strerror or cause}",
            where=str(output),
            hint="Choose a folder that exists, that you may write to and that has room",
        ) from cause
