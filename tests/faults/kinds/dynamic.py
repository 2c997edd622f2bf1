"""Candidates whose activations are quantized while they run, and faults of single samples and of pairs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from numpy.random import Generator
from onnxruntime.quantization import QuantType, quantize_dynamic

from tests.faults import architectures, blocks, surgery
from tests.faults.kinds.numbers import outputs_of
from tests.faults.kinds.stores import rare_pattern_missed, with_loud_samples
from tests.faults.network import Feeds, Network
from tests.faults.quantization import silence
from tests.faults.registry import Bench, Truth, fault, style_of
from tests.faults.scoring import BROKEN_DB, HEALTHY_DB
from tests.faults.surgery import UnsuitableError

PLAIN = style_of(qdq=True, plain=True)


@fault(
    "scale_gain_error",
    network=architectures.any_of(architectures.transformer, architectures.sentence),
    style=PLAIN,
)
def dynamic_weight_scale_off(bench: Bench) -> Truth:
    """Activations are quantized on the fly; the weight scale of one layer is off."""
    bench.candidate = _dynamic(bench.source)
    if bench.score(bench.candidate) < HEALTHY_DB:
        raise UnsuitableError("not healthy to begin with")
    nodes = [
        n for n in bench.nodes("MatMul") if f"{n.input[1]}_scale" in surgery.constants_of(bench.candidate)
    ]
    node = bench.pick(nodes)
    name = f"{node.input[1]}_scale"
    factor = np.float32(bench.random.choice([0.3, 0.4, 0.5, 2.0, 3.0]))
    surgery.set_constant(bench.candidate, name, surgery.constant(bench.candidate, name) * factor)
    bench.note(f"{node.name}: weight scale times {factor}, activations quantized on the fly")
    # What the layer is called depends on whether the Add of its bias counts as one of its own.
    adds = [n.name for n, _ in surgery.readers(bench.source, node.output[0]) if n.op_type == "Add"]
    return Truth(
        "scale_gain_error",
        ("scale_gain_error", "weight_scale_wrong", "weight_corrupted"),
        tuple(frozenset([name]) for name in (node.name, *adds)),
        frozenset((node.name, *adds)),
    )


def _dynamic(model: onnx.ModelProto) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, silence():
        source, target = Path(folder) / "float.onnx", Path(folder) / "dynamic.onnx"
        onnx.save(model, source)
        quantize_dynamic(
            str(source), str(target), op_types_to_quantize=["MatMul"], weight_type=QuantType.QInt8
        )
        return onnx.load(target)


# ---- one sample of many


def one_loud_picture(random: Generator) -> Network:
    """Pictures of many sizes, of which one is far too bright."""
    return with_loud_samples(random, architectures.open_sizes(random), 1)


@fault(
    "activation_clipping",
    network=one_loud_picture,
    style=style_of(plain=True),
    is_native=True,
    misses_samples=True,
)
def one_sample_clipped(bench: Bench) -> Truth:
    """One sample of another size drives one layer beyond its range."""
    return rare_pattern_missed(bench)


# ---- a branch that sleeps while calibrating


def cold_light(random: Generator) -> Network:
    """A branch wakes where a picture is bluer than it is red; calibration has warm pictures only."""
    net, x = architectures.image_net(random, size=16, normalization="unit")

    def tinted(feeds: tuple[Feeds, ...], cold: Callable[[int], bool]) -> tuple[Feeds, ...]:
        result = []
        for i, feed in enumerate(feeds):
            picture = feed[x].copy()
            low, high = np.minimum(picture[:, 0], picture[:, 2]), np.maximum(picture[:, 0], picture[:, 2])
            picture[:, 0], picture[:, 2] = (low, high) if cold(i) else (high, low)
            result.append({x: picture})
        return tuple(result)

    net.data.feeds = tinted(net.data.feeds, lambda i: i % 2 == 0)
    net.data.calibration = tinted(net.data.calibration, lambda i: i == 0)
    net.values[x] = [feed[x] for feed in net.data.calibration[:3]]
    base = blocks.relu(net, net.conv(x, 8, "stem"), "stem")
    weight = np.zeros((4, 3, 1, 1), np.float32)
    weight[:, 0, 0, 0], weight[:, 2, 0, 0] = -1, random.uniform(0.8, 1, 4)
    alarm = net.conv(x, 4, "alarm", kernel=1, weights=weight, gain=0.6)
    maker = net.node_of(alarm)
    net.constants[maker.input[2]][:] = -0.02
    net.recompute(net.nodes.index(maker))
    net.mark("alarm", alarm)
    alarm = blocks.relu(net, alarm, "alarm")
    net.mark("alarm", alarm)
    joined = net.op("Concat", [base, alarm], "join", axis=1)
    net.mark("join", joined)
    out = net.conv(blocks.relu(net, net.conv(joined, 8, "rest"), "rest"), 5, "head", kernel=1)
    # The pictures that woke the branch while building are not for calibration.
    net.data.calibration = net.data.calibration[1:]
    return net.finish({out: "y"})


@fault(
    "zero_range_scale", network=cold_light, style=style_of(qdq=True, plain=True), is_native=True,
    misses_samples=True,
)  # fmt: skip
def branch_asleep_in_calibration(bench: Bench) -> Truth:
    """The tool quantizes the network itself, from a set in which a branch is all zero."""
    bench.calibration, bench.is_left_to_the_tool = bench.network.calibration, True
    alarm, join = bench.network.marks["alarm"], bench.network.marks["join"]
    # The join was calibrated without the branch, too; it may be named besides.
    lifted = [*outputs_of(bench, "alarm"), *outputs_of(bench, "join")]
    if bench.score(surgery.without_stores(bench.candidate, lifted)) < BROKEN_DB:
        raise UnsuitableError("what comes behind is clipped as well")
    causes = ("zero_range_scale", "activation_clipping", "calibration_not_representative")
    return Truth(causes[0], causes, tuple(frozenset([n]) for n in alarm), frozenset((*alarm, *join)))


# ---- two that must be repaired together


@fault(
    "activation_clipping",
    network=architectures.any_of(architectures.tabular, architectures.audio),
    style=PLAIN,
)
def both_factors_clipped(bench: Bench) -> Truth:
    """Both factors of a product are clipped; repairing one alone is not enough."""
    made = {n.output[0]: n for n in bench.stored(outputs=False)}
    products = [n for n in bench.nodes("Mul") if all(name in made for name in n.input)]
    product = bench.pick(products)
    share = float(bench.random.uniform(0.15, 0.4))
    for name in product.input:
        low, high = surgery.range_of(bench.candidate, name)
        surgery.set_range(bench.candidate, name, low * share, high * share)
    guilty = [made[name].name for name in product.input]
    for name in product.input:
        alone = surgery.without_stores(bench.candidate, [name])
        if bench.score(alone) > 15:
            raise UnsuitableError("one is enough")
    bench.note(f"{' and '.join(guilty)} clipped to {share:.0%}")
    return Truth("activation_clipping", ("activation_clipping",), (frozenset(guilty),))
