"""Real evidence of a small network whose candidate's weights were changed after quantization."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import numpy_helper

from analyzers.evidence import Evidence
from analyzers.records import Array
from analyzers.suspicions import Detector, Suspicion
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient
from tests.networks import build, quantized, samples

NET = """
net (float[1,3,10,10] image) => (float[1,6] scores)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [r0] a0 = Relu(x0)
    [c1] x1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a0, w1, b1)
    [r1] a1 = Relu(x1)
    [pool] g = GlobalAveragePool(a1)
    [flat] f = Flatten(g)
    [head] scores = Gemm<transB=1>(f, wh, bh)
}
"""
SHAPES = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 8, 3, 3), "b1": (8,), "wh": (6, 8), "bh": (6,)}

Change = Callable[[Patient], None]
Spread = Callable[[Array], Array]


def evidence(
    folder: Path,
    change: Change = lambda _: None,
    *,
    weights: dict[str, Spread] | None = None,
    per_channel: bool = True,
    text: str = NET,
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> Evidence:
    """Quantize the network, change the candidate, and gather what there is to see.

    Args:
        folder: For the files.
        change: What to do to the candidate.
        weights: What to do to the reference's weights first, by name.
        per_channel: Quantize them so.
        text: Another network.
        shapes: Shapes of its weights.
    """
    model = build(text, shapes or SHAPES)
    for tensor in model.graph.initializer:
        spread = (weights or {}).get(tensor.name)
        if spread is not None:
            array = spread(numpy_helper.to_array(tensor)).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    feeds = samples(model, 2)
    reference, candidate = quantized(model, folder, per_channel=per_channel, feeds=feeds)
    patient = Patient(candidate)
    change(patient)
    patient.save()
    return gathered(reference, candidate, feeds)


def found(detector: Detector, seen: Evidence) -> list[Suspicion]:
    """Return what a detector suspects."""
    return list(detector.find(seen))


def integers(name: str, change: Callable[[Array], Array]) -> Change:
    """Return the change of a weight's integers."""

    def apply(patient: Patient) -> None:
        stored = patient.constant(f"{name}_quantized")
        patient.put(f"{name}_quantized", np.ascontiguousarray(change(stored)).astype(stored.dtype))

    return apply


def values(name: str, change: Callable[[Array], Array]) -> Change:
    """Return the change of a weight's values, quantized anew with a scale per channel."""

    def apply(patient: Patient) -> None:
        stored, scale = patient.constant(f"{name}_quantized"), patient.constant(f"{name}_scale")
        shape = (-1, *(1,) * (stored.ndim - 1))
        real = change(stored * scale.reshape(shape))
        new = np.abs(real).reshape(len(real), -1).max(axis=1) / 127
        new = np.where(new > 0, new, 1.0).astype(np.float32)
        patient.put(f"{name}_scale", new)
        patient.put(f"{name}_quantized", np.rint(real / new.reshape(shape)).astype(np.int8))

    return apply
