"""Candidates whose activations are quantized while they run, and faults of single samples and of pairs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from numpy.random import Generator
from onnxruntime.quantization import QuantType, quantize_dynamic

from tests.faults import architectures, surgery
from tests.faults.kinds.stores import rare_pattern_missed, with_loud_samples
from tests.faults.network import Network
from tests.faults.quantization import silence
from tests.faults.registry import Bench, Truth, fault, style_of
from tests.faults.scoring import HEALTHY_DB
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
