"""Faults without a layer to blame: inputs prepared otherwise, a bad calibration set, another checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
from numpy.random import Generator

from analyzers.records import Array
from tests.faults import architectures, blocks, surgery
from tests.faults.data import NORMALIZATIONS
from tests.faults.network import Feeds, Network
from tests.faults.quantization import Style
from tests.faults.registry import Bench, Truth, fault, style_of
from tests.faults.scoring import BROKEN_DB, Scorer
from tests.faults.surgery import UnsuitableError

pictures = architectures.any_of(*architectures.CONVOLUTIONAL)


def nobody(cause: str, *verdicts: str) -> Truth:
    """Return the answer that blames no layer."""
    return Truth(cause, (cause,), verdicts=verdicts)


def _mapped(bench: Bench, change: Callable[[Array], Array]) -> tuple[Feeds, ...]:
    return tuple(
        {name: np.ascontiguousarray(change(array), np.float32) for name, array in feed.items()}
        for feed in bench.network.feeds
    )


# ---- what the candidate is fed


@fault("preprocessing_channel_order", network=pictures)
def colours_reversed(bench: Bench) -> Truth:
    """BGR instead of RGB."""
    bench.candidate_feeds = _mapped(bench, lambda a: a[:, ::-1])
    return nobody("preprocessing_channel_order", "inputs_differ")


@fault("preprocessing_layout", network=pictures)
def layout_misread(bench: Bench) -> Truth:
    """The buffer is (N, H, W, C) but is read as (N, C, H, W)."""
    bench.candidate_feeds = _mapped(bench, lambda a: a.transpose(0, 2, 3, 1).reshape(a.shape))
    return nobody("preprocessing_layout", "inputs_differ")


@fault("preprocessing_normalization", network=pictures)
def normalized_otherwise(bench: Bench) -> Truth:
    """Normalization is missing, applied twice, or that of another framework."""
    assert bench.network.pixels is not None
    scale, mean, std = (np.asarray(v, np.float64) for v in bench.network.pixels)
    mean, std = mean.reshape(-1, 1, 1), std.reshape(-1, 1, 1)
    way = str(bench.random.choice(["missing", "no_mean", "twice", "bytes", "other"]))
    other_scale, other_mean, other_std = NORMALIZATIONS[str(bench.random.choice(list(NORMALIZATIONS)))]

    def change(array: Array) -> Array:
        pixels = (array * std + mean) / scale
        if way == "missing":
            return pixels * scale
        if way == "no_mean":
            return pixels * scale / std
        if way == "twice":
            return (array * scale - mean) / std
        if way == "bytes":
            return pixels
        shape = (-1, 1, 1)
        return np.asarray(
            (pixels * other_scale - np.reshape(other_mean, shape)) / np.reshape(other_std, shape)
        )

    bench.candidate_feeds = _mapped(bench, change)
    name = next(iter(bench.network.feeds[0]))
    if np.allclose(bench.candidate_feeds[0][name], bench.network.feeds[0][name], atol=1e-3):
        raise UnsuitableError("this network is normalized like that")
    bench.note(f"normalization: {way}")
    return nobody("preprocessing_normalization", "inputs_differ")


# ---- calibration


def _plain(random: Generator, network: Network) -> Style:
    return replace(style_of()(random, network), method="MinMax")


@fault("calibration_not_representative", style=_plain)
def calibrated_on_noise(bench: Bench) -> Truth:
    """The calibration set is loud noise."""
    factor = float(bench.random.uniform(20, 60))
    bench.calibration = tuple(
        {
            name: (factor * np.abs(array).max() * bench.random.normal(size=array.shape)).astype(np.float32)
            for name, array in feed.items()
        }
        for feed in bench.network.calibration
    )
    bench.requantize(bench.calibration)
    bench.note(f"calibrated on noise {factor:.0f} times as large as the data")
    return nobody("calibration_not_representative", "no_single_layer")


@fault("calibration_not_representative", style=_plain)
def calibrated_on_next_to_nothing(bench: Bench) -> Truth:
    """The calibration set is dim: the lights were off."""
    factor = float(bench.random.uniform(0.02, 0.1))
    bench.calibration = tuple(
        {
            name: (factor * array * bench.random.uniform(0.5, 1)).astype(np.float32)
            for name, array in feed.items()
        }
        for feed in bench.network.calibration
    )
    bench.requantize(bench.calibration)
    bench.note(f"calibrated on data of {factor:.0%} of the size")
    return nobody("calibration_not_representative", "no_single_layer")


# ---- another network


@fault("different_checkpoint")
def other_training_run(bench: Bench) -> Truth:
    """Every weight is that of another run, or of a much later epoch."""
    drift = float(bench.random.choice([0.5, 1.0, 4.0]))
    for node in bench.nodes("Conv", "ConvTranspose", "Gemm", "MatMul"):
        for name in node.input[1:]:
            if name not in surgery.constants_of(bench.source):
                continue
            weight = surgery.constant(bench.source, name)
            other = bench.random.normal(size=weight.shape) * weight.std()
            mixed = (weight + drift * other) / np.sqrt(1 + drift**2)
            surgery.set_constant(bench.source, name, mixed.astype(np.float32))
    bench.requantize()
    bench.note(f"every weight drifted by {drift} of its spread")
    return nobody("different_checkpoint", "candidate_not_comparable", "no_single_layer")


# ---- accumulation


def _coarse(bench: Bench, level: int) -> onnx.ModelProto:
    """Return the candidate with fewer steps for every weight and every range."""
    coarse = surgery.copy_of(bench.candidate)
    for node in bench.weighted():
        surgery.coarsen_weight(coarse, node, 2 + 2 * level)
    for node in bench.stored():
        low, high = surgery.range_of(coarse, node.output[0])
        factor = 1 + 0.2 * level
        surgery.set_range(coarse, node.output[0], low * factor, high * factor)
    return coarse


def _repaired(bench: Bench, trial: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """Return the candidate with honest weights and float outputs at these nodes."""
    repaired = surgery.without_stores(trial, [node.output[0] for node in nodes])
    for node in nodes:
        for suffix in ("quantized", "scale"):
            name = f"{node.input[1]}_{suffix}"
            surgery.set_constant(repaired, name, surgery.constant(bench.candidate, name))
    return repaired


def long_chain(random: Generator) -> Network:
    """Many layers of the same kind, none of them worse than the others."""
    net, x = architectures.image_net(random, size=12)
    net.spread = 0.1
    activation = blocks.any_activation(net, but=("relu6",))
    width = int(random.choice([8, 10, 12]))
    x = activation(net, net.conv(x, width, "stem"), "stem")
    for i in range(int(random.integers(12, 17))):
        place = f"stage{i // 4}.{i % 4}"
        x = activation(net, net.conv(x, width, place), place)
    return architectures.classify(net, x)


@fault("cumulative_error", network=long_chain, style=style_of(qdq=True, plain=True), places=1)
def every_layer_loses_a_little(bench: Bench) -> Truth:
    """All weights and ranges have about five bits, alike in every layer."""
    nodes = bench.weighted()
    score = Scorer(bench.network.model, bench.network.feeds[:2])
    low, high = 0, 8
    while low < high:  # the first level that is bad enough
        level = (low + high) // 2
        low, high = (low, level) if score(_coarse(bench, level)) < 10 else (level + 1, high)
    trial = _coarse(bench, low)
    base = score(trial)
    if base > 11:
        raise UnsuitableError("it stays healthy")
    alone = {node.name: score(_repaired(bench, trial, [node])) - base for node in nodes}
    ranked = sorted(nodes, key=lambda node: -alone[node.name])
    few = ranked[: max(2, len(ranked) // 3)]
    if alone[ranked[0].name] > 3 or score(_repaired(bench, trial, few)) >= BROKEN_DB:
        raise UnsuitableError("a few layers make most of it")
    bench.candidate = trial
    bench.note(f"weights in {2 + 2 * low} times coarser steps, every range times {1 + 0.2 * low:.1f}")
    return nobody("cumulative_error", "no_single_layer")
