"""Healthy networks that look ill: equalized, permuted, other layouts and types, oddities that do no harm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import onnx.version_converter
from numpy.random import Generator
from onnx import TensorProto, helper, numpy_helper

from tests.faults import architectures, data, surgery
from tests.faults.folding import folded
from tests.faults.network import Network
from tests.faults.quantization import Style, any_style, plain_style, quantize
from tests.faults.registry import Bench
from tests.faults.scoring import HEALTHY_DB, Scorer
from tests.faults.surgery import UnsuitableError

Change = Callable[[Bench], None]
HEALTHY: dict[str, Change] = {}


def healthy(change: Change) -> Change:
    """Register a way to be healthy under the function's name."""
    HEALTHY[change.__name__] = change
    return change


def draw(random: Generator, seed: int) -> tuple[str, Bench, float]:
    """Return the name of a way to be healthy, a network that is, and its score.

    Raises:
        UnsuitableError: This one turned out not to be healthy, or not to have what it takes.
    """
    name = sorted(HEALTHY)[seed % len(HEALTHY)]
    network = architectures.any_of(*architectures.ALL)(random)
    opset = network.model.opset_import[0].version
    style = any_style(random, opset=opset)
    if name in _IN_QDQ:
        style = plain_style(random, opset=opset)
    bench = _bench(random, network, style)
    HEALTHY[name](bench)
    score = _score(bench)
    if score < HEALTHY_DB:
        raise UnsuitableError(f"{name}: {score:.1f} dB")
    return name, bench, score


def _bench(random: Generator, network: Network, style: Style) -> Bench:
    source = folded(network.model)
    try:
        candidate = quantize(source, network.calibration, style)
        return Bench(random, network, style, source, candidate, Scorer(network.model, network.feeds))
    except Exception as cause:
        # See ``generate``: styles that the stock quantizer has no way to do for this network.
        raise UnsuitableError(f"cannot be quantized as {style}: {str(cause)[:120]}") from cause


def _score(bench: Bench) -> float:
    try:
        return bench.score(bench.candidate, feeds=bench.candidate_feeds)
    except Exception as cause:
        raise UnsuitableError(f"cannot be run: {str(cause)[:200]}") from cause


@healthy
def as_it_comes(bench: Bench) -> None:
    """Whatever the quantizer makes, in any style."""


@healthy
def calibration_given(bench: Bench) -> None:
    """With the calibration set at hand."""
    bench.calibration = bench.network.calibration


@healthy
def quantized_by_the_tool(bench: Bench) -> None:
    """No candidate is given; the tool makes one."""
    bench.style = Style(per_channel=bench.source.opset_import[0].version >= 13)
    bench.requantize()
    bench.calibration, bench.is_left_to_the_tool = bench.network.calibration, True


@healthy
def signed_among_unsigned(bench: Bench) -> None:
    """Some tensors are int8, others uint8."""
    tensors = [n.output[0] for n in bench.stored(outputs=False)]
    kinds = {"QInt8", "QUInt8"}
    if bench.style.activation not in kinds or len(tensors) < 3:
        raise UnsuitableError("no two types of eight bits")
    (other,) = kinds - {bench.style.activation}
    chosen = bench.random.choice(tensors, len(tensors) // 2, replace=False)
    bench.style = replace(bench.style, symmetric=False, types=dict.fromkeys(map(str, chosen), other))
    try:
        bench.requantize()
    except Exception as cause:  # types of tensors that must be alike differ now
        raise UnsuitableError(f"cannot be mixed: {str(cause)[:100]}") from cause
    bench.note(f"{len(chosen)} of {len(tensors)} tensors are {other}")


@healthy
def axes_counted_from_the_end(bench: Bench) -> None:
    """The axes of per-channel scales are negative."""
    count = 0
    for node in bench.candidate.graph.node:
        axis = surgery.attribute(node, "axis")
        if node.op_type != surgery.DEQUANTIZE or not isinstance(axis, int) or axis < 0:
            continue
        tensor = surgery.constants_of(bench.candidate).get(node.input[0])
        if tensor is not None and len(tensor.dims) > 1:
            surgery.set_attribute(node, "axis", axis - len(tensor.dims))
            count += 1
    if not count:
        raise UnsuitableError("no scales per channel")


@healthy
def same_data_twice(bench: Bench) -> None:
    """Candidate data are given, and are those of the reference."""
    bench.candidate_feeds = bench.network.feeds


# ---- what compilers do to weights


def _successive(bench: Bench) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    """Return two layers of which the second alone reads the first, with at most a Relu in between."""
    model = bench.source
    choices = []
    for first in bench.nodes("Conv", "Gemm"):
        value = first.output[0]
        reading = [n for n, _ in surgery.readers(model, value)]
        if len(reading) == 1 and reading[0].op_type in ("Relu", "LeakyRelu"):
            value = reading[0].output[0]
            reading = [n for n, _ in surgery.readers(model, value)]
        if len(reading) != 1 or reading[0].op_type != first.op_type or len(first.input) < 3:
            continue
        if any(surgery.attribute(n, "group", 1) != 1 for n in (first, reading[0])):
            continue
        if reading[0].input[0] == value and value not in {o.name for o in model.graph.output}:
            choices.append((first, reading[0]))
    if not choices:
        raise UnsuitableError("no two successive layers")
    return choices[int(bench.random.integers(len(choices)))]


def _axes(node: onnx.NodeProto) -> tuple[int, int]:
    """Return the output and input axis of a weight."""
    axis = surgery.channel_axis(node)
    return axis, 1 - axis


def _scaled(array: np.ndarray, factors: np.ndarray, axis: int) -> np.ndarray:
    shape = [1] * array.ndim
    shape[axis] = -1
    return np.asarray(array * factors.reshape(shape), np.float32)


@healthy
def equalized(bench: Bench) -> None:
    """Cross-layer equalization moved factors from one layer to the next."""
    first, second = _successive(bench)
    out_axis, _ = _axes(first)
    _, in_axis = _axes(second)
    weight, bias = (surgery.constant(bench.source, name) for name in first.input[1:3])
    after = surgery.constant(bench.source, second.input[1])
    factors = np.exp(bench.random.uniform(-0.9, 0.9, weight.shape[out_axis]))
    surgery.set_constant(bench.source, first.input[1], _scaled(weight, factors, out_axis))
    surgery.set_constant(bench.source, first.input[2], _scaled(bias, factors, 0))
    surgery.set_constant(bench.source, second.input[1], _scaled(after, 1 / factors, in_axis))
    bench.requantize()
    bench.note(f"equalized {first.name} and {second.name}")


@healthy
def permuted(bench: Bench) -> None:
    """The compiler reordered the channels between two layers."""
    first, second = _successive(bench)
    out_axis, _ = _axes(first)
    _, in_axis = _axes(second)
    weight, bias = (surgery.constant(bench.source, name) for name in first.input[1:3])
    after = surgery.constant(bench.source, second.input[1])
    order = bench.random.permutation(weight.shape[out_axis])
    surgery.set_constant(bench.source, first.input[1], np.take(weight, order, out_axis))
    surgery.set_constant(bench.source, first.input[2], bias[order])
    surgery.set_constant(bench.source, second.input[1], np.take(after, order, in_axis))
    bench.requantize()
    bench.note(f"permuted between {first.name} and {second.name}")


@healthy
def gain_undone(bench: Bench) -> None:
    """One layer is twice as large, the next one's weights half."""
    first, second = _successive(bench)
    weight, bias = (surgery.constant(bench.source, name) for name in first.input[1:3])
    after = surgery.constant(bench.source, second.input[1])
    factor = np.float32(bench.random.choice([0.5, 2.0, 4.0]))
    surgery.set_constant(bench.source, first.input[1], weight * factor)
    surgery.set_constant(bench.source, first.input[2], bias * factor)
    surgery.set_constant(bench.source, second.input[1], after / factor)
    bench.requantize()
    bench.note(f"{first.name} times {factor}, undone by {second.name}")


# ---- what compilers do to graphs


@healthy
def channels_last_inside(bench: Bench) -> None:
    """Tensors are stored with channels last, between two Transposes."""
    count = 0
    for node in list(bench.candidate.graph.node):
        if node.op_type != surgery.QUANTIZE or bench.random.integers(2):
            continue
        rank = _rank(bench, node.input[0])
        reading = [n for n, _ in surgery.readers(bench.candidate, node.output[0])]
        leaving = {o.name for o in bench.candidate.graph.output}
        if rank != 4 or len(reading) != 1 or reading[0].op_type != surgery.DEQUANTIZE:
            continue
        if reading[0].output[0] in leaving:
            continue
        _transpose_store(bench.candidate, node, reading[0])
        count += 1
    if not count:
        raise UnsuitableError("nothing to turn")
    bench.note(f"{count} tensors stored with channels last")


def _rank(bench: Bench, tensor: str) -> int:
    known = {v.name: v for v in (*bench.source.graph.input, *bench.source.graph.value_info)}
    if not bench.source.graph.value_info:
        inferred = onnx.shape_inference.infer_shapes(bench.source)
        bench.source.graph.value_info.extend(inferred.graph.value_info)
        known = {v.name: v for v in (*bench.source.graph.input, *bench.source.graph.value_info)}
    return len(known[tensor].type.tensor_type.shape.dim) if tensor in known else 0


def _transpose_store(
    model: onnx.ModelProto, quantize_node: onnx.NodeProto, dequantize: onnx.NodeProto
) -> None:
    source, result = quantize_node.input[0], dequantize.output[0]
    there = helper.make_node(
        "Transpose", [source], [f"{source}_nhwc"], name=f"{source}_to_nhwc", perm=[0, 2, 3, 1]
    )
    back = helper.make_node(
        "Transpose", [f"{result}_nhwc"], [result], name=f"{source}_to_nchw", perm=[0, 3, 1, 2]
    )
    surgery.insert_before(model, quantize_node, there)
    surgery.insert_after(model, dequantize, back)
    for node in model.graph.node:
        if node.op_type == surgery.QUANTIZE and node.output[0] == quantize_node.output[0]:
            node.input[0] = f"{source}_nhwc"
        if node.op_type == surgery.DEQUANTIZE and node.output[0] == result:
            node.output[0] = f"{result}_nhwc"


@healthy
def integers_in_and_out(bench: Bench) -> None:
    """The candidate takes and gives integers, as a device does."""
    model = bench.candidate
    inputs = [i.name for i in model.graph.input]
    feeds = [dict(feed) for feed in bench.network.feeds]
    for value in list(model.graph.input):
        quantize_node = next(
            (n for n, _ in surgery.readers(model, value.name) if n.op_type == surgery.QUANTIZE), None
        )
        if quantize_node is None or len(list(surgery.readers(model, value.name))) != 1:
            raise UnsuitableError("an input is read as float")
        scale = surgery.constant(model, quantize_node.input[1])
        zero = surgery.constant(model, quantize_node.input[2])
        for feed in feeds:
            limits = np.iinfo(zero.dtype)
            integers = np.round(feed[value.name] / scale) + int(zero)
            feed[value.name] = np.clip(integers, limits.min, limits.max).astype(zero.dtype)
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(zero.dtype)
        for node, index in list(surgery.readers(model, quantize_node.output[0])):
            node.input[index] = value.name
        model.graph.node.remove(quantize_node)
    bench.candidate_feeds = tuple(feeds)
    bench.note(f"{', '.join(inputs)} in integers")


@healthy
def half_precision_reference_values(bench: Bench) -> None:
    """The candidate's float constants were rounded to half precision."""
    for tensor in bench.candidate.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and not tensor.name.endswith(("_scale", "_zero_point")):
            rounded = numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(rounded), tensor.name))
    bench.note("float constants in half precision")


@healthy
def reference_in_half(bench: Bench) -> None:
    """The reference computes in half precision, between Casts."""
    model = surgery.copy_of(bench.network.model)
    if any(n.op_type in _FLOAT_ONLY for n in model.graph.node):
        raise UnsuitableError("an operator has no half precision")
    floats = {t.name for t in model.graph.initializer if t.data_type == TensorProto.FLOAT}
    for node in model.graph.node:
        floats -= {node.input[2]} if node.op_type == "Resize" else set()  # its scales stay float
    for tensor in model.graph.initializer:
        if tensor.name in floats:
            half = numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(numpy_helper.from_array(np.asarray(half), tensor.name))
    for value in model.graph.input:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            _cast_input(model, value.name)
    for value in model.graph.output:
        inner = f"{value.name}_half"
        maker = surgery.producer(model, value.name)
        assert maker is not None
        maker.output[:] = [inner if name == value.name else name for name in maker.output]
        for reader, index in list(surgery.readers(model, value.name)):
            reader.input[index] = inner
        model.graph.node.append(
            helper.make_node("Cast", [inner], [value.name], name=f"{inner}_cast", to=TensorProto.FLOAT)
        )
    del model.graph.value_info[:]
    bench.network = replace(bench.network, model=model)
    bench.score = Scorer(model, bench.network.feeds)


def _cast_input(model: onnx.ModelProto, name: str) -> None:
    for reader, index in list(surgery.readers(model, name)):
        reader.input[index] = f"{name}_half"
    cast = helper.make_node("Cast", [name], [f"{name}_half"], name=f"{name}_cast", to=TensorProto.FLOAT16)
    model.graph.node.insert(0, cast)


_FLOAT_ONLY = frozenset({"Gelu", "LayerNormalization", "PRelu", "HardSwish", "Erf", "ReduceMean"})


@healthy
def another_opset(bench: Bench) -> None:
    """The candidate was converted to a newer opset than the reference has."""
    before = bench.candidate.opset_import[0].version
    target = int(bench.random.choice([v for v in (13, 15, 17, 19, 21) if v > before] or [0]))
    if not target or any(o.domain not in ("", "ai.onnx") for o in bench.candidate.opset_import):
        raise UnsuitableError("no newer opset to go to")
    try:
        bench.candidate = onnx.version_converter.convert_version(bench.candidate, target)
    except Exception as cause:  # the converter knows not every operator
        raise UnsuitableError(f"cannot be converted: {str(cause)[:100]}") from cause
    bench.note(f"opset {before} converted to {target}")


@healthy
def passed_through_identities(bench: Bench) -> None:
    """The reference has Identity and Dropout nodes, and initializers that are inputs too."""
    model = surgery.copy_of(bench.network.model)
    opset = model.opset_import[0].version
    for node in list(model.graph.node)[:-1]:
        result = node.output[0]
        leaves = result in {o.name for o in model.graph.output}
        if leaves or len(node.output) > 1 or bench.random.uniform() < 0.6:
            continue
        kind = "Dropout" if opset >= 12 and bench.random.integers(2) else "Identity"
        copy = helper.make_node(kind, [result], [f"{result}_same"], name=f"{result}_{kind}")
        for reader, index in list(surgery.readers(model, result)):
            reader.input[index] = f"{result}_same"
        surgery.insert_after(model, node, copy)
    for tensor in model.graph.initializer:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(value)
    bench.network = replace(bench.network, model=model)
    bench.score = Scorer(model, bench.network.feeds)


@healthy
def zero_over_zero(bench: Bench) -> None:
    """A quotient is NaN on both sides where nothing is filled in."""
    network = _padded(bench.random)
    fresh = _bench(bench.random, network, Style(exclude=network.marks["ratio"]))
    bench.network, bench.source, bench.style = network, fresh.source, fresh.style
    bench.candidate, bench.score = fresh.candidate, fresh.score


def _padded(random: Generator) -> Network:
    made = data.records(random, {"features": 12, "weight": 1}, rows=6)
    for feed in (*made.feeds, *made.calibration):
        feed["weight"][:] = np.abs(feed["weight"]) + 0.5
        feed["weight"][int(random.integers(3, 6)) :] = 0
    net = architectures.new_net(random, made)
    x = net.op("Relu", [net.gemm("features", 16, "fc0")], "fc0")
    y = net.gemm(x, 5, "fc1", gain=2)
    part = net.op("Mul", [y, "weight"], "part")
    ratio = net.op("Div", [part, "weight"], "ratio")
    net.mark("ratio", part, ratio)
    return net.finish({ratio: "y"})


# ---- what looks bad and does no harm


@healthy
def tail_clipped(bench: Bench) -> None:
    """A range leaves the rarest values out, as percentile calibration does."""
    node = bench.pick(bench.stored(outputs=False))
    low, high = surgery.range_of(bench.candidate, node.output[0])
    surgery.set_range(bench.candidate, node.output[0], low * 0.85, high * 0.85)
    bench.note(f"{node.name}: the outer 15 % of the range are cut")


@healthy
def range_with_room(bench: Bench) -> None:
    """A range is twice as wide as it need be."""
    node = bench.pick(bench.stored(outputs=False))
    low, high = surgery.range_of(bench.candidate, node.output[0])
    surgery.set_range(bench.candidate, node.output[0], low * 2, high * 2)
    bench.note(f"{node.name}: twice the range")


@healthy
def dead_filter(bench: Bench) -> None:
    """The weights of one channel are zero on both sides."""
    node = bench.pick([n for n in bench.weighted("Conv") if len(n.input) > 2])
    reference = surgery.copy_of(bench.network.model)
    weight = surgery.constant(reference, node.input[1])
    weight[int(bench.random.integers(len(weight)))] = 0
    surgery.set_constant(reference, node.input[1], weight)
    network = replace(bench.network, model=reference)
    fresh = _bench(bench.random, network, bench.style)
    bench.network, bench.source = fresh.network, fresh.source
    bench.candidate, bench.score = fresh.candidate, fresh.score
    bench.note(f"{node.name}: one channel is dead on both sides")


_IN_QDQ = frozenset(
    {"channels_last_inside", "integers_in_and_out", "signed_among_unsigned", "axes_counted_from_the_end"}
)
