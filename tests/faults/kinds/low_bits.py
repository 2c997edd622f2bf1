"""Weights in four bits, and candidates that only a simulator spoils."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.random import Generator
from onnx import TensorProto, helper

from tests.faults import architectures, blocks, data, surgery
from tests.faults.network import Network
from tests.faults.registry import Bench, Truth, blame, fault, style_of
from tests.faults.scoring import BROKEN_DB, HEALTHY_DB
from tests.faults.surgery import UnsuitableError


def dense_stack(random: Generator) -> Network:
    """MatMuls with evenly spread weights, which four bits can hold; one has outlier rows."""
    width = int(random.choice([32, 48, 64]))
    made = data.tokens(random, "hidden", length=8, width=width)
    net = architectures.new_net(random, made, opset=21, spread=0.05)
    x, depth = "hidden", int(random.integers(3, 5))
    chosen = int(random.integers(1, depth))
    for i in range(depth):
        weights = random.uniform(-1, 1, (width, width)).astype(np.float32) / np.float32(np.sqrt(width / 3))
        rows = random.choice(width, 2, replace=False)
        if i == chosen:
            # Rows that read next to nothing: giant weights on inputs that the layer before keeps small.
            factor = np.float32(random.uniform(15, 40))
            weights[rows] *= factor
            maker = next(n for n in reversed(net.nodes) if n.op_type == "MatMul")
            net.constants[maker.input[1]][:, rows] /= factor
            net.recompute(net.nodes.index(maker))
        x = net.op("MatMul", [x, net.constant(weights, f"fc{i}", "weight")], f"fc{i}")
        if i == chosen:
            net.mark("outlier", x)
        if i < depth - 1:
            x = net.op("Tanh" if i + 1 == chosen else "Relu", [x], f"fc{i}")
    return net.finish({x: "y"})


@fault("weight_outlier_low_bits", network=dense_stack, is_native=True)
def four_bits_with_outlier_rows(bench: Bench) -> Truth:
    """Weight-only quantization; the outlier rows of a four-bit weight leave the others no steps."""
    marked = set(bench.network.marks["outlier"])
    block = int(bench.random.choice([0, 0, 16]))
    candidate = _weight_only(bench.source, marked, block)
    healthy = _weight_only(bench.source, set(), 0)
    if bench.score(healthy) < HEALTHY_DB:
        raise UnsuitableError("eight bits are not enough")
    bench.candidate = candidate
    (name,) = marked
    bench.note(f"{name}: four bits, {f'blocks of {block}' if block else 'one scale per column'}")
    return blame(
        "weight_outlier_low_bits",
        name,
        accept=["per_tensor_weight_outlier_channel", "weight_outlier"],
    )


def _weight_only(model: onnx.ModelProto, four_bits: set[str], block: int) -> onnx.ModelProto:
    """Quantize weights of MatMuls: these to four bits, the others to eight."""
    result = surgery.copy_of(model)
    nodes = []
    for node in result.graph.node:
        if node.op_type == "MatMul":
            nodes.append(_dequantized(result, node, 4 if node.name in four_bits else 8, block))
        nodes.append(node)
    kept = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        kept.append(copy)
    del result.graph.node[:]
    result.graph.node.extend(kept)
    return result


def _dequantized(model: onnx.ModelProto, node: onnx.NodeProto, bits: int, block: int) -> onnx.NodeProto:
    """Replace a MatMul's float weight by integers; return the DequantizeLinear that it reads now."""
    name = node.input[1]
    weight = surgery.constant(model, name).astype(np.float64)
    limit = 2 ** (bits - 1) - 1
    if bits == 4 and block:
        blocks_ = np.abs(weight.reshape(-1, block, weight.shape[1])).max(1)
        scale = blocks_ / limit
        spread = np.repeat(scale, block, 0)
        attributes: dict[str, int] = {"axis": 0, "block_size": block}
    else:
        scale = np.abs(weight).max(0) / limit
        spread, attributes = scale[None], {"axis": 1}
    integers = np.clip(np.round(weight / spread), -limit - 1, limit).astype(np.int8)
    kind = TensorProto.INT4 if bits == 4 else TensorProto.INT8
    model.graph.initializer.remove(surgery.constants_of(model)[name])
    stored = helper.make_tensor(f"{name}_quantized", kind, weight.shape, integers.ravel().tolist())
    model.graph.initializer.append(stored)
    surgery.set_constant(model, f"{name}_scale", scale.astype(np.float32))
    zeros = helper.make_tensor(f"{name}_zero_point", kind, scale.shape, [0] * scale.size)
    model.graph.initializer.append(zeros)
    node.input[1] = f"{name}_dequantized"
    reader = helper.make_node(
        "DequantizeLinear",
        [f"{name}_quantized", f"{name}_scale", f"{name}_zero_point"],
        [f"{name}_dequantized"],
        name=f"{name}_DequantizeLinear",
    )
    reader.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
    return reader


# ---- what no device would do


def loud_pairs(random: Generator) -> Network:
    """Layers whose weights and activations are all near their limits, so that pairs of products are large."""
    net, x = architectures.image_net(random, size=16, normalization="unit")
    x = net.op("Sigmoid", [net.conv(x, 12, "stem", shift=2.5, gain=0.6)], "stem")
    for i in range(int(random.integers(2, 4))):
        weights = random.choice([-1.0, 1.0], (12, 12, 3, 3)) * random.uniform(0.85, 1, (12, 12, 3, 3))
        weights[:, ::2] = np.abs(weights[:, ::2])
        y = net.conv(x, 12, f"stage{i}", weights=weights.astype(np.float32), shift=1.5, gain=0.8)
        x = net.op("Sigmoid", [y], f"stage{i}")
    return architectures.classify(net, blocks.relu(net, net.conv(x, 8, "rest"), "rest"))


@fault("simulator_artifact", network=loud_pairs, style=style_of(plain=True, per_channel=True), is_native=True)
def products_saturate(bench: Bench) -> Truth:
    """Integer kernels of this processor add pairs of products in 16 bits; no device does."""
    literal = bench.score(bench.candidate, literal=True)
    if literal < HEALTHY_DB:
        raise UnsuitableError("not healthy to begin with")
    if bench.score(bench.candidate, plain=True) >= BROKEN_DB:
        raise UnsuitableError("this processor does not saturate")
    bench.runs_plain = True
    return Truth(
        "simulator_artifact",
        ("simulator_artifact",),
        verdicts=("healthy", "no_single_layer"),
        may_be_notice=True,
    )
