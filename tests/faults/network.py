"""Build a float network node by node, computing every value at once.

Since values are known while building, weights can be scaled to what flows through them: activations stay in
a sane range at any depth, as trained networks keep them, and an honest INT8 version is healthy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime as ort
from numpy.random import Generator
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from analyzers.records import Array
from tests.faults.naming import Namer

Feeds = dict[str, Array]
_ELEMENT_TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}
_IR_VERSIONS = {11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10}


@dataclass(frozen=True, eq=False)
class Network:
    """A float network with data.

    Attributes:
        model: The reference.
        feeds: What it is evaluated on.
        calibration: What its ranges are calibrated on.
        marks: Names of nodes and tensors that whoever built it wants to find again, by role.
        pixels: Where the input is an image: how it was normalized, as (scale, mean, std) per channel.
    """

    model: onnx.ModelProto
    feeds: tuple[Feeds, ...]
    calibration: tuple[Feeds, ...]
    marks: Mapping[str, tuple[str, ...]]
    pixels: tuple[float, Array, Array] | None = None


@dataclass
class Data:
    """What a network will see: samples of its inputs."""

    feeds: tuple[Feeds, ...]
    calibration: tuple[Feeds, ...]
    pixels: tuple[float, Array, Array] | None = None


@dataclass
class Net:
    """A network under construction.

    Attributes:
        random: Draws structure and weights.
        data: Samples of the inputs; the first calibration samples are computed while building.
        opset: ONNX opset.
        namer: Gives names.
        spread: Standard deviation of the logarithm of weight magnitudes over output channels.
        marks: See ``Network``.
        nodes: Nodes so far.
        constants: Initializers so far.
        values: Every tensor's values over the computed samples.
        captures: Node -> outer values that its bodies read.
    """

    random: Generator
    data: Data
    opset: int
    namer: Namer
    spread: float = 0.3
    marks: dict[str, list[str]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, list[Array]] = field(default_factory=dict)
    captures: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.data.calibration[0]:
            self.values[name] = [feed[name] for feed in self.data.calibration[:3]]

    # ---- nodes

    def op(self, op_type: str, inputs: Sequence[str], place: str, **attributes: object) -> str:
        """Append a node with one output, compute it, and return the output's name."""
        return self.ops(op_type, inputs, place, 1, attributes=attributes)[0]

    def ops(
        self,
        op_type: str,
        inputs: Sequence[str],
        place: str,
        count: int,
        *,
        captures: Sequence[str] = (),
        attributes: Mapping[str, object] | None = None,
    ) -> tuple[str, ...]:
        """Append a node with several outputs, compute it, and return their names.

        Args:
            op_type: Its type.
            inputs: What it reads.
            place: Where in the network it is.
            count: Number of outputs.
            captures: Outer values that its bodies read.
            attributes: Its attributes.
        """
        name = self.namer.node(op_type, place)
        self.captures[name] = tuple(captures)
        outputs = tuple(self.namer.value(op_type, name) for _ in range(count))
        node = helper.make_node(op_type, list(inputs), list(outputs), name=name)
        node.attribute.extend(_attributes(attributes or {}))
        self.nodes.append(node)
        results = self._compute(node)
        for i, output in enumerate(outputs):
            self.values[output] = [result[i] for result in results]
        return outputs

    def constant(self, array: Array | float | Sequence[int], place: str, role: str) -> str:
        """Add an initializer; Python floats become float32, sequences of integers int64."""
        if not isinstance(array, np.ndarray):
            array = np.array(array, np.float32 if isinstance(array, float) else np.int64)
        name = self.namer.constant(place, role)
        self.constants[name] = array
        return name

    def mark(self, role: str, *tensors: str) -> None:
        """Remember the nodes that make these tensors."""
        self.marks.setdefault(role, []).extend(self.node_of(t).name for t in tensors)

    def node_of(self, tensor: str) -> onnx.NodeProto:
        """Return the node that makes a tensor."""
        return next(node for node in reversed(self.nodes) if tensor in node.output)

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Return the shape of a value."""
        return tuple(self.values[tensor][0].shape)

    def channels(self, tensor: str) -> int:
        """Return the size of axis 1."""
        return self.shape(tensor)[1]

    def all_values(self, tensor: str) -> Array:
        """Return the values of a tensor over the computed samples, one axis more in front."""
        return np.stack(self.values[tensor])

    def recompute(self, first: int) -> None:
        """Compute nodes again from the given index on, after weights changed."""
        for node in self.nodes[first:]:
            for i, output in enumerate(node.output):
                self.values[output] = [result[i] for result in self._compute(node)]

    def _compute(self, node: onnx.NodeProto) -> list[list[Array]]:
        needed = [name for name in dict.fromkeys((*node.input, *self.captures[node.name])) if name]
        fixed = {name: self.constants[name] for name in needed if name in self.constants}
        flowing = [name for name in needed if name not in fixed]
        session = _session(node, {**fixed, **{name: self.values[name][0] for name in flowing}}, self.opset)
        if not flowing:
            return [list(map(np.asarray, session.run(None, fixed)))]
        return [
            list(
                map(
                    np.asarray,
                    session.run(None, {**fixed, **{name: self.values[name][i] for name in flowing}}),
                )
            )
            for i in range(len(self.values[flowing[0]]))
        ]

    # ---- layers with weights

    def weights(self, shape: tuple[int, ...], *, axis: int = 0) -> Array:
        """Draw weights whose magnitudes differ from channel to channel as trained ones do."""
        kind = self.random.integers(3)
        if kind == 0:
            raw = self.random.normal(size=shape)
        elif kind == 1:
            raw = self.random.laplace(size=shape)
        else:
            raw = self.random.uniform(-1.5, 1.5, size=shape)
        broadcast = [1] * len(shape)
        broadcast[axis] = shape[axis]
        factors = np.exp(self.spread * self.random.normal(size=shape[axis]))
        return (raw * factors.reshape(broadcast)).astype(np.float32)

    def conv(
        self,
        x: str,
        channels: int,
        place: str,
        *,
        kernel: int = 3,
        stride: int = 1,
        group: int = 1,
        gain: float = 1.0,
        shift: float = 0.0,
        bias: bool = True,
        norm: bool = False,
        weights: Array | None = None,
        **attributes: object,
    ) -> str:
        """Append a Conv whose output has standard deviation ``gain`` and mean about ``shift``.

        Args:
            norm: Follow it with a BatchNormalization (then the Conv has no bias).
            weights: Use these (before scaling) instead of drawing some.
        """
        shape = self.shape(x)
        dims = len(shape) - 2
        weight_shape = (channels, shape[1] // group, *([kernel] * dims))
        w = self.constant(self.weights(weight_shape) if weights is None else weights, place, "weight")
        pads = attributes.pop("pads", [kernel // 2] * (2 * dims))
        inputs = [x, w]
        if bias and not norm:
            inputs.append(self.constant(np.zeros(channels, np.float32), place, "bias"))
        out = self.op(
            "Conv",
            inputs,
            place,
            kernel_shape=[kernel] * dims,
            strides=[stride] * dims,
            pads=pads,
            group=group,
            **attributes,
        )
        if norm:
            self._scale_to(out, w, None, 1.0, 0.0)
            return self.batch_norm(out, place, gain=gain, shift=shift)
        self._scale_to(out, w, inputs[2] if bias else None, gain, shift)
        return out

    def conv_transpose(
        self, x: str, channels: int, place: str, *, kernel: int = 2, stride: int = 2, gain: float = 1.0
    ) -> str:
        """Append a ConvTranspose that enlarges by ``stride``."""
        dims = len(self.shape(x)) - 2
        w = self.constant(
            self.weights((self.channels(x), channels, *([kernel] * dims)), axis=1), place, "weight"
        )
        b = self.constant(np.zeros(channels, np.float32), place, "bias")
        out = self.op(
            "ConvTranspose", [x, w, b], place, kernel_shape=[kernel] * dims, strides=[stride] * dims
        )
        self._scale_to(out, w, b, gain, 0.0)
        return out

    def gemm(self, x: str, features: int, place: str, *, gain: float = 1.0, shift: float = 0.0) -> str:
        """Append a Gemm on a (N, F) value, with the weight stored either way round."""
        is_transposed = bool(self.random.integers(2))
        size = self.shape(x)[-1]
        shape = (features, size) if is_transposed else (size, features)
        w = self.constant(self.weights(shape, axis=0 if is_transposed else 1), place, "weight")
        b = self.constant(np.zeros(features, np.float32), place, "bias")
        out = self.op("Gemm", [x, w, b], place, transB=int(is_transposed))
        self._scale_to(out, w, b, gain, shift)
        return out

    def matmul(
        self, x: str, features: int, place: str, *, gain: float = 1.0, shift: float = 0.0, bias: bool = True
    ) -> str:
        """Append a MatMul with a constant, and an Add of the bias."""
        w = self.constant(self.weights((self.shape(x)[-1], features), axis=1), place, "weight")
        out = self.op("MatMul", [x, w], place)
        self._scale_to(out, w, None, gain, 0.0)
        if not bias:
            return out
        values = (shift + 0.3 * gain * self.random.normal(size=features)).astype(np.float32)
        return self.op("Add", [out, self.constant(values, place, "bias")], place)

    def batch_norm(self, x: str, place: str, *, gain: float = 1.0, shift: float = 0.0) -> str:
        """Append a BatchNormalization whose statistics are about those of its input."""
        values = np.concatenate([np.moveaxis(v, 1, 0).reshape(v.shape[1], -1) for v in self.values[x]], 1)
        count = len(values)
        mean = values.mean(1) + 0.1 * self.random.normal(size=count)
        variance = values.var(1) * np.exp(0.1 * self.random.normal(size=count)) + 1e-3
        gamma = gain * self.random.uniform(0.6, 1.4, count)
        beta = shift + 0.3 * gain * self.random.normal(size=count)
        names = [
            self.constant(array.astype(np.float32), place, role)
            for role, array in (("gamma", gamma), ("beta", beta), ("mean", mean), ("var", variance))
        ]
        return self.op("BatchNormalization", [x, *names], place, epsilon=1e-5)

    def _scale_to(self, out: str, weight: str, bias: str | None, gain: float, shift: float) -> None:
        """Scale a layer's weights so that its output has the wanted spread, then set the bias."""
        first = next(i for i, node in enumerate(self.nodes) if out in node.output)
        spread = float(self.all_values(out).std())
        self.constants[weight] = (self.constants[weight] * (gain / max(spread, 1e-6))).astype(np.float32)
        self.recompute(first)
        if bias is not None:
            mean = float(self.all_values(out).mean())
            count = len(self.constants[bias])
            offsets = shift - mean + 0.3 * gain * self.random.normal(size=count)
            self.constants[bias] = offsets.astype(np.float32)
            self.recompute(first)

    # ---- the end

    def finish(self, outputs: Mapping[str, str], *, free_axes: Sequence[int] = ()) -> Network:
        """Return the network.

        Args:
            outputs: Tensor -> the name that it leaves under.
            free_axes: Axes of inputs and outputs whose size is left open.
        """
        renamed = dict(outputs)
        for node in self.nodes:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed.get(name, name) for name in node.output]
        assert not any(name in renamed for names in self.captures.values() for name in names)
        graph = helper.make_graph(
            self.nodes,
            "network",
            [_value_info(name, array, free_axes) for name, array in self.data.feeds[0].items()],
            [_value_info(new, self.values[old][0], free_axes) for old, new in outputs.items()],
            [numpy_helper.from_array(np.asarray(a, order="C"), n) for n, a in self.constants.items()],
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            ir_version=_IR_VERSIONS[self.opset],
            producer_name="pytorch" if self.namer.style == "torch" else "exporter",
        )
        onnx.checker.check_model(model)
        marks = {role: tuple(dict.fromkeys(names)) for role, names in self.marks.items()}
        return Network(model, self.data.feeds, self.data.calibration, marks, self.data.pixels)


def _attributes(attributes: Mapping[str, object]) -> list[AttributeProto]:
    return [helper.make_attribute(name, value) for name, value in sorted(attributes.items())]


def _session(node: onnx.NodeProto, values: Feeds, opset: int) -> ort.InferenceSession:
    graph = helper.make_graph(
        [node],
        "one",
        [_value_info(name, array) for name, array in values.items()],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=_IR_VERSIONS[opset]
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _value_info(name: str, array: Array, free_axes: Sequence[int] = ()) -> onnx.ValueInfoProto:
    dims: list[int | str] = list(array.shape)
    for axis in free_axes:
        if axis < len(dims):
            dims[axis] = f"{name}_dim{axis}"
    return helper.make_tensor_value_info(name, _ELEMENT_TYPES[str(array.dtype)], dims)
