"""Make quantized models with onnxruntime's static quantizer, from ranges that were calibrated here.

The quantizer's own calibrators keep every tensor of every sample, write into the working directory and
print; only its graph rewriting is used.
"""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnxruntime.quantization import CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import TensorData, TensorsData
from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
from onnxruntime.quantization.quant_utils import QuantizationMode, add_infer_metadata
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

from analyzers import graph
from analyzers.backends.onnxruntime import first_line
from analyzers.calibration import Extremes
from analyzers.errors import BackendError
from analyzers.records import Array, QuantizeOptions

_CALIBRATED_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_INFERRED_MARK = "onnx.infer"
_HIDDEN = "-in-float"


def calibrated_tensors(model: ir.Model) -> tuple[str, ...]:
    """Return the float tensors that the quantizer may ask the range of, in topological order."""
    found: dict[str, None] = {}
    for node in model.graph:
        if node.op_type not in QLinearOpsRegistry and node.op_type not in QDQRegistry:
            continue
        for value in (*node.inputs, *node.outputs):
            if (
                value is not None
                and value.name
                and value.dtype in _CALIBRATED_TYPES
                and not _is_constant(value)
            ):
                found[value.name] = None
    return tuple(found)


def _is_constant(value: ir.Value) -> bool:
    return value.is_initializer()


class TensorReader:
    """An open session that yields tensors of a model: whole, or their extremes only."""

    def __init__(self, model: ir.Model, names: Sequence[str], folder: Path, *, extremes_only: bool) -> None:
        """Open a copy of the model whose outputs are these tensors.

        Args:
            model: The float model; it is not changed.
            names: Tensors of its main graph.
            folder: Where the copy is written; it must outlive the session.
            extremes_only: Reduce each tensor inside the graph, so that its memory can be used again.

        Raises:
            BackendError: onnxruntime cannot open it.
        """
        self.names = tuple(names)
        copy = model.clone()
        if extremes_only:
            _reduce(copy, self.names)
        else:
            values = {value.name: value for value in graph.all_values(copy.graph)}
            copy.graph.outputs[:] = [values[name] for name in self.names]
        path = graph.save_model(copy, folder, name="extremes.onnx" if extremes_only else "tensors.onnx")
        options = ort.SessionOptions()
        # As the quantizer's own calibration: the graph as it stands, every tensor exists.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        try:
            self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as cause:
            raise BackendError(
                "model_not_runnable", f"onnxruntime cannot open the model: {first_line(cause)}"
            ) from cause

    def read(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the tensors in order; with ``extremes_only`` the lows, then the highs.

        Raises:
            BackendError: The model cannot be run on these feeds.
        """
        try:
            values = self._session.run(None, dict(feeds))
        except Exception as cause:
            raise BackendError(
                "run_failed", f"onnxruntime could not run the model: {first_line(cause)}"
            ) from cause
        return [np.asarray(value) for value in values]


def extremes_of(reader: TensorReader, feeds: Mapping[str, Array]) -> dict[str, Extremes]:
    """Return the extremes of each of the reader's tensors on one sample; empty tensors count as zero."""
    values = reader.read(feeds)
    count = len(reader.names)
    return {
        name: Extremes(float(low.min()), float(high.max())) if low.size else Extremes(0.0, 0.0)
        for name, low, high in zip(reader.names, values[:count], values[count:], strict=True)
    }


def _reduce(model: ir.Model, names: Sequence[str]) -> None:
    values = {value.name: value for value in graph.all_values(model.graph)}
    outputs: dict[str, list[ir.Value]] = {"ReduceMin": [], "ReduceMax": []}
    for position, name in enumerate(names):
        source = values[name]
        if source.dtype == ir.DataType.FLOAT16:
            cast = ir.node("Cast", [source], {"to": ir.DataType.FLOAT.value})
            model.graph.append(cast)
            source = cast.outputs[0]
            source.name = f"tearline_cast_{position}"
        for op_type, results in outputs.items():
            # keepdims: onnxruntime cannot reduce an empty axis away.
            node = ir.node(op_type, [source], {"keepdims": 1})
            node.outputs[0].name = f"tearline_{op_type}_{position}"
            node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
            model.graph.append(node)
            results.append(node.outputs[0])
    model.graph.outputs[:] = [value for results in outputs.values() for value in results]
    model.graph.sort()


def rewrite(
    model: ir.Model, ranges: Mapping[str, Extremes], excluded: Sequence[str], options: QuantizeOptions
) -> onnx.ModelProto:
    """Return the quantized form of a float model.

    Args:
        model: Opset 13 or newer, every node with a name of its own; it is not changed.
        ranges: Finite range of every tensor in ``calibrated_tensors`` that may be quantized.
        excluded: Nodes to leave in float.
        options: Format, granularity and symmetry.

    Raises:
        BackendError: The quantizer failed.
    """
    proto = ir.to_proto(_with_weights_in_memory(model))
    types = {value.name: value.dtype for value in graph.all_values(model.graph)}
    data = {name: _tensor_data(extremes, types[name]) for name, extremes in ranges.items()}
    try:
        with _silence():
            # Types are complete; without the mark the quantizer would write and infer the model again.
            add_infer_metadata(proto)
            if options.format == "qdq":
                result = _run(QDQQuantizer, proto, (), data, excluded, options)
            else:
                inputs = _shield(proto)
                modes = (QuantizationMode.QLinearOps, True)  # statically quantized
                result = _run(ONNXQuantizer, proto, modes, data, excluded, options)
                _unshield(result, inputs)
    except Exception as cause:  # the quantizer asserts, and raises whatever its parts raise
        raise BackendError(
            "quantizer_failed",
            f"onnxruntime's quantizer failed: {first_line(cause)}",
            hint="Try the other --quant-format, or --per-tensor",
        ) from cause
    kept = [entry for entry in result.metadata_props if entry.key != _INFERRED_MARK]
    del result.metadata_props[:]
    result.metadata_props.extend(kept)
    return result


def _run(
    build: Callable[..., Any],
    proto: onnx.ModelProto,
    modes: tuple[object, ...],
    ranges: dict[str, Any],
    excluded: Sequence[str],
    options: QuantizeOptions,
) -> onnx.ModelProto:
    reduce_range = False
    quantizer = build(
        proto,
        options.per_channel,
        reduce_range,
        *modes,
        QuantType.QInt8,
        QuantType.QInt8 if options.symmetric else QuantType.QUInt8,
        TensorsData(CalibrationMethod.MinMax, ranges),  # with ready ranges the method is only a label
        [],
        list(excluded),
        sorted({*QLinearOpsRegistry, *QDQRegistry}),
        {"ActivationSymmetric": options.symmetric},
    )
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    result: onnx.ModelProto = quantizer.model.model
    return result


def _tensor_data(extremes: Extremes, dtype: ir.DataType | None) -> object:
    # The scale takes the type of the range, and must have that of the tensor.
    of_tensor = np.float16 if dtype == ir.DataType.FLOAT16 else np.float32
    build: Callable[..., object] = TensorData
    return build(lowest=np.array(extremes.low, of_tensor), highest=np.array(extremes.high, of_tensor))


def _shield(proto: onnx.ModelProto) -> dict[str, int]:
    """Hide from the QOperator quantizer what it would break.

    It takes over every Where, without dequantizing its inputs; and it does not see what subgraphs read
    from outside, so it leaves those tensors without a producer. The first are renamed, the second listed
    as inputs.

    Returns:
        Number of inputs that nodes with subgraphs really have, by node name.
    """
    inputs: dict[str, int] = {}
    for node in proto.graph.node:
        if node.op_type == "Where":
            node.op_type += _HIDDEN
        captured = _captured(node)
        if captured:
            inputs[node.name] = len(node.input)
            node.input.extend(captured)
    return inputs


def _unshield(proto: onnx.ModelProto, inputs: Mapping[str, int]) -> None:
    for node in proto.graph.node:
        node.op_type = node.op_type.removesuffix(_HIDDEN)
        if node.name in inputs:
            del node.input[inputs[node.name] :]


def _captured(node: onnx.NodeProto) -> list[str]:
    found: dict[str, None] = {}
    for attribute in node.attribute:
        for subgraph in (attribute.g, *attribute.graphs):
            own = {v.name for v in (*subgraph.input, *subgraph.initializer)}
            for inner in subgraph.node:
                found |= dict.fromkeys(n for n in (*inner.input, *_captured(inner)) if n and n not in own)
                own |= set(inner.output)
            found |= dict.fromkeys(v.name for v in subgraph.output if v.name not in own)
    return list(found)


def _with_weights_in_memory(model: ir.Model) -> ir.Model:
    copy = model.clone()
    ir.external_data.load_to_model(copy)
    return copy


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the quantizer's prints and its advice in the root logger to itself."""
    disabled, handler = logging.root.manager.disable, logging.NullHandler()
    # Without any handler the root logger would install one that stays.
    logging.root.addHandler(handler)
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)
        logging.root.removeHandler(handler)
