"""Whole networks of many kinds, drawn at random: depth, widths, operators, names, opset."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from tests.faults import blocks, data
from tests.faults.naming import STYLES, Namer
from tests.faults.network import Data, Net, Network

OPSETS = (11, 12, 13, 13, 15, 17, 18, 20, 21)
INPUT_NAMES = ("image", "images", "input", "x", "data", "input.1", "pixel_values", "serving_default_input:0")
OUTPUT_NAMES = ("output", "logits", "y", "out", "scores", "result", "StatefulPartitionedCall:0")

Architecture = Callable[[Generator], Network]


def new_net(random: Generator, made: Data, *, opset: int | None = None, spread: float | None = None) -> Net:
    """Start a network with a style of its own."""
    return Net(
        random,
        made,
        opset or int(random.choice(OPSETS)),
        Namer(str(random.choice(STYLES)), random),
        spread=float(random.uniform(0.1, 0.45)) if spread is None else spread,
    )


def image_net(
    random: Generator, *, size: int | None = None, opset: int | None = None, normalization: str | None = None
) -> tuple[Net, str]:
    """Start a network that reads a picture; return it and its input."""
    name = str(random.choice(INPUT_NAMES))
    side = size or int(random.choice([12, 16, 20, 24]))
    made = data.images(random, name, size=side, normalization=normalization)
    return new_net(random, made, opset=opset), name


def _width(net: Net, low: int = 6, high: int = 14) -> int:
    return 2 * int(net.random.integers(low // 2, high // 2 + 1))


def classify(net: Net, x: str) -> Network:
    """End with a classifier, in one of the ways that exporters write it."""
    classes = int(net.random.integers(4, 11))
    way = net.random.integers(3)
    if way == 0:
        pooled = net.op("GlobalAveragePool", [x], "head.pool")
        out = net.gemm(net.op("Flatten", [pooled], "head"), classes, "head.fc", gain=3)
    elif way == 1:
        pooled = blocks.reduce_mean(net, x, [2, 3], "head.pool", keepdims=0)
        out = net.matmul(pooled, classes, "head.fc", gain=3)
    else:
        out = net.conv(x, classes, "head.conv", kernel=1, gain=2)
    return net.finish({out: str(net.random.choice(OUTPUT_NAMES))})


def plain(random: Generator) -> Network:
    """Convolutions one after the other."""
    net, x = image_net(random)
    activation, norm = blocks.any_activation(net), bool(random.integers(2))
    depth = int(random.integers(3, 7))
    for i in range(depth):
        place = f"stage{i // 2}.{i % 2}"
        x = activation(net, net.conv(x, _width(net), place, norm=norm), place)
        if i in (1, 3):
            x = blocks.pool(net, x, f"{place}.pool")
    return classify(net, x)


def residual(random: Generator) -> Network:
    """Blocks with a shortcut, some with a projection."""
    net, x = image_net(random)
    activation, norm = blocks.any_activation(net), bool(random.integers(2))
    x = activation(net, net.conv(x, _width(net), "stem", norm=norm), "stem")
    for i in range(int(random.integers(2, 4))):
        place = f"block{i}"
        stride = 2 if i == 1 else 1
        count = _width(net) if stride == 2 else net.channels(x)
        inner = activation(net, net.conv(x, count, f"{place}.a", stride=stride, norm=norm), f"{place}.a")
        inner = net.conv(inner, count, f"{place}.b", norm=norm, gain=0.8)
        short = net.conv(x, count, f"{place}.short", kernel=1, stride=2, norm=norm) if stride == 2 else x
        x = activation(net, net.op("Add", [inner, short], f"{place}.add"), place)
    return classify(net, x)


def mobile(random: Generator) -> Network:
    """Inverted bottlenecks with depthwise convolutions, some with squeeze and excitation."""
    net, x = image_net(random)
    activation, norm = blocks.any_activation(net, but=("prelu",)), bool(random.integers(2))
    x = activation(net, net.conv(x, 8, "stem", norm=norm), "stem")
    for i in range(int(random.integers(2, 4))):
        place = f"block{i}"
        count, wide = net.channels(x), net.channels(x) * 2
        y = activation(net, net.conv(x, wide, f"{place}.expand", kernel=1, norm=norm), f"{place}.expand")
        y = net.conv(y, wide, f"{place}.dw", group=wide, norm=norm, stride=2 if i == 1 else 1)
        y = activation(net, y, f"{place}.dw")
        if random.integers(2):
            y = blocks.squeeze_excite(net, y, f"{place}.se")
        y = net.conv(y, count, f"{place}.project", kernel=1, norm=norm)
        x = y if i == 1 else net.op("Add", [x, y], f"{place}.add")
    return classify(net, x)


def unet(random: Generator) -> Network:
    """Down, up again, with skip connections; the output is a map."""
    net, x = image_net(random, size=16)
    activation = blocks.any_activation(net)
    skips = []
    for i in range(2):
        x = activation(net, net.conv(x, _width(net), f"down{i}", norm=bool(random.integers(2))), f"down{i}")
        skips.append(x)
        x = blocks.pool(net, x, f"down{i}.pool")
    x = activation(net, net.conv(x, _width(net), "bottom"), "bottom")
    for i in range(2):
        if random.integers(2):
            x = net.conv_transpose(x, _width(net), f"up{i}")
        else:
            x = blocks.upsample(net, x, f"up{i}")
        x = net.op("Concat", [x, skips.pop()], f"up{i}.join", axis=1)
        x = activation(net, net.conv(x, _width(net), f"up{i}.conv"), f"up{i}.conv")
    out = net.conv(x, int(random.integers(1, 5)), "head", kernel=int(random.choice([1, 3])))
    return net.finish({out: str(random.choice(OUTPUT_NAMES))})


def inception(random: Generator) -> Network:
    """Parallel branches of different kernels joined by Concats, group convolutions, channel shuffles."""
    net, x = image_net(random)
    activation = blocks.any_activation(net)
    x = activation(net, net.conv(x, 8, "stem", stride=2), "stem")
    for i in range(2):
        place = f"mix{i}"
        if random.integers(2):
            left, right = blocks.split(net, x, [net.channels(x) // 2] * 2, 1, place)
        else:
            left = right = x
        a = activation(net, net.conv(left, _width(net), f"{place}.a", kernel=1), f"{place}.a")
        b = activation(net, net.conv(right, _width(net), f"{place}.b", kernel=3), f"{place}.b")
        c = net.op("MaxPool", [right], f"{place}.c", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
        x = net.op("Concat", [a, b, c], f"{place}.join", axis=1)
        if net.channels(x) % 4 == 0:
            x = blocks.channel_shuffle(net, x, 2, f"{place}.shuffle")
            x = activation(net, net.conv(x, net.channels(x), f"{place}.group", group=2), f"{place}.group")
    return classify(net, x)


def detector(random: Generator, *, join: str = "kinds") -> Network:
    """A pyramid of two levels with heads for boxes and scores.

    Args:
        join: "kinds": one output for boxes and one for scores; "levels": outputs per level and kind.
    """
    net, x = image_net(random, size=16)
    activation = blocks.any_activation(net)
    x = activation(net, net.conv(x, 8, "stem", stride=2), "stem")
    fine = activation(net, net.conv(x, 10, "body.fine"), "body.fine")
    coarse = activation(net, net.conv(fine, 12, "body.coarse", stride=2), "body.coarse")
    lifted = blocks.upsample(net, net.conv(coarse, 10, "neck.lateral", kernel=1), "neck.up", mode="nearest")
    merged = activation(net, net.conv(net.op("Add", [fine, lifted], "neck.add"), 10, "neck.out"), "neck.out")
    boxes, scores = [], []
    for i, (level, stride) in enumerate(((merged, 2), (coarse, 4))):
        place = f"head{i}"
        y = activation(net, net.conv(level, 10, f"{place}.tower"), f"{place}.tower")
        box = blocks.relu(net, net.conv(y, 4, f"{place}.box", shift=1.5, gain=0.8), f"{place}.box")
        net.mark("box_conv", box)
        boxes.append(_flat(net, box, f"{place}.box", scale=float(stride)))
        logits = net.conv(y, 3, f"{place}.cls", shift=-0.5, gain=1.5)
        net.mark("score_conv", logits)
        probabilities = net.op("Sigmoid", [logits], f"{place}.cls")
        net.mark("score", probabilities)
        scores.append(_flat(net, probabilities, f"{place}.cls"))
    if join == "levels":
        return net.finish({t: f"{kind}{i}" for kind, ts in (("box", boxes), ("cls", scores))
                           for i, t in enumerate(ts)})  # fmt: skip
    return net.finish(
        {
            net.op("Concat", boxes, "join.box", axis=1): "boxes",
            net.op("Concat", scores, "join.cls", axis=1): "scores",
        }
    )


def _flat(net: Net, x: str, place: str, *, scale: float | None = None) -> str:
    """(1, C, H, W) -> (1, H * W, C)."""
    _, count, height, width = net.shape(x)
    if scale is not None:
        x = net.op("Mul", [x, net.constant(scale, place, "stride")], place)
    moved = net.op("Transpose", [x], place, perm=[0, 2, 3, 1])
    return net.op("Reshape", [moved, net.constant([1, height * width, count], place, "flat")], place)


def transformer(random: Generator) -> Network:
    """Blocks of attention and a feed-forward part, on embeddings or on patches of a picture."""
    opset = int(random.choice([13, 15, 17, 18, 20, 21]))
    width = 2 * int(random.integers(6, 13))
    if random.integers(2):
        length = int(random.integers(8, 20))
        net = new_net(random, data.tokens(random, "tokens", length=length, width=width), opset=opset)
        x = "tokens"
    else:
        net, image = image_net(random, size=16, opset=opset)
        patches = net.conv(image, width, "patch", kernel=4, stride=4, pads=[0, 0, 0, 0])
        flat = net.op("Reshape", [patches, net.constant([1, width, 16], "patch", "flat")], "patch")
        x = net.op("Transpose", [flat], "patch", perm=[0, 2, 1])
    for i in range(int(random.integers(1, 3))):
        place = f"block{i}"
        y = blocks.attention(net, blocks.layer_norm(net, x, f"{place}.norm1"), f"{place}.attn")
        x = net.op("Add", [x, y], f"{place}.res1")
        y = net.matmul(blocks.layer_norm(net, x, f"{place}.norm2"), 2 * width, f"{place}.fc1")
        y = net.matmul(blocks.gelu(net, y, f"{place}.act"), width, f"{place}.fc2")
        x = net.op("Add", [x, y], f"{place}.res2")
    x = blocks.layer_norm(net, x, "head.norm")
    out = net.matmul(x, int(random.integers(4, 9)), "head.fc", gain=2)
    return net.finish({out: str(random.choice(OUTPUT_NAMES))})


def tabular(random: Generator) -> Network:
    """Several inputs, gates, differences and joins of Gemms."""
    widths = {"features": int(random.integers(10, 24)), "context": int(random.integers(4, 9))}
    net = new_net(random, data.records(random, widths))
    curve = str(random.choice(["Tanh", "Relu", "Sigmoid"]))
    x = net.op(curve, [net.gemm("features", 24, "encode")], "encode")
    c = net.op("Relu", [net.gemm("context", 24, "context")], "context")
    for i in range(int(random.integers(1, 3))):
        place = f"mix{i}"
        gate = net.op("Sigmoid", [net.gemm(c, 24, f"{place}.gate", gain=1.5)], f"{place}.gate")
        value = net.op(curve, [net.gemm(x, 24, f"{place}.value")], f"{place}.value")
        x = net.op("Add", [net.op("Mul", [gate, value], place), x], f"{place}.add")
    joined = net.op("Concat", [x, c], "join", axis=1)
    out = net.gemm(net.op("Relu", [net.gemm(joined, 20, "decode")], "decode"), 5, "head", gain=2)
    return net.finish({out: str(random.choice(OUTPUT_NAMES))})


def audio(random: Generator) -> Network:
    """Dilated one-dimensional convolutions with gated activations and skips."""
    bands = int(random.integers(6, 13))
    net = new_net(random, data.spectra(random, "audio", bands=bands, length=int(random.integers(24, 49))))
    x = net.conv("audio", 12, "stem")
    skips = []
    for i in range(int(random.integers(2, 4))):
        place, rate = f"layer{i}", 2**i

        def dilated(role: str, place: str = place, rate: int = rate, x: str = x) -> str:
            return net.conv(x, 12, f"{place}.{role}", dilations=[rate], pads=[rate, rate], gain=1.3)

        value = net.op("Tanh", [dilated("value")], f"{place}.value")
        gate = net.op("Sigmoid", [dilated("gate")], f"{place}.gate")
        y = net.op("Mul", [value, gate], f"{place}.mul")
        skips.append(net.conv(y, 12, f"{place}.skip", kernel=1))
        x = net.op("Add", [x, net.conv(y, 12, f"{place}.out", kernel=1, gain=0.7)], f"{place}.add")
    total = skips[0]
    for i, skip in enumerate(skips[1:]):
        total = net.op("Add", [total, skip], f"sum{i}")
    out = net.conv(blocks.relu(net, total, "head"), int(random.integers(3, 8)), "head", kernel=1, gain=1.5)
    return net.finish({out: str(random.choice(OUTPUT_NAMES))})


def open_sizes(random: Generator) -> Network:
    """Convolutions on pictures of any size, ended by a mean."""
    net = new_net(random, data.uneven_images(random, str(random.choice(INPUT_NAMES))))
    x = next(iter(net.data.feeds[0]))
    activation, norm = blocks.any_activation(net), bool(random.integers(2))
    for i in range(int(random.integers(2, 5))):
        x = activation(net, net.conv(x, _width(net), f"stage{i}", norm=norm), f"stage{i}")
        if i == 0:
            x = blocks.pool(net, x, "pool")
    if random.integers(2):
        pooled = net.op("Flatten", [net.op("GlobalAveragePool", [x], "head.pool")], "head")
        out = net.gemm(pooled, 6, "head.fc", gain=3)
    else:
        out = net.conv(x, 3, "head", kernel=1)
    return net.finish({out: str(random.choice(OUTPUT_NAMES))}, free_axes=(2, 3))


def sentence(random: Generator) -> Network:
    """Embeddings of ids, a mask, a mean over what is filled; whole numbers and truth values come in."""
    length, width = int(random.integers(8, 15)), 2 * int(random.integers(6, 11))
    net = new_net(random, data.sentences(random, length=length), opset=int(random.choice([13, 15, 17, 20])))
    table = net.constant(random.normal(size=(40, width)).astype(np.float32), "embed", "table")
    x = net.op("Gather", [table, "ids"], "embed", axis=0)
    for i in range(int(random.integers(1, 3))):
        y = net.matmul(blocks.gelu(net, net.matmul(x, 2 * width, f"fc{i}a"), f"act{i}"), width, f"fc{i}b")
        x = blocks.layer_norm(net, net.op("Add", [x, y], f"res{i}"), f"norm{i}")
    filled = net.op("Unsqueeze", ["mask", net.constant([2], "mask", "axes")], "mask")
    kept = net.op("Where", [filled, x, net.constant(0.0, "mask", "zero")], "keep")
    mean = blocks.reduce_mean(net, kept, [1], "mean", keepdims=0)
    return net.finish({net.gemm(mean, int(random.integers(3, 8)), "head", gain=2): "scores"})


def one_number(random: Generator) -> Network:
    """A regression to a single number, positive and negative."""
    made = data.records(random, {"features": int(random.integers(10, 24))}, rows=1, count=12, calibration=16)
    net = new_net(random, made)
    x = "features"
    for i in range(int(random.integers(2, 5))):
        x = net.op("Relu", [net.gemm(x, 16, f"fc{i}")], f"fc{i}")
    return net.finish({net.gemm(x, 1, "head", gain=2): "value"})


CONVOLUTIONAL: tuple[Architecture, ...] = (plain, residual, mobile, unet, inception, detector)
ALL: tuple[Architecture, ...] = (
    *CONVOLUTIONAL,
    transformer,
    tabular,
    audio,
    open_sizes,
    sentence,
    one_number,
)


def any_of(*choices: Architecture) -> Architecture:
    """Return an architecture that is one of these, drawn anew each time."""

    def draw(random: Generator) -> Network:
        return choices[int(random.integers(len(choices)))](random)

    return draw
