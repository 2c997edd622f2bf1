"""Faults of detector heads: boxes and scores under one scale, quantized decoding, shifted scores."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from tests.faults import architectures, blocks, surgery
from tests.faults.kinds.numbers import PER_CHANNEL, blame_needed
from tests.faults.network import Net, Network
from tests.faults.registry import Bench, Truth, blame, fault, style_of
from tests.faults.surgery import UnsuitableError


def _tower(random: Generator) -> tuple[Net, str]:
    net, x = architectures.image_net(random, size=16)
    activation = blocks.any_activation(net)
    x = activation(net, net.conv(x, 8, "stem", stride=2), "stem")
    for i in range(int(random.integers(1, 3))):
        x = activation(net, net.conv(x, 10, f"body{i}"), f"body{i}")
    return net, x


def joined_head(random: Generator) -> Network:
    """Boxes in pixels and scores in one output."""
    net, x = _tower(random)
    size = float(random.choice([320, 416, 640, 1280]))
    box = blocks.relu(net, net.conv(x, 4, "box", kernel=1, shift=2.0, gain=0.7), "box")
    pixels = net.op("Mul", [box, net.constant(size / 4, "box", "size")], "box.scale")
    net.mark("box", box, pixels)
    logits = net.conv(x, int(random.integers(1, 6)), "cls", kernel=1, shift=-1.0, gain=1.5)
    scores = net.op("Sigmoid", [logits], "cls")
    net.mark("score", scores)
    axis = int(random.choice([1, 2]))
    parts = [_rows(net, t, axis, place) for t, place in ((pixels, "box.flat"), (scores, "cls.flat"))]
    out = net.op("Concat", parts, "join", axis=3 - axis)
    net.mark("join", out)
    return net.finish({out: str(random.choice(architectures.OUTPUT_NAMES))})


def _rows(net: Net, x: str, axis: int, place: str) -> str:
    """(1, C, H, W) -> (1, H * W, C) where cells are along axis 1, (1, C, H * W) where they are along 2."""
    _, count, height, width = net.shape(x)
    if axis == 2:
        return net.op("Reshape", [x, net.constant([1, count, height * width], place, "flat")], place)
    moved = net.op("Transpose", [x], place, perm=[0, 2, 3, 1])
    return net.op("Reshape", [moved, net.constant([1, height * width, count], place, "flat")], place)


@fault("concat_shared_scale", network=joined_head, is_native=True, style=style_of(qdq=True))
def boxes_beside_scores(bench: Bench) -> Truth:
    """One scale for boxes of hundreds of pixels and scores up to 1."""
    return blame_needed(bench, "concat_shared_scale", "join")


@fault("concat_shared_scale", network=joined_head, is_native=True, style=PER_CHANNEL)
def inputs_forced_to_the_scale(bench: Bench) -> Truth:
    """The toolchain gives a Concat's inputs the scale of its output."""
    (join,) = bench.network.marks["join"]
    (score,) = bench.network.marks["score"]
    node = next(n for n in bench.source.graph.node if n.name == join)
    low, high = surgery.range_of(bench.candidate, node.output[0])
    sigmoid = next(n for n in bench.source.graph.node if n.name == score)
    surgery.set_range(bench.candidate, sigmoid.output[0], low, high)
    bench.cure = (node.output[0], sigmoid.output[0])
    return Truth(
        "concat_shared_scale",
        ("concat_shared_scale",),
        (frozenset([join]), frozenset([join, score])),
        frozenset([score]),
    )


@fault("concat_shared_scale", network=joined_head, is_native=True, style=PER_CHANNEL)
def boxes_beside_scores_by_the_tool(bench: Bench) -> Truth:
    """The tool itself quantizes boxes and scores under one scale, and has to say so."""
    bench.calibration, bench.is_left_to_the_tool = bench.network.calibration, True
    return blame_needed(bench, "concat_shared_scale", "join")


def uneven_branches(random: Generator) -> Network:
    """Two branches of very different size that the next layer weighs alike."""
    net, x = _tower(random)
    activation = blocks.any_activation(net, but=("relu6", "hard_swish"))
    ratio = float(random.uniform(60, 300))
    left = activation(net, net.conv(x, 8, "left", gain=1.0), "left")
    right = blocks.relu(net, net.conv(x, 8, "right", gain=1.0 / ratio), "right")
    joined = net.op("Concat", [left, right], "join", axis=1)
    net.mark("join", joined)
    weights = net.weights((10, 16, 3, 3))
    weights[:, 8:] *= np.float32(1.5 * ratio)
    weights[:, :8] *= np.float32(0.2)
    x = activation(net, net.conv(joined, 10, "rest", weights=weights), "rest")
    return architectures.classify(net, x)


@fault("concat_shared_scale", network=uneven_branches, is_native=True, style=style_of(qdq=True, plain=True))
def small_branch_erased(bench: Bench) -> Truth:
    """The small branch of a Concat inside the network falls below a step of the large one."""
    return blame_needed(bench, "concat_shared_scale", "join", accept=["activation_outlier_channel"])


# ---- decoding


def decoded_boxes(random: Generator) -> Network:
    """Corners in pixels are decoded inside the network; sizes are taken from the corners again."""
    net, x = _tower(random)
    _, _, height, width = net.shape(x)
    cells = height * width
    stride = float(random.choice([32, 64, 80]))
    raw = _rows(net, net.conv(x, 4, "reg", kernel=1, gain=0.5), 1, "reg.flat")
    centre, size = blocks.split(net, raw, [2, 2], 2, "decode.split")
    rows, columns = np.mgrid[0:height, 0:width]
    grid = np.stack([columns.ravel(), rows.ravel()], 1)[None].astype(np.float32)
    before = len(net.nodes)
    centre = net.op("Add", [centre, net.constant(grid + 0.5, "decode", "grid")], "decode.centre")
    centre = net.op("Mul", [centre, net.constant(stride, "decode", "stride")], "decode.pixels")
    half = net.op("Mul", [net.op("Exp", [size], "decode.exp"), net.constant(float(random.uniform(1, 3)),
                  "decode", "anchor")], "decode.half")  # fmt: skip
    top_left = net.op("Sub", [centre, half], "decode.tl")
    bottom_right = net.op("Add", [centre, half], "decode.br")
    extent = net.op("Sub", [bottom_right, top_left], "decode.extent")
    net.mark("decode", *[n.output[0] for n in net.nodes[before:]])
    scores = net.op("Sigmoid", [_rows(net, net.conv(x, 3, "cls", kernel=1, gain=1.5), 1, "cls.flat")], "cls")
    assert net.shape(extent) == (1, cells, 2)
    tower = next(i for i, node in enumerate(net.nodes) if raw in node.output)
    net.mark("after", *[n.output[0] for n in net.nodes[tower - 1 :] if n.op_type != "Conv"])
    return net.finish({top_left: "corners", extent: "sizes", scores: "scores"})


@fault("postprocessing_quantized", network=decoded_boxes, is_native=True, style=PER_CHANNEL)
def decoding_in_eight_bits(bench: Bench) -> Truth:
    """Small boxes are differences of large coordinates."""
    return blame_needed(
        bench,
        "postprocessing_quantized",
        "decode",
        accept=["error_amplification", "resolution_underflow"],
        tolerate="after",
    )


# ---- scores


@fault("score_shift", network=architectures.detector)
def scores_sink(bench: Bench) -> Truth:
    """All logits are shifted by about the same amount: the order stays, the threshold cuts elsewhere."""
    marked = set(bench.network.marks["score_conv"])
    node = bench.pick([n for n in bench.weighted("Conv") if n.name in marked])
    bias = surgery.bias_of(bench.candidate, node)
    if bias is None:
        raise UnsuitableError("no bias in integers")
    offset = float(bench.random.choice([-1, 1]) * bench.random.uniform(0.4, 1.2))
    surgery.write_bias(bench.candidate, node, bias + offset)
    readers = [n.name for n, _ in surgery.readers(bench.source, node.output[0])]
    bench.note(f"{node.name}: logits shifted by {offset:.2f}")
    return blame(
        "score_shift", node.name, accept=["bias_shift", "weight_corrupted", "bias_wrong"], tolerate=readers
    )
