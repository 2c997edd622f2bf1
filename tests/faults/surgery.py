"""Edit a quantized network: find and rewrite weights, biases and stores in QDQ and in QOperator form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from analyzers.records import Array

DEQUANTIZE = "DequantizeLinear"
QUANTIZE = "QuantizeLinear"
_BIAS_INPUT = {"QLinearConv": 8, "QGemm": 6, "Conv": 2, "ConvTranspose": 2, "Gemm": 2}
_INPUT_SCALE = {"QLinearConv": 1, "QGemm": 1}


class UnsuitableError(Exception):
    """This network has no place for this fault; draw another."""


@dataclass(frozen=True, eq=False)
class StoredWeight:
    """A quantized weight.

    Attributes:
        name: Name of the float weight.
        integers: As stored.
        scale: () or (C,).
        zero: Like ``scale``.
        axis: Channel axis; meaningful where ``scale`` is (C,).
    """

    name: str
    integers: Array
    scale: Array
    zero: Array
    axis: int

    @property
    def real(self) -> Array:
        """What the integers stand for, float32."""
        return (self.integers.astype(np.float32) - self.broad(self.zero)) * self.broad(self.scale)

    def broad(self, values: Array) -> Array:
        """Return values per channel, or the only one, in a shape that spreads over the integers."""
        if values.ndim == 0:
            return values.astype(np.float32)
        shape = [1] * self.integers.ndim
        shape[self.axis] = -1
        return values.astype(np.float32).reshape(shape)


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy that can be edited."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def constants_of(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return initializers by name."""
    return {t.name: t for t in model.graph.initializer}


def constant(model: onnx.ModelProto, name: str) -> Array:
    """Return an initializer's value."""
    found = constants_of(model).get(name)
    if found is None:
        raise UnsuitableError(f"there is no constant {name}")
    return numpy_helper.to_array(found).copy()


def set_constant(model: onnx.ModelProto, name: str, array: Array) -> None:
    """Replace an initializer's value, or add one."""
    tensor = numpy_helper.from_array(np.asarray(array, order="C"), name)
    found = constants_of(model).get(name)
    if found is None:
        model.graph.initializer.append(tensor)
    else:
        found.CopyFrom(tensor)


def node_named(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    """Return the node that the quantizer kept for a reference node."""
    found: onnx.NodeProto
    for found in model.graph.node:
        if found.name in (name, f"{name}_quant"):
            return found
    raise UnsuitableError(f"the candidate has no node {name}")


def readers(model: onnx.ModelProto, value: str) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield who reads a value, and at which input."""
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            if name == value:
                yield node, i


def producer(model: onnx.ModelProto, value: str) -> onnx.NodeProto | None:
    """Return the node that makes a value."""
    return next((node for node in model.graph.node if value in node.output), None)


def insert_after(model: onnx.ModelProto, anchor: onnx.NodeProto, *nodes: onnx.NodeProto) -> None:
    """Put nodes behind another one."""
    position = next(i for i, node in enumerate(model.graph.node) if node is anchor or node == anchor)
    for offset, node in enumerate(nodes, start=1):
        model.graph.node.insert(position + offset, node)


def insert_before(model: onnx.ModelProto, anchor: onnx.NodeProto, *nodes: onnx.NodeProto) -> None:
    """Put nodes in front of another one."""
    position = next(i for i, node in enumerate(model.graph.node) if node is anchor or node == anchor)
    for offset, node in enumerate(nodes):
        model.graph.node.insert(position + offset, node)


def set_attribute(node: onnx.NodeProto, name: str, value: object) -> None:
    """Set an attribute."""
    for i, attribute in enumerate(node.attribute):
        if attribute.name == name:
            del node.attribute[i]
            break
    node.attribute.append(helper.make_attribute(name, value))


def attribute(node: onnx.NodeProto, name: str, default: object = None) -> object:
    """Return an attribute's value."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


# ---- weights and biases


def channel_axis(node: onnx.NodeProto) -> int:
    """Return the axis of the output channels in a float node's weight."""
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    return {"Conv": 0, "ConvTranspose": 1, "MatMul": -1}[node.op_type]


def weight_of(candidate: onnx.ModelProto, node: onnx.NodeProto) -> StoredWeight:
    """Return how the candidate stores the weight of a float node."""
    name = node.input[1]
    integers = constant(candidate, f"{name}_quantized")
    return StoredWeight(
        name,
        integers,
        constant(candidate, f"{name}_scale"),
        constant(candidate, f"{name}_zero_point"),
        channel_axis(node) % integers.ndim,
    )


def write_integers(candidate: onnx.ModelProto, weight: StoredWeight, integers: Array) -> None:
    """Store other integers under the same scale."""
    set_constant(candidate, f"{weight.name}_quantized", integers.astype(weight.integers.dtype))


def write_weight(candidate: onnx.ModelProto, node: onnx.NodeProto, real: Array) -> None:
    """Store another weight, with scales that fit it; the bias keeps its value."""
    weight = weight_of(candidate, node)
    bias = bias_of(candidate, node)
    axes = tuple(i for i in range(real.ndim) if i != weight.axis)
    peak = np.abs(real).max(axes) if weight.scale.ndim else np.abs(real).max()
    limits = np.iinfo(weight.integers.dtype)
    room = min(limits.max - float(np.max(weight.zero)), float(np.min(weight.zero)) - limits.min)
    scale = (np.maximum(peak, 1e-9) / max(room, 1)).astype(np.float32)
    changed = StoredWeight(weight.name, weight.integers, scale, weight.zero, weight.axis)
    integers = np.round(real / changed.broad(scale)) + changed.broad(weight.zero)
    write_integers(candidate, weight, np.clip(integers, limits.min, limits.max))
    set_constant(candidate, f"{weight.name}_scale", scale)
    if bias is not None:
        write_bias(candidate, node, bias)


def coarsen_weight(candidate: onnx.ModelProto, node: onnx.NodeProto, factor: float) -> None:
    """Store a weight with a scale that is ``factor`` times as large; the bias keeps its value."""
    weight, bias = weight_of(candidate, node), bias_of(candidate, node)
    zero = weight.broad(weight.zero)
    limits = np.iinfo(weight.integers.dtype)
    integers = np.round((weight.integers - zero) / factor) + zero
    write_integers(candidate, weight, np.clip(integers, limits.min, limits.max))
    set_constant(candidate, f"{weight.name}_scale", (weight.scale * factor).astype(np.float32))
    if bias is not None:
        write_bias(candidate, node, bias)


def input_scale(candidate: onnx.ModelProto, node: onnx.NodeProto) -> Array:
    """Return the scale of the activation that a float node's twin reads."""
    twin = node_named(candidate, node.name)
    if twin.op_type in _INPUT_SCALE:
        return constant(candidate, twin.input[_INPUT_SCALE[twin.op_type]])
    source = producer(candidate, twin.input[0])
    while source is not None and source.op_type in ("Reshape", "Transpose", "Flatten", "Squeeze"):
        source = producer(candidate, source.input[0])
    if source is None or source.op_type != DEQUANTIZE:
        raise UnsuitableError(f"{node.name} reads a float activation")
    return constant(candidate, source.input[1])


def _bias_constants(candidate: onnx.ModelProto, node: onnx.NodeProto) -> tuple[str, str | None] | None:
    """Return the names of the bias integers and, in QDQ form, of their scale; None without a bias."""
    twin = node_named(candidate, node.name)
    index = _BIAS_INPUT.get(twin.op_type)
    if index is None or len(twin.input) <= index or not twin.input[index]:
        return None
    source = producer(candidate, twin.input[index])
    if source is None:
        name = twin.input[index]
        return (name, None) if constant(candidate, name).dtype == np.int32 else None
    return (source.input[0], source.input[1]) if source.op_type == DEQUANTIZE else None


def bias_of(candidate: onnx.ModelProto, node: onnx.NodeProto) -> Array | None:
    """Return the real bias that the candidate computes with; None where it has none in integers."""
    names = _bias_constants(candidate, node)
    if names is None:
        return None
    return constant(candidate, names[0]).astype(np.float64) * _bias_scale(candidate, node, names[1])


def _bias_scale(candidate: onnx.ModelProto, node: onnx.NodeProto, name: str | None) -> Array:
    if name is not None:
        return constant(candidate, name).astype(np.float64)
    return input_scale(candidate, node).astype(np.float64) * weight_of(candidate, node).scale


def write_bias(candidate: onnx.ModelProto, node: onnx.NodeProto, real: Array) -> None:
    """Store another bias, with the scale that follows from input and weight; saturates at 32 bits."""
    names = _bias_constants(candidate, node)
    if names is None:
        raise UnsuitableError(f"{node.name} has no quantized bias")
    scale = input_scale(candidate, node).astype(np.float64) * weight_of(candidate, node).scale
    limits = np.iinfo(np.int32)
    integers = np.clip(np.round(real / scale), limits.min, limits.max).astype(np.int32)
    set_constant(candidate, names[0], integers)
    if names[1] is not None:
        shape = constant(candidate, names[1]).shape
        set_constant(candidate, names[1], np.broadcast_to(scale, shape).astype(np.float32))


# ---- stores


def is_stored(candidate: onnx.ModelProto, tensor: str) -> bool:
    """Say whether the candidate stores a reference tensor under a scale of its own."""
    return f"{tensor}_scale" in constants_of(candidate)


def range_of(candidate: onnx.ModelProto, tensor: str) -> tuple[float, float]:
    """Return the lowest and highest value that a store can hold."""
    scale, zero = constant(candidate, f"{tensor}_scale"), constant(candidate, f"{tensor}_zero_point")
    limits = np.iinfo(zero.dtype)
    return float((limits.min - int(zero)) * scale), float((limits.max - int(zero)) * scale)


def set_range(candidate: onnx.ModelProto, tensor: str, low: float, high: float) -> None:
    """Let a store hold ``low`` .. ``high``; readers' biases follow, as a quantizer would make them."""
    zero = constant(candidate, f"{tensor}_zero_point")
    limits = np.iinfo(zero.dtype)
    low, high = min(low, 0.0), max(high, 0.0)
    if zero.dtype.kind == "i" and int(zero) == 0:
        scale, point = max(-low, high) / limits.max, 0
    else:
        scale = (high - low) / (limits.max - limits.min)
        point = int(np.clip(round(limits.min - low / scale), limits.min, limits.max))
    set_scale(candidate, tensor, scale)
    set_constant(candidate, f"{tensor}_zero_point", np.array(point, zero.dtype))


def set_scale(candidate: onnx.ModelProto, tensor: str, scale: float) -> None:
    """Change a store's scale alone; readers' biases follow where they still can."""
    name = f"{tensor}_scale"
    old = float(constant(candidate, name))
    set_constant(candidate, name, np.array(scale, np.float32))
    if not np.isfinite(scale) or scale <= 1e-20 or old <= 0:
        return
    for node in candidate.graph.node:
        integers, own_scale = _bias_of_reader(candidate, node, name)
        if integers is None:
            continue
        values = constant(candidate, integers).astype(np.float64) * (old / scale)
        limits = np.iinfo(np.int32)
        set_constant(candidate, integers, np.clip(np.round(values), limits.min, limits.max).astype(np.int32))
        if own_scale is not None:
            set_constant(
                candidate, own_scale, (constant(candidate, own_scale) * (scale / old)).astype(np.float32)
            )


def _bias_of_reader(
    candidate: onnx.ModelProto, node: onnx.NodeProto, scale_name: str
) -> tuple[str | None, str | None]:
    index = _BIAS_INPUT.get(node.op_type)
    if index is None or len(node.input) <= index or not node.input[index]:
        return None, None
    if node.op_type in _INPUT_SCALE:
        reads = node.input[_INPUT_SCALE[node.op_type]] == scale_name
        return (node.input[index], None) if reads else (None, None)
    source, bias = producer(candidate, node.input[0]), producer(candidate, node.input[index])
    if source is None or source.op_type != DEQUANTIZE or source.input[1] != scale_name:
        return None, None
    if bias is None or bias.op_type != DEQUANTIZE:
        return None, None
    return bias.input[0], bias.input[1]


def readers_of_scale(candidate: onnx.ModelProto, scale_name: str) -> list[tuple[onnx.NodeProto, int]]:
    """Return where integers are turned back with this scale: DequantizeLinear, or inputs of QLinear ops."""
    found = []
    for node, index in readers(candidate, scale_name):
        if node.op_type == QUANTIZE:
            continue
        is_output = node.op_type.startswith("QLinear") and _is_output_scale(node, index)
        if not is_output and not (node.op_type == "QGemm" and index == 7):
            found.append((node, index))
    return found


def _is_output_scale(node: onnx.NodeProto, index: int) -> bool:
    place = {
        "QLinearConv": 6,
        "QLinearMatMul": 6,
        "QLinearAdd": 6,
        "QLinearMul": 6,
        "QLinearSigmoid": 3,
        "QLinearLeakyRelu": 3,
        "QLinearGlobalAveragePool": 3,
        "QLinearAveragePool": 3,
        "QLinearSoftmax": 3,
        "QLinearConcat": 0,
    }
    return place.get(node.op_type, -1) == index


def without_stores(candidate: onnx.ModelProto, tensors: list[str]) -> onnx.ModelProto:
    """Return a QDQ candidate in which these tensors stay float."""
    result = copy_of(candidate)
    scales = {f"{tensor}_scale" for tensor in tensors}
    sources: dict[str, str] = {}
    for node in result.graph.node:
        if node.op_type == QUANTIZE and node.input[1] in scales:
            sources[node.output[0]] = node.input[0]
    replaced = {
        node.output[0]: sources[node.input[0]]
        for node in result.graph.node
        if node.op_type == DEQUANTIZE and node.input[0] in sources
    }
    leaving = {o.name for o in result.graph.output}
    for node in result.graph.node:
        node.input[:] = [replaced.get(name, name) for name in node.input]
        if node.op_type == DEQUANTIZE and node.output[0] in replaced and node.output[0] in leaving:
            identity = helper.make_node("Identity", [replaced[node.output[0]]], [node.output[0]])
            node.CopyFrom(identity)
    return result
