"""Networks with If, Loop and Scan, and candidates of them whose bodies are quantized, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from analyzers.records import Array
from tests.networks import build

IF = """
net (float[1,4,8,8] x) => (float[1,4,8,8] out)
{
    [stem] s = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0)
    [act] a = Tanh(s)
    [mean] m = ReduceMean<keepdims=0>(x)
    [bright] c = Greater(m, zero)
    [pick] p = If(c) <
        then_branch = bright_body () => (float[1,4,8,8] t) {
            [then_conv] tc = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a, w1)
            [then_act] t = Tanh(tc)
        },
        else_branch = dark_body () => (float[1,4,8,8] e) {
            [else_conv] ec = Conv<kernel_shape=[1,1]>(a, w2)
            [else_act] e = Sigmoid(ec)
        }
    >
    [head] out = Conv<kernel_shape=[1,1]>(p, w3)
}
"""
IF_SHAPES = {"w0": (4, 4, 3, 3), "w1": (4, 4, 3, 3), "w2": (4, 4, 1, 1), "w3": (4, 4, 1, 1)}
IF_RANGES = {"x": (-4.0, 4.0), "a": (-1.0, 1.0), "t": (-1.0, 1.0), "e": (0.0, 1.0)}

LOOP = """
net (float[1,12] h, int64 n) => (float[1,6] out, float[?,1,12] trace)
{
    [recur] last, trace = Loop(n, yes, h) <
        body = step (int64 i, bool go, float[1,12] state)
            => (bool go_on, float[1,12] next, float[1,12] seen) {
            [keep] go_on = Identity(go)
            [step_mm] mm = MatMul(state, w0)
            [step_act] next = Tanh(mm)
            [seen_mm] seen = MatMul(next, w1)
        }
    >
    [head] out = MatMul(last, w2)
}
"""
LOOP_SHAPES = {"w0": (12, 12), "w1": (12, 12), "w2": (12, 6)}
LOOP_RANGES = {"state": (-3.5, 3.5), "next": (-1.0, 1.0)}

NESTED = """
net (float[1,12] h, int64 n) => (float[1,6] out)
{
    [recur] last = Loop(n, yes, h) <
        body = step (int64 i, bool go, float[1,12] state) => (bool go_on, float[1,12] next) {
            [keep] go_on = Identity(go)
            [half] r = Mod(i, two)
            [even] odd = Equal(r, one)
            [mix] mm = MatMul(state, w0)
            [mix_act] mt = Tanh(mm)
            [pick] next = If(odd) <
                then_branch = odd_body () => (float[1,12] t) {
                    [odd_mm] om = MatMul(mt, w1)
                    [odd_act] t = Tanh(om)
                },
                else_branch = even_body () => (float[1,12] e) {
                    [even_mm] em = MatMul(mt, w2)
                    [even_act] e = Tanh(em)
                }
            >
        }
    >
    [head] out = MatMul(last, w3)
}
"""
NESTED_SHAPES = {"w0": (12, 12), "w1": (12, 12), "w2": (12, 12), "w3": (12, 6)}
NESTED_RANGES = {"state": (-3.5, 3.5), "mt": (-1.0, 1.0), "t": (-1.0, 1.0), "e": (-1.0, 1.0)}

SCAN = """
net (float[1,8] h, float[5,1,8] frames) => (float[5,1,4] out)
{
    [recur] last, seen = Scan(h, frames) <
        num_scan_inputs = 1,
        body = step (float[1,8] state, float[1,8] frame) => (float[1,8] next, float[1,8] shown) {
            [in_mm] im = MatMul(frame, w0)
            [state_mm] sm = MatMul(state, w1)
            [join] j = Add(im, sm)
            [step_act] next = Tanh(j)
            [show] shown = Identity(next)
        }
    >
    [head] out = MatMul(seen, w2)
}
"""
SCAN_SHAPES = {"w0": (8, 8), "w1": (8, 8), "w2": (8, 4)}
SCAN_RANGES = {"state": (-3.5, 3.5), "frame": (-3.5, 3.5), "next": (-1.0, 1.0)}

_CONSTANTS = {
    "zero": np.float32(0),
    "gain": np.float32(3),
    "yes": np.array(True),
    "one": np.array(1, np.int64),
    "two": np.array(2, np.int64),
}


@dataclass
class Network:
    """A network with bodies, how its candidate stores tensors, and what samples it reads."""

    text: str
    shapes: dict[str, tuple[int, ...]]
    ranges: dict[str, tuple[float, float]]
    corrupted: dict[str, Array] = field(default_factory=dict)

    def write(self, folder: Path, *, is_outside: bool = False) -> tuple[Path, Path]:
        """Write reference and candidate; ``corrupted`` weights replace the candidate's own."""
        reference = self._reference()
        candidate = self._reference()
        _corrupt(candidate.graph, self.corrupted)
        weights = {
            t.name: numpy_helper.to_array(t) for t in candidate.graph.initializer if t.name in self.shapes
        }
        _quantize(candidate.graph, self.ranges, weights, {}, is_outside=is_outside)
        if is_outside:
            read = [_weight(candidate.graph, name, weight) for name, weight in weights.items()]
            nodes = [*read, *candidate.graph.node]
            del candidate.graph.node[:]
            candidate.graph.node.extend(nodes)
        paths = folder / "reference.onnx", folder / "candidate.onnx"
        for model, path in zip((reference, candidate), paths, strict=True):
            onnx.checker.check_model(model)
            onnx.save(model, path)
        return paths

    def _reference(self) -> onnx.ModelProto:
        model = build(self.text, self.shapes, opset=17, seed=5)
        known = {t.name for t in model.graph.initializer}
        for name, value in _CONSTANTS.items():
            if name in known or name not in self.text:
                continue
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return model

    def samples(self, count: int = 6) -> list[dict[str, Array]]:
        """Return seeded samples; every second one is bright; loops run three to five times."""
        random = np.random.default_rng(2)
        feeds = []
        for index in range(count):
            feed: dict[str, Array] = {}
            for value in self._reference().graph.input:
                shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
                if value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
                    feed[value.name] = np.array(3 + index % 3, np.int64)
                else:
                    shift = 0.3 if index % 2 else -0.3
                    feed[value.name] = (random.normal(size=shape) + shift).astype(np.float32)
            feeds.append(feed)
        return feeds


NETWORKS = {
    "if": (IF, IF_SHAPES, IF_RANGES),
    "loop": (LOOP, LOOP_SHAPES, LOOP_RANGES),
    "nested": (NESTED, NESTED_SHAPES, NESTED_RANGES),
    "scan": (SCAN, SCAN_SHAPES, SCAN_RANGES),
}


def network(name: str) -> Network:
    """Return one of the networks."""
    text, shapes, ranges = NETWORKS[name]
    return Network(text, shapes, dict(ranges))


def scrambled(shape: tuple[int, ...], seed: int = 9) -> Array:
    """Return weights that have nothing to do with those of ``build``."""
    scale = 1 / np.sqrt(np.prod(shape[1:]))
    return (np.random.default_rng(seed).normal(size=shape) * scale).astype(np.float32)


def _corrupt(graph: onnx.GraphProto, corrupted: Mapping[str, Array]) -> None:
    for tensor in graph.initializer:
        if tensor.name in corrupted:
            tensor.CopyFrom(numpy_helper.from_array(corrupted[tensor.name], tensor.name))


def _quantize(
    graph: onnx.GraphProto,
    ranges: Mapping[str, tuple[float, float]],
    weights: Mapping[str, Array],
    outer: Mapping[str, str],
    *,
    is_outside: bool,
) -> None:
    """Store tensors as uint8 and weights as int8 per channel, in this graph and the bodies inside.

    Args:
        graph: Where to insert the quantizers.
        ranges: Tensor -> what its store holds.
        weights: Float constants of the whole network.
        outer: Tensors of outer graphs -> what is read instead.
        is_outside: Weights are dequantized already; else where they are read.
    """
    nodes: list[onnx.NodeProto] = []
    renamed = dict(outer)

    def store(name: str) -> None:
        if name in ranges:
            nodes.extend(_store(graph, name, *ranges[name]))
            renamed[name] = f"{name}_DQ"

    for value in graph.input:
        store(value.name)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _quantize(attribute.g, ranges, weights, renamed, is_outside=is_outside)
        for place, name in enumerate(node.input):
            if name in weights:
                node.input[place] = f"{name}_DQ"
                if not is_outside:
                    nodes.append(_weight(graph, name, weights[name]))
            else:
                node.input[place] = renamed.get(name, name)
        nodes.append(node)
        for name in node.output:
            store(name)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    for value in graph.output:
        value.name = renamed.get(value.name, value.name)


def _store(graph: onnx.GraphProto, name: str, low: float, high: float) -> list[onnx.NodeProto]:
    scale = np.float32((high - low) / 255)
    zero = np.uint8(round(-low / float(scale)))
    graph.initializer.append(numpy_helper.from_array(scale, f"{name}_scale"))
    graph.initializer.append(numpy_helper.from_array(np.asarray(zero), f"{name}_zero"))
    parameters = [f"{name}_scale", f"{name}_zero"]
    return [
        helper.make_node("QuantizeLinear", [name, *parameters], [f"{name}_Q"], name=f"{name}_quantize"),
        helper.make_node("DequantizeLinear", [f"{name}_Q", *parameters], [f"{name}_DQ"], name=f"{name}_read"),
    ]


def _weight(graph: onnx.GraphProto, name: str, weight: Array) -> onnx.NodeProto:
    axis = 1 if weight.ndim == 2 else 0
    largest = np.abs(weight).max(axis=tuple(d for d in range(weight.ndim) if d != axis), keepdims=True)
    integers = np.rint(weight / (largest / 127)).astype(np.int8)
    parts = {"scale": (largest / 127).astype(np.float32).ravel(), "zero": np.zeros(largest.size, np.int8)}
    graph.initializer.append(numpy_helper.from_array(integers, f"{name}_int"))
    for key, array in parts.items():
        graph.initializer.append(numpy_helper.from_array(array, f"{name}_{key}"))
    inputs = [f"{name}_int", f"{name}_scale", f"{name}_zero"]
    return helper.make_node("DequantizeLinear", inputs, [f"{name}_DQ"], name=f"{name}_read", axis=axis)
