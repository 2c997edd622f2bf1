"""Faults of weights: corrupted, in another layout, badly folded, channels lost, scales on the wrong axis."""

from __future__ import annotations

import numpy as np
import onnx

from analyzers.records import Array
from tests.faults import architectures, blocks, surgery
from tests.faults.folding import MISTAKES, folded, norms_of
from tests.faults.network import Network
from tests.faults.registry import Bench, Truth, blame, fault, style_of
from tests.faults.surgery import UnsuitableError

Generator = np.random.Generator


def replace_weight(bench: Bench, node: onnx.NodeProto, real: Array) -> None:
    """Give a layer another weight, before the quantizer saw it or after."""
    if bench.random.integers(2) or bench.taken:
        surgery.write_weight(bench.candidate, node, real)
        bench.note(f"{node.name}: weight replaced in the candidate")
    else:
        surgery.set_constant(bench.source, node.input[1], real.astype(np.float32))
        bench.requantize()
        bench.note(f"{node.name}: weight replaced before quantization")


# ---- corrupted


@fault("weight_corrupted", is_local=True)
def bit_flips(bench: Bench) -> Truth:
    """A high bit of some integers is flipped."""
    node = bench.pick(bench.weighted())
    weight = surgery.weight_of(bench.candidate, node)
    share, bit = bench.random.uniform(0.1, 0.5), int(bench.random.choice([5, 6, 7]))
    flips = bench.random.uniform(size=weight.integers.shape) < share
    changed = weight.integers.view(np.uint8) ^ np.where(flips, 1 << bit, 0).astype(np.uint8)
    surgery.write_integers(bench.candidate, weight, changed.view(weight.integers.dtype))
    bench.note(f"{node.name}: bit {bit} of {share:.0%} of the weights flipped")
    return blame("weight_corrupted", node.name)


@fault("weight_corrupted", is_local=True)
def misread_offset(bench: Bench) -> Truth:
    """The blob was read some bytes too early or late."""
    node = bench.pick(bench.weighted())
    weight = surgery.weight_of(bench.candidate, node)
    offset = int(bench.random.choice([1, 2, 4, 16, 64]))
    rolled = np.roll(weight.integers.ravel(), offset).reshape(weight.integers.shape)
    surgery.write_integers(bench.candidate, weight, rolled)
    bench.note(f"{node.name}: weights shifted by {offset} bytes")
    return blame("weight_corrupted", node.name, accept=["weight_layout_wrong"])


@fault("weight_corrupted")
def stale_layer(bench: Bench) -> Truth:
    """One layer has weights of another training run."""
    node = bench.pick(bench.weighted())
    real = surgery.weight_of(bench.candidate, node).real
    other = bench.random.normal(size=real.shape) * real.std()
    replace_weight(bench, node, 0.3 * real + other)
    return blame("weight_corrupted", node.name, accept=["different_checkpoint"])


@fault("weight_corrupted", is_local=True)
def random_blob(bench: Bench) -> Truth:
    """A stretch of the blob holds random bytes."""
    node = bench.pick(bench.weighted())
    weight = surgery.weight_of(bench.candidate, node)
    flat = weight.integers.ravel().copy()
    length = max(1, int(flat.size * bench.random.uniform(0.15, 0.6)))
    start = int(bench.random.integers(flat.size - length + 1))
    limits = np.iinfo(flat.dtype)
    flat[start : start + length] = bench.random.integers(limits.min, limits.max + 1, length)
    surgery.write_integers(bench.candidate, weight, flat.reshape(weight.integers.shape))
    bench.note(f"{node.name}: {length} of {flat.size} weights are random bytes")
    return blame("weight_corrupted", node.name, accept=["channel_garbage"])


# ---- wrong layout


@fault("weight_layout_wrong")
def kernel_sides_swapped(bench: Bench) -> Truth:
    """Height and width of a square kernel are swapped."""
    node = bench.pick([n for n in bench.weighted("Conv", "ConvTranspose") if _kernel(bench, n) == (3, 3)])
    real = surgery.weight_of(bench.candidate, node).real
    replace_weight(bench, node, np.swapaxes(real, -1, -2))
    return blame("weight_layout_wrong", node.name, accept=["weight_corrupted"])


@fault("weight_layout_wrong")
def kernel_turned(bench: Bench) -> Truth:
    """The kernel is turned by 180 degrees: convolution instead of correlation."""
    node = bench.pick([n for n in bench.weighted("Conv", "ConvTranspose") if max(_kernel(bench, n)) > 1])
    real = surgery.weight_of(bench.candidate, node).real
    replace_weight(bench, node, np.flip(real, tuple(range(2, real.ndim))))
    return blame("weight_layout_wrong", node.name, accept=["weight_corrupted"])


@fault("weight_layout_wrong", network=lambda random: same_width(random))
def square_transposed(bench: Bench) -> Truth:
    """Input and output channels of a square weight are swapped."""
    nodes = [n for n in bench.weighted() if _is_square(surgery.weight_of(bench.candidate, n).integers)]
    node = bench.pick(nodes)
    real = surgery.weight_of(bench.candidate, node).real
    replace_weight(bench, node, np.swapaxes(real, 0, 1))
    return blame("weight_layout_wrong", node.name, accept=["weight_corrupted"])


@fault("weight_layout_wrong")
def read_in_other_order(bench: Bench) -> Truth:
    """The buffer holds (O, H, W, I) but is read as (O, I, H, W)."""
    nodes = [n for n in bench.weighted("Conv") if max(_kernel(bench, n)) > 1]
    node = bench.pick([n for n in nodes if surgery.weight_of(bench.candidate, n).integers.shape[1] > 1])
    real = surgery.weight_of(bench.candidate, node).real
    replace_weight(bench, node, np.moveaxis(real, 1, -1).reshape(real.shape))
    return blame("weight_layout_wrong", node.name, accept=["weight_corrupted"])


def _kernel(bench: Bench, node: onnx.NodeProto) -> tuple[int, ...]:
    return tuple(surgery.constant(bench.candidate, f"{node.input[1]}_quantized").shape[2:])


def _is_square(array: Array) -> bool:
    return bool(array.shape[0] == array.shape[1] > 2)


# ---- BatchNormalization folded wrongly


def with_norms(random: Generator) -> Network:
    """Draw a network that has BatchNormalizations."""
    for _ in range(20):
        choices = (architectures.plain, architectures.residual, architectures.mobile, architectures.unet)
        network = architectures.any_of(*choices)(random)
        if norms_of(network.model):
            return network
    raise UnsuitableError("no BatchNormalization was drawn")


@fault("bn_fold_wrong", network=with_norms)
def fold_mistake(bench: Bench) -> Truth:
    """One of the factors of a fold is missing, wrong or applied twice."""
    norms = norms_of(bench.network.model)
    node = bench.pick([n for n in bench.nodes("Conv") if n.name in norms])
    mistake = str(bench.random.choice(MISTAKES))
    bench.source = folded(bench.network.model, {node.name: mistake})
    bench.requantize()
    bench.note(f"{node.name}: folded with {mistake}")
    bias_only = mistake in ("no_mean", "no_beta")
    accept = ["weight_corrupted", *(["bias_shift"] if bias_only else [])]
    return blame("bn_fold_wrong", node.name, accept=accept, tolerate=[norms[node.name]])


# ---- channels


def _output_channels(bench: Bench, node: onnx.NodeProto, count: int) -> Array:
    size = surgery.weight_of(bench.candidate, node).integers.shape[surgery.channel_axis(node)]
    if size < 4:
        raise UnsuitableError("too few channels")
    return np.asarray(bench.random.choice(size, min(count, size // 2), replace=False))


@fault("channel_garbage", is_local=True)
def garbage_channels(bench: Bench) -> Truth:
    """The weights of a few output channels are garbage."""
    node = bench.pick(bench.weighted())
    weight = surgery.weight_of(bench.candidate, node)
    channels = _output_channels(bench, node, int(bench.random.integers(1, 4)))
    integers = np.moveaxis(weight.integers.copy(), weight.axis, 0)
    limits = np.iinfo(integers.dtype)
    integers[channels] = bench.random.integers(limits.min, limits.max + 1, integers[channels].shape)
    surgery.write_integers(bench.candidate, weight, np.moveaxis(integers, 0, weight.axis))
    bench.note(f"{node.name}: channels {sorted(map(int, channels))} are garbage")
    return blame(
        "channel_garbage",
        node.name,
        accept=["channel_dropped", "weight_corrupted", "dirty_padding_channel"],
    )


@fault("channel_dropped", is_local=True)
def dropped_channels(bench: Bench) -> Truth:
    """The weights and the bias of some output channels are zero."""
    node = bench.pick(bench.weighted())
    weight = surgery.weight_of(bench.candidate, node)
    channels = _output_channels(bench, node, int(bench.random.integers(1, 5)))
    integers = np.moveaxis(weight.integers.copy(), weight.axis, 0)
    zero = np.broadcast_to(weight.zero, (len(integers),))
    integers[channels] = zero[channels].reshape(-1, *[1] * (integers.ndim - 1))
    surgery.write_integers(bench.candidate, weight, np.moveaxis(integers, 0, weight.axis))
    bias = surgery.bias_of(bench.candidate, node)
    if bias is not None:
        bias[channels] = 0
        surgery.write_bias(bench.candidate, node, bias)
    bench.note(f"{node.name}: channels {sorted(map(int, channels))} are zero")
    return blame("channel_dropped", node.name, accept=["channel_garbage", "weight_corrupted"])


@fault("dirty_padding_channel")
def garbage_in_last_lanes(bench: Bench) -> Truth:
    """The channels behind the last whole vector of lanes are garbage."""
    node = bench.pick(bench.weighted("Conv"))
    weight = surgery.weight_of(bench.candidate, node)
    lanes, count = int(bench.random.choice([4, 8])), len(weight.integers)
    tail = count % lanes
    if tail == 0 or tail == count:
        raise UnsuitableError("the channels fill whole vectors")
    integers = weight.integers.copy()
    limits = np.iinfo(integers.dtype)
    integers[-tail:] = bench.random.integers(limits.min, limits.max + 1, integers[-tail:].shape)
    surgery.write_integers(bench.candidate, weight, integers)
    bench.note(f"{node.name}: the last {tail} of {count} channels are garbage")
    return blame(
        "dirty_padding_channel",
        node.name,
        accept=["channel_garbage", "weight_corrupted", "channel_dropped"],
    )


# ---- scales


def same_width(random: Generator) -> Network:
    """Layers as wide as they are deep, whose channels differ in size."""
    opset = int(random.choice([13, 15, 17, 18, 21]))
    net, x = architectures.image_net(random, size=16, opset=opset)
    net.spread = 0.9
    width = int(random.choice([8, 10, 12]))
    activation = blocks.any_activation(net)
    x = activation(net, net.conv(x, width, "stem", stride=2), "stem")
    for i in range(int(random.integers(2, 4))):
        if random.uniform() < 0.3:
            x = activation(net, net.conv_transpose(x, width, f"up{i}"), f"up{i}")
            x = blocks.pool(net, x, f"down{i}")
        else:
            x = activation(net, net.conv(x, width, f"body{i}"), f"body{i}")
    return architectures.classify(net, x)


@fault("per_channel_axis_wrong", network=same_width, style=style_of(plain=True, per_channel=True))
def axis_swapped(bench: Bench) -> Truth:
    """The scales of output channels are applied to input channels."""
    nodes = [n for n in bench.weighted() if _is_square(surgery.weight_of(bench.candidate, n).integers)]
    node = bench.pick(nodes)
    for reader, _ in surgery.readers(bench.candidate, f"{node.input[1]}_quantized"):
        axis = int(surgery.attribute(reader, "axis", 1))  # type: ignore[call-overload]
        surgery.set_attribute(reader, "axis", 1 - axis)
    bench.note(f"{node.name}: axis of the weight's scales swapped")
    return blame("per_channel_axis_wrong", node.name, accept=["weight_corrupted"])


@fault("scale_gain_error", is_local=True)
def weight_scale_off(bench: Bench) -> Truth:
    """The scale of a weight is off by a factor."""
    node = bench.pick(bench.weighted())
    name = f"{node.input[1]}_scale"
    factor = float(bench.random.choice([0.25, 0.4, 0.5, 2.0, 3.0]))
    bias = surgery.bias_of(bench.candidate, node)
    surgery.set_constant(
        bench.candidate, name, (surgery.constant(bench.candidate, name) * factor).astype(np.float32)
    )
    if bias is not None:
        surgery.write_bias(bench.candidate, node, bias)
    bench.note(f"{node.name}: weight scale times {factor}")
    return blame("scale_gain_error", node.name, accept=["weight_scale_wrong", "weight_corrupted"])
