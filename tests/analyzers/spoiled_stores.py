"""Change how a quantized model on disk stores its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from analyzers.records import Array


def stored_range(candidate: Path, tensor: str) -> tuple[float, float]:
    """Return the lowest and the highest value that the store of a tensor holds."""
    model = onnx.load(candidate)
    scale, zero = _constant(model, f"{tensor}_scale"), _constant(model, f"{tensor}_zero_point")
    limits = np.iinfo(zero.dtype)
    return tuple((limit - int(zero)) * float(scale) for limit in (limits.min, limits.max))


def set_range(candidate: Path, tensor: str, low: float, high: float) -> None:
    """Store a tensor, and all that share its parameters, with this range."""
    model = onnx.load(candidate)
    limits = np.iinfo(_constant(model, f"{tensor}_zero_point").dtype)
    scale = (high - low) / (limits.max - limits.min)
    _put(model, f"{tensor}_scale", np.array(scale, np.float32))
    _put(model, f"{tensor}_zero_point", np.array(round(limits.min - low / scale), limits.dtype))
    onnx.save(model, candidate)


def times_range(candidate: Path, tensor: str, factor: float) -> None:
    """Stretch or shrink the range of a store."""
    low, high = stored_range(candidate, tensor)
    set_range(candidate, tensor, low * factor, high * factor)


def set_scale(candidate: Path, tensor: str, scale: float) -> None:
    """Write any scale."""
    model = onnx.load(candidate)
    _put(model, f"{tensor}_scale", np.array(scale, np.float32))
    onnx.save(model, candidate)


def read_with(candidate: Path, tensor: str, suffix: str, array: Array, *, index: int = 0) -> None:
    """Let a DequantizeLinear that has a store's parameters read with a scale or zero point of its own."""
    model = onnx.load(candidate)
    nodes = [n for n in model.graph.node if n.op_type == "DequantizeLinear"]
    node = [n for n in nodes if n.input[1] == f"{tensor}_scale"][index]
    node.input[{"scale": 1, "zero_point": 2}[suffix]] = f"{tensor}_{suffix}_read"
    _put(model, f"{tensor}_{suffix}_read", array)
    onnx.save(model, candidate)


def constant(candidate: Path, name: str) -> Array:
    """Return an initializer."""
    return _constant(onnx.load(candidate), name)


def store_again(candidate: Path, tensor: str, reader: str, factor: float) -> None:
    """Put a second quantizer with a wider or narrower range before one reader of a store."""
    model = onnx.load(candidate)
    node = next(n for n in model.graph.node if n.name == reader)
    place, index = list(model.graph.node).index(node), _read_from(model, node, tensor)
    scale = _constant(model, f"{tensor}_scale") * np.float32(factor)
    _put(model, f"{tensor}_scale_again", np.asarray(scale, np.float32))
    parameters = [f"{tensor}_scale_again", f"{tensor}_zero_point"]
    nodes: Sequence[onnx.NodeProto] = [
        helper.make_node("QuantizeLinear", [node.input[index], *parameters], [f"{tensor}_again_q"]),
        helper.make_node("DequantizeLinear", [f"{tensor}_again_q", *parameters], [f"{tensor}_again"]),
    ]
    node.input[index] = f"{tensor}_again"
    for offset, added in enumerate(nodes):
        model.graph.node.insert(place + offset, added)
    onnx.save(model, candidate)


def _read_from(model: onnx.ModelProto, node: onnx.NodeProto, tensor: str) -> int:
    makers = {output: n for n in model.graph.node for output in n.output}
    return next(
        index
        for index, name in enumerate(node.input)
        if name in makers and f"{tensor}_scale" in makers[name].input
    )


def _constant(model: onnx.ModelProto, name: str) -> Array:
    array: Array = numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == name))
    return array


def _put(model: onnx.ModelProto, name: str, array: Array) -> None:
    kept = [t for t in model.graph.initializer if t.name != name]
    del model.graph.initializer[:]
    model.graph.initializer.extend([*kept, numpy_helper.from_array(array, name)])
