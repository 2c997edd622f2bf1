"""Networks whose numbers defy 8 bits: outliers, many small values, cancellation, division, squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from tests.faults import architectures, blocks, data, surgery
from tests.faults.network import Net, Network
from tests.faults.registry import Bench, Truth, blame, fault, style_of
from tests.faults.scoring import HEALTHY_DB
from tests.faults.surgery import UnsuitableError

QDQ = style_of(qdq=True, plain=True)
PER_CHANNEL = style_of(qdq=True, plain=True, per_channel=True)
_MODERN = (13, 15, 17, 18, 20, 21)


def needed(bench: Bench, tensors: Sequence[str], wanted_db: float = HEALTHY_DB) -> tuple[str, ...]:
    """Return a smallest subset of stores that must stay float for the output to reach ``wanted_db``."""
    kept = [t for t in tensors if surgery.is_stored(bench.candidate, t)]
    cured = bench.score(surgery.without_stores(bench.candidate, kept))
    if cured < HEALTHY_DB:
        raise UnsuitableError(f"{cured:.1f} dB with all of them float")
    for tensor in list(kept):
        rest = [t for t in kept if t != tensor]
        if bench.score(surgery.without_stores(bench.candidate, rest)) >= wanted_db:
            kept = rest
    if not kept:
        raise UnsuitableError("it is healthy as it is")
    return tuple(kept)


def outputs_of(bench: Bench, role: str) -> list[str]:
    """Return the first outputs of marked nodes, in order."""
    marked = set(bench.network.marks[role])
    return [n.output[0] for n in bench.source.graph.node if n.name in marked]


def makers(bench: Bench, tensors: Sequence[str]) -> list[str]:
    """Return the names of the nodes that make these tensors."""
    return [n.name for n in bench.source.graph.node if n.output[0] in tensors]


def blame_needed(
    bench: Bench, cause: str, role: str, *, accept: Sequence[str] = (), tolerate: str = ""
) -> Truth:
    """Blame the smallest set of marked stores that cures the network: by a little, or wholly."""
    marked = outputs_of(bench, role)
    bench.cure = needed(bench, marked)
    sets = [frozenset(makers(bench, needed(bench, marked, wanted))) for wanted in (16.9, 18.0, HEALTHY_DB)]
    others = [n for r in (role, *([tolerate] if tolerate else [])) for n in bench.network.marks.get(r, ())]
    return Truth(cause, (cause, *accept), tuple(dict.fromkeys(sets)), frozenset(others))


# ---- outliers


def outlier_norm(random: Generator) -> Network:
    """A transformer block whose LayerNormalization has a few giant channels, which readers scale down."""
    opset = int(random.choice([17, 18, 20, 21]))
    width = 2 * int(random.integers(10, 17))
    net = architectures.new_net(
        random, data.tokens(random, "tokens", length=int(random.integers(8, 16)), width=width), opset=opset
    )
    gamma = random.uniform(0.6, 1.4, width)
    giants = random.choice(width, int(random.integers(1, 4)), replace=False)
    gamma[giants] *= random.uniform(50, 120)
    norm = blocks.layer_norm(net, "tokens", "block.norm", gamma=gamma)
    net.mark("outlier", norm)
    y = _matmul_for(net, norm, 2 * width, "block.fc1", giants, gamma)
    y = net.matmul(blocks.gelu(net, y, "block.act"), width, "block.fc2")
    x = net.op("Add", ["tokens", y], "block.res") if random.integers(2) else y
    out = net.matmul(blocks.layer_norm(net, x, "head.norm"), 6, "head.fc", gain=2)
    return net.finish({out: "logits"})


def _matmul_for(net: Net, x: str, features: int, place: str, giants: np.ndarray, gamma: np.ndarray) -> str:
    """Append a MatMul whose weights make up for giant channels, so that all matter alike."""
    out = net.matmul(x, features, place)
    node = next(n for n in net.nodes if n.op_type == "MatMul" and n.input[0] == x)
    weight = net.constants[node.input[1]]
    weight[giants] /= np.float32(np.abs(gamma[giants])[:, None])
    first = net.nodes.index(node)
    net.recompute(first)
    net.constants[node.input[1]] = weight / np.float32(net.all_values(node.output[0]).std())
    net.recompute(first)
    return out


@fault("activation_outlier_channel", network=outlier_norm, style=PER_CHANNEL, is_native=True)
def giant_channels_of_a_norm(bench: Bench) -> Truth:
    """A few channels of a LayerNormalization take the whole range."""
    return blame_needed(bench, "activation_outlier_channel", "outlier", accept=["activation_outlier"])


def outlier_conv(random: Generator) -> Network:
    """A channel of a Conv is many times as large as the others; the next layer scales it down."""
    net, x = architectures.image_net(random, opset=int(random.choice(_MODERN)))
    activation = blocks.any_activation(net, but=("relu6", "hard_swish", "silu"))
    depth = int(random.integers(3, 5))
    chosen = int(random.integers(1, depth - 1))
    for i in range(depth):
        x = net.conv(x, 12, f"stage{i}", stride=2 if i == 1 else 1)
        if i == chosen:
            maker = net.node_of(x)
            channel, factor = int(random.integers(12)), np.float32(random.uniform(60, 150))
            net.constants[maker.input[1]][channel] *= factor
            net.constants[maker.input[2]][channel] *= factor
            net.recompute(net.nodes.index(maker))
            net.mark("outlier", x)
        if i == chosen + 1:
            reader = net.node_of(x)
            net.constants[reader.input[1]][:, channel] /= factor
            first = net.nodes.index(reader)
            net.recompute(first)
            net.constants[reader.input[1]] /= np.float32(net.all_values(x).std())
            net.recompute(first)
        x = activation(net, x, f"stage{i}")
        if i == chosen:
            net.mark("outlier", x)
    return architectures.classify(net, x)


@fault("activation_outlier_channel", network=outlier_conv, style=PER_CHANNEL, is_native=True)
def giant_channel_of_a_conv(bench: Bench) -> Truth:
    """One channel of a Conv takes the whole range."""
    return blame_needed(bench, "activation_outlier_channel", "outlier", accept=["activation_outlier"])


def massive_residual(random: Generator) -> Network:
    """A position embedding puts a massive value on the residual stream; norms read the stream."""
    opset = int(random.choice([17, 18, 20, 21]))
    width, length = 2 * int(random.integers(10, 15)), int(random.integers(8, 14))
    net = architectures.new_net(
        random, data.tokens(random, "tokens", length=length, width=width), opset=opset
    )
    position = 0.02 * random.normal(size=(1, length, width))  # eight bits lose it beside the massive one
    massive = int(random.integers(width))
    size = float(random.uniform(200, 500))
    position[..., massive] += size
    x = net.op("Add", ["tokens", net.constant(position.astype(np.float32), "embed", "position")], "embed")
    net.mark("stream", x)
    for i in range(int(random.integers(1, 3))):
        # The norm's scale undoes what the massive channel does to the variance, and keeps that one small.
        gamma = np.full(width, size / np.sqrt(width))
        gamma[massive] = 0.3
        norm = blocks.layer_norm(net, x, f"block{i}.norm", gamma=gamma)
        y = net.matmul(blocks.gelu(net, net.matmul(norm, width, f"block{i}.fc1"), f"block{i}.act"), width,
                       f"block{i}.fc2")  # fmt: skip
        x = net.op("Add", [x, y], f"block{i}.res")
        net.mark("stream", x)
    keep = random.choice(width, width // 2, replace=False)
    pick = np.zeros((width, 6), np.float32)
    pick[keep] = random.normal(size=(len(keep), 6))
    pick[int(np.argmax(np.abs(net.all_values(x)).mean((0, 1, 2))))] = 0
    out = net.op("MatMul", [x, net.constant(pick, "head", "weight")], "head")
    return net.finish({out: "y"})


@fault("activation_outlier_channel", network=massive_residual, style=PER_CHANNEL, is_native=True)
def massive_value_on_the_stream(bench: Bench) -> Truth:
    """Every Add of the residual stream carries a massive channel."""
    return blame_needed(
        bench,
        "activation_outlier_channel",
        "stream",
        accept=["activation_outlier", "residual_scale_mismatch"],
    )


# ---- weights of one channel


def one_loud_filter(random: Generator) -> Network:
    """Depthwise or plain weights of which one channel is giant, but reads next to nothing."""
    net, x = architectures.image_net(random)
    net.spread = 0.15
    count = 12
    x = net.conv(x, count, "stem", stride=int(random.integers(1, 3)))
    maker = net.node_of(x)
    quiet = int(random.integers(count))
    factor = np.float32(random.uniform(60, 200))
    kind = str(random.choice(["dead", "quiet"]))
    net.constants[maker.input[1]][quiet] /= factor if kind == "quiet" else np.float32(1e6)
    net.constants[maker.input[2]][quiet] = -0.01 if kind == "dead" else 0.02
    net.recompute(net.nodes.index(maker))
    x = blocks.relu(net, x, "stem")
    depthwise = bool(random.integers(2))
    x = net.conv(x, count, "loud", group=count if depthwise else 1)
    node = net.node_of(x)
    weight = net.constants[node.input[1]]
    if depthwise:
        weight[quiet] *= factor
    else:
        weight[:, quiet] *= factor
        weight[np.arange(count) != quiet, quiet] /= factor
    net.recompute(net.nodes.index(node))
    net.mark("loud", x)
    x = blocks.relu6(net, x, "loud")
    for i in range(int(random.integers(1, 3))):
        x = blocks.relu(net, net.conv(x, count, f"rest{i}"), f"rest{i}")
    return architectures.classify(net, x)


@fault(
    "per_tensor_weight_outlier_channel",
    network=one_loud_filter,
    style=style_of(qdq=True, plain=True, per_channel=False),
    is_native=True,
)
def one_scale_for_a_loud_filter(bench: Bench) -> Truth:
    """One scale for the whole weight leaves the other channels a few steps."""
    node = bench.pick([n for n in bench.weighted("Conv") if n.name in bench.network.marks["loud"]])
    repaired = surgery.copy_of(bench.candidate)
    twin = surgery.node_named(repaired, node.name)
    twin.input[1] = f"{node.input[1]}_float"
    surgery.set_constant(repaired, twin.input[1], surgery.constant(bench.source, node.input[1]))
    if bench.score(repaired) < HEALTHY_DB:
        raise UnsuitableError("not the weight alone")
    return blame("per_tensor_weight_outlier_channel", node.name, accept=["weight_outlier_low_bits"])


# ---- values under half a step


def many_tokens(random: Generator) -> Network:
    """Attention over so many tokens that every weight is small."""
    length, width = int(random.integers(420, 700)), 8
    made = data.tokens(random, "tokens", length=length, width=width, count=4, calibration=3)
    net = architectures.new_net(random, made, opset=int(random.choice(_MODERN)))
    y = blocks.attention(net, "tokens", "attn", heads=1, sharpness=0.3)
    if random.integers(2):
        y = net.matmul(blocks.relu(net, net.matmul(y, width, "fc1"), "fc1"), width, "fc2")
    return net.finish({y: "mixed"})


@fault("resolution_underflow", network=many_tokens, style=PER_CHANNEL, is_native=True)
def softmax_over_many(bench: Bench) -> Truth:
    """The weights of a Softmax lie under half a step of 1/255."""
    return blame_needed(
        bench, "resolution_underflow", "softmax", accept=["output_scale_wrong", "range_too_wide"]
    )


# ---- cancellation


def small_difference(random: Generator) -> Network:
    """A large common part is taken away from two stored values, or from one and its mean."""
    net, x = architectures.image_net(random, opset=int(random.choice(_MODERN)))
    activation = blocks.any_activation(net, but=("relu6",))
    x = activation(net, net.conv(x, 10, "stem", stride=2), "stem")
    pedestal = float(random.uniform(150, 500))
    a = net.conv(x, 10, "left", shift=pedestal)
    net.mark("inputs", a)
    if random.integers(2):
        b = net.conv(x, 10, "right", shift=pedestal)
    else:
        b = blocks.reduce_mean(net, a, [2, 3], "level")
    net.mark("inputs", b)
    x = net.op("Sub", [a, b], "difference")
    net.mark("difference", x)
    x = activation(net, net.conv(x, 10, "rest"), "rest")
    return architectures.classify(net, x)


@fault("error_amplification", network=small_difference, style=PER_CHANNEL, is_native=True)
def difference_of_large_values(bench: Bench) -> Truth:
    """What is stored well in total is lost in the difference."""
    truth = blame_needed(
        bench, "error_amplification", "inputs", accept=["resolution_underflow"], tolerate="difference"
    )
    sub = frozenset(bench.network.marks["difference"])
    return replace(truth, guilty=(*truth.guilty, sub))


# ---- division


def ratio(random: Generator) -> Network:
    """A quotient whose denominator comes near zero, but never is zero in float."""
    net, x = architectures.image_net(random, opset=int(random.choice(_MODERN)))
    x = blocks.relu(net, net.conv(x, 8, "stem", stride=2), "stem")
    logs = net.conv(x, 6, "den", gain=float(random.uniform(1.6, 2.4)))
    way = str(random.choice(["exp", "square"]))
    if way == "exp":
        den = net.op("Exp", [logs], "den")
    else:
        square = net.op("Mul", [logs, logs], "den")
        den = net.op("Add", [square, net.constant(0.01, "den", "floor")], "den")
    net.mark("den", den)
    num = net.conv(x, 6, "num")
    out = net.op("Div", [num, den], "ratio")
    net.mark("ratio", out)
    return net.finish({out: "ratio"})


@fault("nan_inf_from_quantized_zero", network=ratio, style=PER_CHANNEL, is_native=True)
def division_by_rounded_zero(bench: Bench) -> Truth:
    """Small denominators are rounded to zero."""
    bench.candidate = surgery.without_stores(bench.candidate, outputs_of(bench, "ratio"))
    truth = blame_needed(
        bench,
        "nan_inf_from_quantized_zero",
        "den",
        accept=["nan_inf_source", "resolution_underflow"],
        tolerate="ratio",
    )
    if np.isfinite(bench.score(bench.candidate)):
        raise UnsuitableError("no denominator became zero")
    return truth


# ---- normalization in pieces


def uneven_tokens(random: Generator) -> Network:
    """Tokens of very different size, normalized by operators that are quantized one by one."""
    width = 2 * int(random.integers(6, 11))
    made = data.tokens(random, "tokens", length=int(random.integers(10, 20)), width=width)
    length = made.feeds[0]["tokens"].shape[1]
    factors = np.exp(random.uniform(-1.3, 1.3, (1, length, 1))).astype(np.float32)
    for feed in (*made.feeds, *made.calibration):
        feed["tokens"] *= factors
    net = architectures.new_net(random, made, opset=int(random.choice([13, 15, 17, 18, 20])))
    x = net.matmul("tokens", width, "embed", bias=False)
    g = net.constant(random.uniform(0.6, 1.4, width).astype(np.float32), "norm", "gamma")
    b = net.constant((0.2 * random.normal(size=width)).astype(np.float32), "norm", "beta")
    before = len(net.nodes)
    y = blocks.layer_norm_in_pieces(net, x, g, b, "norm")
    net.mark("norm", *[n.output[0] for n in net.nodes[before:]])
    y = net.matmul(blocks.gelu(net, net.matmul(y, width, "fc1"), "act"), 6, "fc2")
    return net.finish({y: "y"})


@fault("normalization_sensitive", network=uneven_tokens, style=PER_CHANNEL, is_native=True)
def norm_in_pieces(bench: Bench) -> Truth:
    """Squares and variances of small tokens are lost beside those of large ones."""
    return any_of_them(
        bench,
        "normalization_sensitive",
        "norm",
        accept=["resolution_underflow", "error_amplification", "range_too_wide"],
    )


def any_of_them(bench: Bench, cause: str, role: str, *, accept: Sequence[str]) -> Truth:
    """Blame members of a marked group: any of them will do, since together they are one operation."""
    bench.cure = needed(bench, outputs_of(bench, role))
    names = bench.network.marks[role]
    return Truth(
        cause,
        (cause, *accept),
        tuple(frozenset([name]) for name in names),
        frozenset(names),
    )


# ---- activation in pieces


def gelu_of_large_values(random: Generator) -> Network:
    """GELU by tanh, in pieces, on values of which some are large: their cube takes the whole range."""
    width = 2 * int(random.integers(8, 13))
    net = architectures.new_net(
        random,
        data.tokens(random, "tokens", length=int(random.integers(8, 16)), width=width),
        opset=int(random.choice(_MODERN)),
        spread=0.1,
    )
    hidden = net.matmul("tokens", width, "fc1", gain=1.0)
    bias = net.constants[net.node_of(hidden).input[1]]
    bias[random.choice(width, 2, replace=False)] += np.float32(random.uniform(18, 28))
    net.recompute(net.nodes.index(net.node_of(hidden)))
    before = len(net.nodes)
    y = blocks.tanh_gelu(net, hidden, "act")
    net.mark("pieces", *[n.output[0] for n in net.nodes[before:]])
    weights = net.weights((width, 6), axis=1)
    weights[np.abs(net.all_values(y)).mean((0, 1, 2)) > 4] *= 0.02
    out = net.op("MatMul", [y, net.constant(weights, "fc2", "weight")], "fc2")
    return net.finish({out: "y"})


@fault("activation_in_pieces", network=gelu_of_large_values, style=PER_CHANNEL, is_native=True)
def cube_takes_the_range(bench: Bench) -> Truth:
    """The inside of an activation is quantized, which no device that fuses it would do."""
    return any_of_them(
        bench,
        "activation_in_pieces",
        "pieces",
        accept=["resolution_underflow", "range_too_wide", "activation_outlier_channel"],
    )


def gates(random: Generator) -> Network:
    """Convolutions with SiLU in pieces."""
    net, x = architectures.image_net(random, opset=int(random.choice(_MODERN)))
    for i in range(int(random.integers(3, 5))):
        y = net.conv(x, 10, f"stage{i}", stride=2 if i == 1 else 1)
        before = len(net.nodes)
        x = blocks.silu(net, y, f"stage{i}")
        net.mark(f"pieces{i}", *[n.output[0] for n in net.nodes[before:]])
    return architectures.classify(net, x)


@fault("activation_in_pieces", network=gates, style=QDQ)
def gate_in_few_steps(bench: Bench) -> Truth:
    """The Sigmoid inside a SiLU is stored in a few steps."""
    stage = int(bench.random.integers(sum(1 for role in bench.network.marks if role.startswith("pieces"))))
    names = bench.network.marks[f"pieces{stage}"]
    node = bench.pick([n for n in bench.stored("Sigmoid") if n.name in names])
    levels = float(bench.random.uniform(1.2, 4))
    surgery.set_range(bench.candidate, node.output[0], 0.0, 255 / levels)
    bench.note(f"{node.name}: {levels:.1f} steps for 0..1")
    return Truth(
        "activation_in_pieces",
        ("activation_in_pieces", "range_too_wide", "resolution_underflow"),
        tuple(frozenset([name]) for name in names),
        frozenset(names),
    )


# ---- beyond half precision


def energies(random: Generator) -> Network:
    """Squares of large values and their mean, which lie beyond 65504."""
    net, x = architectures.image_net(random, opset=int(random.choice(_MODERN)))
    x = blocks.relu(net, net.conv(x, 8, "stem", stride=2), "stem")
    large = net.conv(x, 8, "large", gain=float(random.uniform(250, 500)))
    square = net.op("Mul", [large, large], "square")
    net.mark("square", square)
    if random.integers(2):
        energy = blocks.reduce_mean(net, square, [1], "energy")
    else:
        energy = net.op("AveragePool", [square], "energy", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    net.mark("square", energy)
    safe = net.op("Add", [energy, net.constant(1.0, "safe", "eps")], "safe")
    net.mark("square", safe)
    root = net.op("Sqrt", [safe], "root")
    net.mark("around", root)
    normed = net.op("Div", [large, root], "normed")
    net.mark("around", normed)
    out = net.conv(normed, 6, "rest", kernel=1)
    return net.finish({out: "y"})


@fault("fp16_overflow_risk", network=energies, style=PER_CHANNEL, is_native=True)
def squares_beyond_half(bench: Bench) -> Truth:
    """Squares need more than 8 bits, and half precision cannot hold them."""
    truth = any_of_them(
        bench,
        "fp16_overflow_risk",
        "square",
        accept=["activation_outlier_channel", "range_too_wide", "resolution_underflow"],
    )
    return replace(truth, tolerated=truth.tolerated | frozenset(bench.network.marks["around"]))
