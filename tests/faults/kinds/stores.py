"""Faults of stored activations: ranges too small or too wide, scales and zero points that do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
from numpy.random import Generator
from onnx import helper

from analyzers.records import Array
from tests.faults import architectures, blocks, surgery
from tests.faults.network import Network
from tests.faults.quantization import Style, plain_style
from tests.faults.registry import Bench, Truth, blame, fault, style_of
from tests.faults.scoring import values_of
from tests.faults.surgery import UnsuitableError


def values(bench: Bench, tensor: str) -> Array:
    """Return the reference's values of a tensor over all samples, flat."""
    found = values_of(bench.network.model, bench.network.feeds, [tensor])[tensor]
    return np.concatenate([np.asarray(a, np.float64).ravel() for a in found])


# ---- clipping


@fault("activation_clipping", is_local=True)
def range_too_small(bench: Bench) -> Truth:
    """A store holds only a part of the values' range."""
    node = bench.pick(bench.stored())
    low, high = surgery.range_of(bench.candidate, node.output[0])
    share = bench.random.uniform(0.08, 0.4)
    surgery.set_range(bench.candidate, node.output[0], low * share, high * share)
    bench.note(f"{node.name}: range {low:.3g}..{high:.3g} cut to {share:.0%}")
    return blame("activation_clipping", node.name)


@fault("activation_clipping", network=architectures.detector)
def sigmoid_cut(bench: Bench) -> Truth:
    """A Sigmoid was calibrated where nothing was to be seen: scores end at 0.1 or so."""
    marked = set(bench.network.marks["score"])
    node = bench.pick([n for n in bench.stored("Sigmoid") if n.name in marked])
    top = float(bench.random.uniform(0.04, 0.2))
    surgery.set_range(bench.candidate, node.output[0], 0.0, top)
    bench.note(f"{node.name}: range ends at {top:.2f}")
    return blame("activation_clipping", node.name)


def with_rare_pattern(random: Generator) -> Network:
    """A network in which few samples drive the inputs far beyond what calibration saw."""
    network = architectures.any_of(architectures.plain, architectures.residual, architectures.audio)(random)
    return with_loud_samples(random, network, max(1, len(network.feeds) // 4))


def with_loud_samples(random: Generator, network: Network, count: int) -> Network:
    """Make some of the samples many times as large."""
    loud = random.choice(len(network.feeds), count, replace=False)
    factor = float(random.uniform(4, 10))
    feeds = tuple(
        {n: (a * np.float32(factor) if i in loud else a) for n, a in feed.items()}
        for i, feed in enumerate(network.feeds)
    )
    return replace(network, feeds=feeds)


@fault(
    "activation_clipping",
    network=with_rare_pattern,
    style=style_of(plain=True),
    is_native=True,
    misses_samples=True,
)
def rare_pattern_missed(bench: Bench) -> Truth:
    """Calibration lacks what drives one layer far up; everything else has room."""
    everything = values_of(bench.source, bench.network.feeds, [n.output[0] for n in bench.stored()])
    inputs = [i.name for i in bench.source.graph.input]
    for name in inputs:
        arrays = [feed[name] for feed in bench.network.feeds]
        surgery.set_range(bench.candidate, name, *_extremes(arrays))
    ranges = {name: _extremes(arrays) for name, arrays in everything.items()}
    node = bench.pick(bench.stored(outputs=False))
    for name, (low, high) in ranges.items():
        if name != node.output[0]:
            surgery.set_range(bench.candidate, name, low, high)
    bench.cure = (node.output[0],)
    bench.note(f"{node.name}: calibrated without the loud samples")
    return blame("activation_clipping", node.name)


def _extremes(arrays: list[Array]) -> tuple[float, float]:
    return min(float(a.min()) for a in arrays), max(float(a.max()) for a in arrays)


# ---- too wide


@fault("range_too_wide", is_local=True)
def range_too_large(bench: Bench) -> Truth:
    """A store's range is many times that of its values; they still fill a few steps."""
    node = bench.pick(bench.stored())
    low, high = surgery.range_of(bench.candidate, node.output[0])
    factor = float(np.exp(bench.random.uniform(np.log(12), np.log(60))))
    surgery.set_range(bench.candidate, node.output[0], low * factor, high * factor)
    bench.note(f"{node.name}: range times {factor:.0f}")
    return blame("range_too_wide", node.name, accept=["resolution_underflow"])


@fault("resolution_underflow", is_local=True)
def all_under_half_a_step(bench: Bench) -> Truth:
    """A store's step is so coarse that (nearly) every value becomes zero."""
    node = bench.pick(bench.stored())
    low, high = surgery.range_of(bench.candidate, node.output[0])
    factor = float(np.exp(bench.random.uniform(np.log(300), np.log(3000))))
    surgery.set_range(bench.candidate, node.output[0], low * factor, high * factor)
    bench.note(f"{node.name}: range times {factor:.0f}")
    return blame("resolution_underflow", node.name, accept=["range_too_wide"])


# ---- impossible scales


@fault("zero_range_scale", is_local=True)
def scale_of_zero(bench: Bench) -> Truth:
    """A branch was dead in calibration: its scale is zero, or next to it."""
    node = bench.pick(bench.stored(outputs=False))
    scale = float(bench.random.choice([0.0, 1.2e-38, 1e-12]))
    surgery.set_scale(bench.candidate, node.output[0], scale)
    bench.note(f"{node.name}: scale {scale}")
    return blame("zero_range_scale", node.name, accept=["invalid_scale"])


@fault("invalid_scale", is_local=True)
def scale_not_a_number(bench: Bench) -> Truth:
    """A scale is NaN or infinite."""
    node = bench.pick(bench.stored(outputs=False))
    scale = float(bench.random.choice([np.nan, np.inf]))
    surgery.set_scale(bench.candidate, node.output[0], scale)
    bench.note(f"{node.name}: scale {scale}")
    return blame("invalid_scale", node.name)


@fault("invalid_scale", style=style_of(qdq=True, per_channel=True, plain=True))
def weight_scale_not_a_number(bench: Bench) -> Truth:
    """The scale of one output channel is NaN or infinite."""
    node = bench.pick(bench.weighted())
    name = f"{node.input[1]}_scale"
    scales = np.atleast_1d(surgery.constant(bench.candidate, name))
    if scales.size < 2:
        raise UnsuitableError("one scale only")
    scales[int(bench.random.integers(scales.size))] = float(bench.random.choice([np.nan, np.inf]))
    surgery.set_constant(bench.candidate, name, scales)
    bench.note(f"{node.name}: a weight scale is not finite")
    return blame("invalid_scale", node.name)


# ---- the two ends disagree


def _other_end(bench: Bench, node: onnx.NodeProto, suffix: str, change: Array) -> None:
    """Give everyone who reads a store a scale or zero point of their own."""
    name = f"{node.output[0]}_{suffix}"
    reading = (
        surgery.readers_of_scale(bench.candidate, name)
        if suffix == "scale"
        else [
            (reader, index + 1)
            for reader, index in surgery.readers_of_scale(bench.candidate, f"{node.output[0]}_scale")
        ]
    )
    if not reading:
        raise UnsuitableError("nobody reads the store")
    surgery.set_constant(bench.candidate, f"{name}_dq", change)
    for reader, index in reading:
        reader.input[index] = f"{name}_dq"


@fault("scale_gain_error", is_local=True)
def gain_between_ends(bench: Bench) -> Truth:
    """Whoever reads a store takes another scale than it was written with."""
    node = bench.pick(bench.stored())
    factor = float(bench.random.choice([0.25, 0.5, 0.75, 1.5, 2.0, 4.0]))
    scale = surgery.constant(bench.candidate, f"{node.output[0]}_scale")
    _other_end(bench, node, "scale", np.asarray(scale * np.float32(factor)))
    bench.note(f"{node.name}: read with {factor} times the scale")
    return blame("scale_gain_error", node.name)


@fault("zero_point_mismatch", is_local=True)
def zero_point_between_ends(bench: Bench) -> Truth:
    """Whoever reads a store takes another zero point: the signed view of unsigned data, or a wrong shift."""
    node = bench.pick(bench.stored())
    zero = surgery.constant(bench.candidate, f"{node.output[0]}_zero_point")
    limits = np.iinfo(zero.dtype)
    middle = (limits.max - limits.min + 1) // 2
    shift = middle if bench.random.integers(2) else int(middle * bench.random.uniform(0.15, 0.6))
    other = int(zero) + shift if int(zero) + shift <= limits.max else int(zero) - shift
    if not limits.min <= other <= limits.max:
        raise UnsuitableError("the zero point cannot be moved so far")
    _other_end(bench, node, "zero_point", np.array(other, zero.dtype))
    bench.note(f"{node.name}: zero point {int(zero)} read as {other}")
    return blame("zero_point_mismatch", node.name, accept=["scale_gain_error"])


# ---- a hole in a 16-bit network


def sixteen_bits(random: Generator, network: Network) -> Style:
    """Activations in 16 bits."""
    style = plain_style(random, opset=max(13, network.model.opset_import[0].version))
    activation, symmetric = ("QUInt16", False) if random.integers(2) else ("QInt16", True)
    return replace(style, activation=activation, symmetric=symmetric)


@fault("mixed_precision_hole", style=sixteen_bits)
def eight_bits_among_sixteen(bench: Bench) -> Truth:
    """One tensor was left at 8 bits, with a range that only 16 bits can afford."""
    node = bench.pick(bench.stored(outputs=False))
    tensor = node.output[0]
    low, high = surgery.range_of(bench.candidate, tensor)
    zero = surgery.constant(bench.candidate, f"{tensor}_zero_point")
    small = np.dtype("uint8" if zero.dtype.kind == "u" else "int8")
    factor = float(bench.random.uniform(20, 80))
    surgery.set_constant(bench.candidate, f"{tensor}_zero_point", np.array(0, small))
    surgery.set_range(bench.candidate, tensor, low * factor, high * factor)
    del bench.candidate.graph.value_info[:]
    bench.note(f"{node.name}: {small} with {factor:.0f} times the range")
    return blame(
        "mixed_precision_hole",
        node.name,
        accept=["range_too_wide", "resolution_underflow", "activation_outlier"],
    )


# ---- the small negative lobe


def mostly_negative(random: Generator) -> Network:
    """Activations with a small negative lobe, where most values lie in it."""
    net, x = architectures.image_net(random, size=16, opset=int(random.choice([14, 17, 20])))
    kind = str(random.choice(["silu", "hard_swish", "gelu"]))
    activation = blocks.gelu if kind == "gelu" else blocks.ACTIVATIONS[kind]
    for i in range(int(random.integers(2, 5))):
        y = net.conv(x, 10, f"stage{i}", shift=-1.6 if i else 0.0, gain=1.0, stride=2 if i == 1 else 1)
        x = activation(net, y, f"stage{i}")
        if i:
            net.mark("lobe", x)
    return architectures.classify(net, x)


@fault("negative_lobe", network=mostly_negative, style=style_of(plain=True))
def lobe_cut_off(bench: Bench) -> Truth:
    """The store of a SiLU, HardSwish or GELU begins at zero, as if it were a Relu."""
    marked = set(bench.network.marks["lobe"])
    node = bench.pick([n for n in bench.stored(outputs=False) if n.name in marked])
    _, high = surgery.range_of(bench.candidate, node.output[0])
    surgery.set_range(bench.candidate, node.output[0], 0.0, high)
    bench.note(f"{node.name}: range begins at 0")
    return blame("negative_lobe", node.name, accept=["activation_clipping"])


@fault("negative_lobe", network=mostly_negative, style=style_of(plain=True))
def lobe_in_few_steps(bench: Bench) -> Truth:
    """The range goes so far up that the lobe has a step or two."""
    marked = set(bench.network.marks["lobe"])
    node = bench.pick([n for n in bench.stored(outputs=False) if n.name in marked])
    low, _ = surgery.range_of(bench.candidate, node.output[0])
    surgery.set_range(bench.candidate, node.output[0], low, float(bench.random.uniform(30, 110)))
    bench.note(f"{node.name}: range far too high for the lobe")
    return blame("negative_lobe", node.name, accept=["range_too_wide", "resolution_underflow"])


# ---- padding


@fault("pad_value_not_zero_point", style=style_of(qdq=True), least_gain_db=6.0)
def padded_with_raw_zero(bench: Bench) -> Truth:
    """A Conv's padding is done on the integers, with 0 instead of the zero point."""
    nodes = []
    for node in bench.weighted("Conv"):
        twin = surgery.node_named(bench.candidate, node.name)
        source = surgery.producer(bench.candidate, twin.input[0])
        if source is None or source.op_type != surgery.DEQUANTIZE or len(source.input) < 3:
            continue
        zero = surgery.constant(bench.candidate, source.input[2])
        padded = any(surgery.attribute(twin, "pads", []))  # type: ignore[arg-type]
        if int(zero) != 0 and zero.dtype.itemsize == 1 and padded:
            nodes.append(node)
    node = bench.pick(nodes)
    twin = surgery.node_named(bench.candidate, node.name)
    source = surgery.producer(bench.candidate, twin.input[0])
    assert source is not None
    pads = [int(p) for p in surgery.attribute(twin, "pads")]  # type: ignore[attr-defined]
    half = len(pads) // 2
    stem = f"{twin.input[0]}_pad"
    zero = surgery.constant(bench.candidate, source.input[2])
    surgery.set_constant(
        bench.candidate, f"{stem}_amounts", np.array([0, 0, *pads[:half], 0, 0, *pads[half:]], np.int64)
    )
    surgery.set_constant(bench.candidate, f"{stem}_value", np.array(0, zero.dtype))
    pad = helper.make_node(
        "Pad",
        [source.input[0], f"{stem}_amounts", f"{stem}_value"],
        [f"{stem}_q"],
        name=f"{node.name}_pad",
    )
    dequantize = helper.make_node(
        source.op_type,
        [f"{stem}_q", *source.input[1:]],
        [f"{stem}_dq"],
        name=f"{stem}_dq",
        domain=source.domain,
    )
    surgery.insert_before(bench.candidate, twin, pad, dequantize)
    twin = surgery.node_named(bench.candidate, node.name)
    twin.input[0] = f"{stem}_dq"
    surgery.set_attribute(twin, "pads", [0] * len(pads))
    bench.note(f"{node.name}: padded with raw 0, the zero point is {int(zero)}")
    return blame("pad_value_not_zero_point", node.name, accept=["operator_changed"])


# ---- lanes that hold garbage


@fault("dirty_padding_channel", style=style_of(plain=True))
def last_lanes_overwritten(bench: Bench) -> Truth:
    """The last channels of a tensor hold what was in memory before."""
    nodes = []
    for node in bench.stored("Conv", "Relu", "Clip", "LeakyRelu", "Mul", outputs=False):
        found = values_of(bench.source, bench.network.feeds[:1], [node.output[0]])[node.output[0]][0]
        if found.ndim == 4 and found.shape[1] >= 6:
            nodes.append((node, found))
    if not nodes:
        raise UnsuitableError("no tensor has channels enough")
    node, sample = nodes[int(bench.random.integers(len(nodes)))]
    count = sample.shape[1]
    tail = count % 4 or 2
    name = node.output[0]
    quantize = next(
        (n for n, i in surgery.readers(bench.candidate, name) if n.op_type == surgery.QUANTIZE and i == 0),
        None,
    )
    if quantize is None:
        raise UnsuitableError("the store is not found")
    low, high = surgery.range_of(bench.candidate, name)
    garbage = bench.random.uniform(low, high, (1, tail, *sample.shape[2:])).astype(np.float32)
    for role, array in (
        ("starts", np.array([0])), ("ends", np.array([count - tail])), ("axes", np.array([1])),
    ):  # fmt: skip
        surgery.set_constant(bench.candidate, f"{name}_kept_{role}", array.astype(np.int64))
    surgery.set_constant(bench.candidate, f"{name}_garbage", garbage)
    kept = helper.make_node(
        "Slice",
        [name, *(f"{name}_kept_{role}" for role in ("starts", "ends", "axes"))],
        [f"{name}_kept"],
        name=f"{name}_kept",
    )
    joined = helper.make_node(
        "Concat", [f"{name}_kept", f"{name}_garbage"], [f"{name}_lanes"], name=f"{name}_lanes", axis=1
    )
    surgery.insert_before(bench.candidate, quantize, kept, joined)
    quantize = next(n for n, i in surgery.readers(bench.candidate, name) if n.op_type == surgery.QUANTIZE)
    quantize.input[0] = f"{name}_lanes"
    bench.note(f"{node.name}: the last {tail} of {count} channels overwritten")
    return blame(
        "dirty_padding_channel", node.name, accept=["channel_garbage", "channel_dropped", "operator_changed"]
    )
