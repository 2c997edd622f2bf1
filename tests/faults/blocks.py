"""Parts that networks are made of, each in the forms that exporters write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.faults.network import Net


def relu(net: Net, x: str, place: str) -> str:
    return net.op("Relu", [x], place)


def relu6(net: Net, x: str, place: str) -> str:
    low, high = net.constant(0.0, place, "min"), net.constant(6.0, place, "max")
    return net.op("Clip", [x, low, high], place)


def leaky(net: Net, x: str, place: str) -> str:
    return net.op("LeakyRelu", [x], place, alpha=float(np.round(net.random.uniform(0.05, 0.3), 2)))


def silu(net: Net, x: str, place: str) -> str:
    return net.op("Mul", [x, net.op("Sigmoid", [x], place)], place)


def hard_swish(net: Net, x: str, place: str) -> str:
    """As one operator where the opset has it, else as HardSigmoid and Mul."""
    if net.opset >= 14 and net.random.integers(2):
        return net.op("HardSwish", [x], place)
    return net.op("Mul", [x, net.op("HardSigmoid", [x], place, alpha=1 / 6, beta=0.5)], place)


def prelu(net: Net, x: str, place: str) -> str:
    dims = len(net.shape(x)) - 2
    slopes = net.random.uniform(0.05, 0.4, (net.channels(x), *([1] * dims))).astype(np.float32)
    return net.op("PRelu", [x, net.constant(slopes, place, "slope")], place)


def gelu(net: Net, x: str, place: str) -> str:
    """As one operator where the opset has it, else in pieces with Erf."""
    if net.opset >= 20 and net.random.integers(2):
        return net.op("Gelu", [x], place)
    scaled = net.op("Div", [x, net.constant(float(np.sqrt(2)), place, "root")], place)
    one = net.op("Add", [net.op("Erf", [scaled], place), net.constant(1.0, place, "one")], place)
    return net.op("Mul", [net.op("Mul", [x, one], place), net.constant(0.5, place, "half")], place)


def tanh_gelu(net: Net, x: str, place: str) -> str:
    """The approximation with tanh, in pieces."""
    cube = net.op("Pow", [x, net.constant(3.0, place, "three")], place)
    inner = net.op("Add", [x, net.op("Mul", [cube, net.constant(0.044715, place, "c")], place)], place)
    curve = net.op("Tanh", [net.op("Mul", [inner, net.constant(0.7978846, place, "k")], place)], place)
    one = net.op("Add", [curve, net.constant(1.0, place, "one")], place)
    return net.op("Mul", [net.op("Mul", [x, one], place), net.constant(0.5, place, "half")], place)


ACTIVATIONS: dict[str, Callable[[Net, str, str], str]] = {
    "relu": relu,
    "relu6": relu6,
    "leaky": leaky,
    "silu": silu,
    "hard_swish": hard_swish,
    "prelu": prelu,
}
"""For convolutional networks; ``gelu`` and ``tanh_gelu`` are for transformers."""


def any_activation(net: Net, *, but: tuple[str, ...] = ()) -> Callable[[Net, str, str], str]:
    """Return one activation for a whole network."""
    return ACTIVATIONS[str(net.random.choice([name for name in ACTIVATIONS if name not in but]))]


def reduce_mean(net: Net, x: str, axes: list[int], place: str, *, keepdims: int = 1) -> str:
    """ReduceMean took its axes as an attribute before opset 18."""
    if net.opset < 18:
        return net.op("ReduceMean", [x], place, axes=axes, keepdims=keepdims)
    return net.op("ReduceMean", [x, net.constant(axes, place, "axes")], place, keepdims=keepdims)


def split(net: Net, x: str, sizes: list[int], axis: int, place: str) -> tuple[str, ...]:
    """Split took its sizes as an attribute before opset 13."""
    if net.opset < 13:
        return net.ops("Split", [x], place, len(sizes), attributes={"axis": axis, "split": sizes})
    return net.ops(
        "Split", [x, net.constant(sizes, place, "sizes")], place, len(sizes), attributes={"axis": axis}
    )


def slice_axis(net: Net, x: str, start: int, stop: int, axis: int, place: str) -> str:
    names = [
        net.constant([value], place, role)
        for role, value in (("starts", start), ("ends", stop), ("axes", axis))
    ]
    return net.op("Slice", [x, *names], place)


def upsample(net: Net, x: str, place: str, *, mode: str | None = None) -> str:
    """Double height and width with Resize."""
    chosen = mode or str(net.random.choice(["nearest", "linear"]))
    scales = net.constant(np.array([1, 1, 2, 2], np.float32), place, "scales")
    attributes: dict[str, object] = {"mode": chosen}
    if chosen == "nearest":
        attributes |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    else:
        attributes |= {"coordinate_transformation_mode": "half_pixel"}
    roi = "" if net.opset >= 13 else net.constant(np.zeros(0, np.float32), place, "roi")
    return net.op("Resize", [x, roi, scales], place, **attributes)


def pool(net: Net, x: str, place: str) -> str:
    """Halve height and width."""
    if net.random.integers(2):
        return net.op("MaxPool", [x], place, kernel_shape=[2, 2], strides=[2, 2])
    return net.op(
        "AveragePool", [x], place, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=1
    )


def squeeze_excite(net: Net, x: str, place: str) -> str:
    """Scale channels by gates that are computed from their means."""
    count = net.channels(x)
    squeezed = net.op("GlobalAveragePool", [x], f"{place}.squeeze")
    hidden = relu(net, net.conv(squeezed, max(count // 2, 4), f"{place}.down", kernel=1), f"{place}.down")
    logits = net.conv(hidden, count, f"{place}.up", kernel=1, gain=1.5)
    if net.random.integers(2):
        gates = net.op("Sigmoid", [logits], f"{place}.gate")
    else:
        gates = net.op("HardSigmoid", [logits], f"{place}.gate", alpha=1 / 6, beta=0.5)
    return net.op("Mul", [x, gates], f"{place}.scale")


def channel_shuffle(net: Net, x: str, groups: int, place: str) -> str:
    batch, count, *rest = net.shape(x)
    apart = net.constant([batch, groups, count // groups, *rest], place, "apart")
    together = net.constant([batch, count, *rest], place, "together")
    axes = [0, 2, 1, *range(3, 3 + len(rest))]
    moved = net.op("Transpose", [net.op("Reshape", [x, apart], place)], place, perm=axes)
    return net.op("Reshape", [moved, together], place)


def layer_norm(net: Net, x: str, place: str, *, gamma: np.ndarray | None = None) -> str:
    """As one operator where the opset has it, else in pieces."""
    width = net.shape(x)[-1]
    scale = net.random.uniform(0.6, 1.4, width) if gamma is None else gamma
    g = net.constant(scale.astype(np.float32), place, "gamma")
    b = net.constant((0.2 * net.random.normal(size=width)).astype(np.float32), place, "beta")
    if net.opset >= 17:
        return net.op("LayerNormalization", [x, g, b], place, axis=-1, epsilon=1e-5)
    return layer_norm_in_pieces(net, x, g, b, place)


def layer_norm_in_pieces(net: Net, x: str, gamma: str, beta: str, place: str) -> str:
    mean = reduce_mean(net, x, [-1], place)
    centred = net.op("Sub", [x, mean], place)
    square = net.op("Pow", [centred, net.constant(2.0, place, "two")], place)
    variance = reduce_mean(net, square, [-1], place)
    deviation = net.op("Sqrt", [net.op("Add", [variance, net.constant(1e-5, place, "eps")], place)], place)
    normal = net.op("Div", [centred, deviation], place)
    return net.op("Add", [net.op("Mul", [normal, gamma], place), beta], place)


def heads_apart(net: Net, x: str, heads: int, place: str, *, perm: list[int]) -> str:
    """(1, T, heads * D) -> (1, heads, T, D) or, with another perm, its transpose."""
    _, length, width = net.shape(x)
    apart = net.constant([1, length, heads, width // heads], place, "apart")
    return net.op("Transpose", [net.op("Reshape", [x, apart], place)], place, perm=perm)


def attention(net: Net, x: str, place: str, *, heads: int = 2, sharpness: float = 1.5) -> str:
    """Return what self-attention mixes, projected; no residual."""
    _, length, width = net.shape(x)
    q = heads_apart(net, net.matmul(x, width, f"{place}.q"), heads, f"{place}.q", perm=[0, 2, 1, 3])
    k = heads_apart(net, net.matmul(x, width, f"{place}.k"), heads, f"{place}.k", perm=[0, 2, 3, 1])
    v = heads_apart(net, net.matmul(x, width, f"{place}.v"), heads, f"{place}.v", perm=[0, 2, 1, 3])
    raw = net.op("MatMul", [q, k], f"{place}.scores")
    scale = sharpness / max(float(net.all_values(raw).std()), 1e-6)
    scores = net.op("Mul", [raw, net.constant(float(scale), f"{place}.scores", "scale")], f"{place}.scores")
    weights = net.op("Softmax", [scores], f"{place}.softmax", axis=-1)
    mixed = net.op("MatMul", [weights, v], f"{place}.mix")
    joined = net.op("Transpose", [mixed], f"{place}.mix", perm=[0, 2, 1, 3])
    flat = net.op(
        "Reshape", [joined, net.constant([1, length, width], f"{place}.mix", "together")], f"{place}.mix"
    )
    net.mark("softmax", weights)
    net.mark("attention", mixed)
    return net.matmul(flat, width, f"{place}.out")
