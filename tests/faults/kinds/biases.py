"""Faults of biases: shifted, forgotten, overflowing 32 bits, shared by layers of different scale."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from tests.faults import architectures, blocks, surgery
from tests.faults.network import Net, Network
from tests.faults.registry import Bench, Truth, blame, fault, style_of
from tests.faults.surgery import UnsuitableError


@fault("bias_shift", is_local=True)
def bias_forgotten(bench: Bench) -> Truth:
    """A layer's bias is zero."""
    node = bench.pick([n for n in bench.weighted() if surgery.bias_of(bench.candidate, n) is not None])
    bias = surgery.bias_of(bench.candidate, node)
    assert bias is not None
    surgery.write_bias(bench.candidate, node, np.zeros_like(bias))
    bench.note(f"{node.name}: bias of {np.abs(bias).max():.3g} at most set to zero")
    return blame("bias_shift", node.name, accept=["weight_corrupted", "bias_wrong"])


@fault("bias_shift", is_local=True)
def bias_off_by_a_constant(bench: Bench) -> Truth:
    """All channels of a layer are shifted by about the same amount."""
    node = bench.pick([n for n in bench.weighted() if surgery.bias_of(bench.candidate, n) is not None])
    bias = surgery.bias_of(bench.candidate, node)
    assert bias is not None
    low, high = (0.0, 1.0)
    if surgery.is_stored(bench.candidate, node.output[0]):
        low, high = surgery.range_of(bench.candidate, node.output[0])
    offset = float(bench.random.choice([-1, 1]) * bench.random.uniform(0.1, 0.35) * (high - low))
    surgery.write_bias(bench.candidate, node, bias + offset)
    bench.note(f"{node.name}: bias shifted by {offset:.3g}")
    return blame("bias_shift", node.name, accept=["weight_corrupted", "bias_wrong"])


@fault("bias_shift")
def weights_rounded_down(bench: Bench) -> Truth:
    """The weights of a layer with many inputs were floored, so that every channel's mean sinks."""
    node = bench.pick(bench.weighted())
    weight = surgery.weight_of(bench.candidate, node)
    real = surgery.constant(bench.source, node.input[1]).astype(np.float64)
    coarse = np.floor(real / weight.broad(weight.scale) / 16) * 16 + weight.broad(weight.zero)
    limits = np.iinfo(weight.integers.dtype)
    surgery.write_integers(bench.candidate, weight, np.clip(coarse, limits.min, limits.max))
    bench.note(f"{node.name}: weights floored to 4 bits")
    return blame("bias_shift", node.name, accept=["weight_corrupted", "weight_outlier_low_bits"])


# ---- 32 bits


def with_tiny_channels(random: Generator) -> Network:
    """A network in which pruning left some channels next to no weights, but a bias."""
    opset = int(random.choice([13, 15, 17, 18, 21]))
    net, x = architectures.image_net(random, opset=opset)
    depth = int(random.integers(3, 6))
    activation = blocks.any_activation(net)
    chosen = int(random.integers(1, depth))
    for i in range(depth):
        x = net.conv(x, int(random.integers(4, 7)) * 2, f"stage{i}")
        if i == chosen:
            net.mark("tiny", x)
            _prune(net, x)
        x = activation(net, x, f"stage{i}")
        if i == 1:
            x = blocks.pool(net, x, "pool")
    return architectures.classify(net, x)


def _prune(net: Net, out: str) -> None:
    node = net.node_of(out)
    weight, bias = net.constants[node.input[1]], net.constants[node.input[2]]
    channels = net.random.choice(len(weight), 2, replace=False)
    weight[channels] *= np.float32(10.0 ** net.random.uniform(-10, -8.5))
    bias[channels] = (net.random.uniform(2, 4, 2)).astype(np.float32)
    net.recompute(net.nodes.index(node))


@fault("bias_int32_overflow", network=with_tiny_channels, style=style_of(plain=True, per_channel=True))
def bias_overflows(bench: Bench) -> Truth:
    """The bias of channels with tiny weights does not fit 32 bits: it saturates."""
    node = bench.pick([n for n in bench.weighted("Conv") if n.name in bench.network.marks["tiny"]])
    bias = surgery.bias_of(bench.candidate, node)
    if bias is None:
        raise UnsuitableError("no bias in integers")
    real = surgery.constant(bench.source, node.input[1])
    weight = surgery.weight_of(bench.candidate, node)
    peak = np.abs(real).max(tuple(range(1, real.ndim)))
    scale = (peak / 127).astype(np.float32)
    zero = weight.broad(weight.zero)
    limits = np.iinfo(weight.integers.dtype)
    integers = np.round(real / scale.reshape(-1, *[1] * (real.ndim - 1))) + zero
    surgery.write_integers(bench.candidate, weight, np.clip(integers, limits.min, limits.max))
    surgery.set_constant(bench.candidate, f"{weight.name}_scale", scale)
    surgery.write_bias(
        bench.candidate, node, surgery.constant(bench.source, node.input[2]).astype(np.float64)
    )
    bench.note(f"{node.name}: weight scales down to {scale.min():.2g}")
    return blame("bias_int32_overflow", node.name)


# ---- one bias for several


def shared_head(random: Generator) -> Network:
    """One head for several levels whose activations differ in size, as in many detectors."""
    net, x = architectures.image_net(random, size=16)
    activation = blocks.any_activation(net, but=("relu6",))
    x = activation(net, net.conv(x, 8, "stem", stride=2), "stem")
    width, classes = 8, int(random.integers(3, 6))
    gains = [1.0, float(random.uniform(0.1, 0.25)), float(random.uniform(0.02, 0.05))]
    levels = []
    for i, gain in enumerate(gains[: int(random.integers(2, 4))]):
        x = activation(net, net.conv(x, width, f"level{i}.a"), f"level{i}.a")
        levels.append(blocks.relu(net, net.conv(x, width, f"level{i}.b", gain=gain), f"level{i}.b"))
    w = net.constant(net.weights((classes, width, 1, 1)), "head", "weight")
    b = net.constant(net.random.normal(size=classes).astype(np.float32), "head", "bias")
    outputs = {}
    for i, level in enumerate(levels):
        out = net.op("Conv", [level, w, b], f"head{i}", kernel_shape=[1, 1])
        net.mark("shared", out)
        outputs[out] = f"out{i}"
    return net.finish(outputs)


@fault("shared_bias_scale_mismatch", network=shared_head)
def bias_shared(bench: Bench) -> Truth:
    """All levels read the integers that are right for the first one."""
    nodes = [n for n in bench.weighted("Conv") if n.name in bench.network.marks["shared"]]
    if len(nodes) < 2:
        raise UnsuitableError("nothing is shared")
    first = surgery.node_named(bench.candidate, nodes[0].name)
    wrong = []
    for node in nodes[1:]:
        twin = surgery.node_named(bench.candidate, node.name)
        if twin.op_type == "QLinearConv":
            twin.input[8] = first.input[8]
        else:
            _share(bench, node.name, first.input[2], twin.input[2])
        wrong.append(node.name)
    bench.note(f"{', '.join(wrong)} read the bias of {nodes[0].name}")
    return blame("shared_bias_scale_mismatch", *wrong, accept=["bias_scale_mismatch", "bias_wrong"])


def _share(bench: Bench, name: str, first: str, second: str) -> None:
    """Let a Conv dequantize the integers of another's bias with the scale that its own input asks for."""
    original = surgery.producer(bench.candidate, first)
    own = surgery.producer(bench.candidate, second)
    node = next(n for n in bench.source.graph.node if n.name == name)
    if original is None or own is None:
        raise UnsuitableError("the bias is not quantized")
    scale = surgery.input_scale(bench.candidate, node) * surgery.weight_of(bench.candidate, node).scale
    shape = surgery.constant(bench.candidate, own.input[1]).shape
    stem = f"{original.input[0]}_for_{node.output[0]}"
    surgery.set_constant(bench.candidate, f"{stem}_scale", np.broadcast_to(scale, shape).astype(np.float32))
    copy = type(own)()
    copy.CopyFrom(original)
    copy.name, copy.output[0] = f"{stem}_dq", f"{stem}_real"
    copy.input[1] = f"{stem}_scale"
    twin = surgery.node_named(bench.candidate, name)
    surgery.insert_before(bench.candidate, twin, copy)
    twin = surgery.node_named(bench.candidate, name)
    twin.input[2] = f"{stem}_real"
