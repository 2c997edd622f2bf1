"""A small network whose candidate has faults of our own making, and samples for it on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from analyzers.project import Pair, open_models
from analyzers.records import Inputs
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples

WEIGHTS_OF = {"conv0": "w0", "dw": "wd", "conv1": "w1", "head": "wh"}


def plant(folder: Path, faulty: Sequence[str], *, count: int = 8, workers: int = 1) -> tuple[Pair, Inputs]:
    """Return a pair whose candidate has mirrored weights in these layers, and what its commands are given."""
    reference, candidate = quantized(build(PLAIN, PLAIN_SHAPES), folder)
    model = onnx.load(candidate)
    for tensor in model.graph.initializer:
        if tensor.name in {f"{WEIGHTS_OF[layer]}_quantized" for layer in faulty}:
            wrong = np.ascontiguousarray(onnx.numpy_helper.to_array(tensor)[::-1])
            tensor.CopyFrom(onnx.numpy_helper.from_array(wrong, tensor.name))
    onnx.save(model, candidate)
    feeds = samples(onnx.load(reference), count, seed=3)
    arrays = {f"s{i:03d}::{name}": array for i, feed in enumerate(feeds) for name, array in feed.items()}
    data = folder / "data.npz"
    np.savez(data, **arrays)  # type: ignore[arg-type]
    inputs = Inputs(
        reference=reference,
        candidate=candidate,
        data=data,
        metric="slice-sqnr",
        workspace=folder / "workspace",
        workers=workers,
    )
    return open_models(reference, candidate), inputs
