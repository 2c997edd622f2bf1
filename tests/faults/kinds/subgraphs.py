"""Faults inside the bodies of If and Loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.random import Generator
from onnx import TensorProto, helper, numpy_helper

from analyzers.records import Array
from tests.faults import architectures, blocks, data, surgery
from tests.faults.network import Feeds, Net, Network
from tests.faults.quantization import Style, quantize
from tests.faults.registry import Bench, Truth, fault, style_of
from tests.faults.scoring import HEALTHY_DB, values_of
from tests.faults.surgery import UnsuitableError

PLAIN = style_of(qdq=True, plain=True)


# ---- If


def two_branches(random: Generator) -> Network:
    """An If whose branches are chosen by how bright a picture is."""
    net, image = architectures.image_net(random, size=16, opset=int(random.choice([13, 15, 17, 18, 21])))
    x = blocks.relu(net, net.conv(image, 8, "stem", stride=2), "stem")
    level = blocks.reduce_mean(net, image, [0, 1, 2, 3], "level", keepdims=0)
    middle = float(np.median([v.item() for v in net.values[level]]))
    bright = net.op("Greater", [level, net.constant(middle, "level", "middle")], "level")
    bodies = {role: _branch(net, x, role) for role in ("then", "else")}
    (y,) = net.ops(
        "If",
        [bright],
        "branch",
        1,
        captures=[x],
        attributes={"then_branch": bodies["then"], "else_branch": bodies["else"]},
    )
    net.mark("if", y)
    out = net.conv(y, 4, "head", kernel=1)
    return net.finish({out: "y"})


def _branch(net: Net, x: str, role: str) -> onnx.GraphProto:
    shape = net.shape(x)
    weight = net.weights((shape[1], shape[1], 3, 3)) / np.sqrt(9 * shape[1], dtype=np.float32)
    bias = (0.2 * net.random.normal(size=shape[1])).astype(np.float32)
    names = {part: f"{net.namer.node('Conv', role)}.{part}" for part in ("weight", "bias", "conv", "out")}
    conv = helper.make_node(
        "Conv", [x, names["weight"], names["bias"]], [names["conv"]], name=names["conv"], pads=[1, 1, 1, 1]
    )
    relu = helper.make_node("Relu", [names["conv"]], [names["out"]], name=f"{names['out']}_relu")
    return helper.make_graph(
        [conv, relu],
        role,
        [],
        [helper.make_tensor_value_info(names["out"], TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weight, names["weight"]), numpy_helper.from_array(bias, names["bias"])],
    )


@fault("weight_corrupted", network=two_branches, style=PLAIN)
def in_a_branch(bench: Bench) -> Truth:
    """The weights of a Conv inside one branch are corrupted; samples that take the other are fine."""
    (name,) = bench.network.marks["if"]
    node = next(n for n in bench.source.graph.node if n.name == name)
    role = str(bench.random.choice(["then_branch", "else_branch"]))
    captured = next(n for n in _body(node, role).node if n.op_type == "Conv").input[0]
    calibration = values_of(bench.source, bench.network.calibration, [captured])[captured]
    for attribute in ("then_branch", "else_branch"):
        feeds = [{captured: array} for array in calibration]
        _quantize_body(bench, name, attribute, feeds)
    if bench.score(bench.candidate) < HEALTHY_DB:
        raise UnsuitableError("not healthy to begin with")
    twin = next(n for n in bench.candidate.graph.node if n.name == name)
    conv = next(n for n in _body(node, role).node if n.op_type == "Conv")
    _corrupt(bench, _body(twin, role), f"{conv.input[1]}_quantized")
    bench.note(f"{conv.name} in {role} of {name}: weights corrupted")
    return _inside("weight_corrupted", name, role, conv.name, ())


def _inside(cause: str, node: str, role: str, inner: str, also: Sequence[str]) -> Truth:
    """Blame an inner operator, under any of the names that it may have, or the node around it."""
    names = (inner, node, f"{node}/{role}/{inner}", *also, *(f"{node}/{role}/{a}" for a in also))
    return Truth(
        cause,
        (cause, "channel_garbage") if cause == "weight_corrupted" else (cause,),
        tuple(frozenset([name]) for name in names),
        frozenset(names),
    )


def _body(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    attribute: onnx.AttributeProto = next(a for a in node.attribute if a.name == name)
    return attribute.g


def _corrupt(bench: Bench, graph: onnx.GraphProto, name: str) -> None:
    tensor = next(t for t in graph.initializer if t.name == name)
    integers = numpy_helper.to_array(tensor)
    flips = bench.random.uniform(size=integers.shape) < 0.4
    changed = integers.view(np.uint8) ^ np.where(flips, 64, 0).astype(np.uint8)
    tensor.CopyFrom(numpy_helper.from_array(changed.view(integers.dtype), name))


def _quantize_body(bench: Bench, name: str, role: str, feeds: Sequence[Feeds]) -> None:
    """Quantize a body as a network of its own and put the result in its place."""
    source = next(n for n in bench.source.graph.node if n.name == name)
    twin = next(n for n in bench.candidate.graph.node if n.name == name)
    body = _body(source, role)
    alone = _as_model(body, feeds, bench.source)
    quantized = quantize(alone, feeds, Style(per_channel=bench.style.per_channel))
    result = quantized.graph
    kept = {o.name: i for i, o in enumerate(body.output)}
    target = _body(twin, role)
    assert set(kept) == {o.name for o in result.output}
    inputs = list(target.input)
    outputs = list(target.output)
    target.CopyFrom(result)
    del target.input[:], target.output[:], target.value_info[:]
    target.input.extend(inputs)
    target.output.extend(outputs)
    _add_domains(bench.candidate, quantized)


def _as_model(graph: onnx.GraphProto, feeds: Sequence[Feeds], parent: onnx.ModelProto) -> onnx.ModelProto:
    """Return a body as a model whose inputs are what it reads from outside."""
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    del copy.input[:]
    copy.input.extend(
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds[0].items()
    )
    return helper.make_model(copy, opset_imports=parent.opset_import, ir_version=parent.ir_version)


def _add_domains(model: onnx.ModelProto, other: onnx.ModelProto) -> None:
    known = {o.domain for o in model.opset_import}
    model.opset_import.extend(o for o in other.opset_import if o.domain not in known)


# ---- Loop


def recurrence(random: Generator) -> Network:
    """A Loop that carries a state through the same step some times."""
    width = int(random.choice([12, 16, 20]))
    made = data.records(random, {"start": width}, rows=2)
    net = architectures.new_net(random, made, opset=int(random.choice([13, 15, 17, 18, 21])))
    state = net.op("Tanh", [net.gemm("start", width, "encode")], "encode")
    steps = net.constant(np.array(int(random.integers(3, 6)), np.int64), "recur", "steps")
    go = net.constant(np.array(True), "recur", "go")
    body, inner = _step(net, state, width)
    (last,) = net.ops("Loop", [steps, go, state], "recur", 1, attributes={"body": body})
    net.mark("loop", last)
    net.marks["step"] = inner
    return net.finish({net.gemm(last, 5, "head", gain=2): "y"})


def _step(net: Net, state: str, width: int) -> tuple[onnx.GraphProto, list[str]]:
    shape = net.shape(state)
    weight = (net.weights((width, width), axis=1) * (1.6 / np.sqrt(width))).astype(np.float32)
    bias = (0.2 * net.random.normal(size=width)).astype(np.float32)
    stem = net.namer.node("MatMul", "recur.step")
    nodes = [
        helper.make_node("MatMul", [f"{stem}.state", f"{stem}.weight"], [f"{stem}.mm"], name=f"{stem}.mm"),
        helper.make_node("Add", [f"{stem}.mm", f"{stem}.bias"], [f"{stem}.add"], name=f"{stem}.add"),
        helper.make_node("Tanh", [f"{stem}.add"], [f"{stem}.next"], name=f"{stem}.tanh"),
        helper.make_node("Identity", [f"{stem}.go"], [f"{stem}.go_on"], name=f"{stem}.go_on"),
    ]
    graph = helper.make_graph(
        nodes,
        "body",
        [
            helper.make_tensor_value_info(f"{stem}.i", TensorProto.INT64, []),
            helper.make_tensor_value_info(f"{stem}.go", TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"{stem}.state", TensorProto.FLOAT, shape),
        ],
        [
            helper.make_tensor_value_info(f"{stem}.go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info(f"{stem}.next", TensorProto.FLOAT, shape),
        ],
        [numpy_helper.from_array(weight, f"{stem}.weight"), numpy_helper.from_array(bias, f"{stem}.bias")],
    )
    return graph, [n.name for n in nodes[:3]]


def _states(graph: onnx.GraphProto, starts: Sequence[Array], steps: int) -> list[Array]:
    constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    weight, bias = (next(a for n, a in constants.items() if n.endswith(role)) for role in ("weight", "bias"))
    states: list[Array] = []
    for start in starts:
        state = start
        for _ in range(steps):
            states.append(state)
            state = np.tanh(state @ weight + bias).astype(np.float32)
    return states


@fault("activation_clipping", network=recurrence, style=PLAIN)
def in_a_loop(bench: Bench) -> Truth:
    """A store inside the body of a Loop clips."""
    (name,) = bench.network.marks["loop"]
    node = next(n for n in bench.source.graph.node if n.name == name)
    body = _body(node, "body")
    steps = int(surgery.constant(bench.source, node.input[0]))
    starts = values_of(bench.source, bench.network.calibration, [node.input[2]])[node.input[2]]
    states = _states(body, starts, steps)
    state, go, count = body.input[2].name, body.input[1].name, body.input[0].name
    feeds: list[Feeds] = [{count: np.array(0), go: np.array(True), state: array} for array in states]
    _quantize_body(bench, name, "body", feeds)
    if bench.score(bench.candidate) < HEALTHY_DB:
        raise UnsuitableError("not healthy to begin with")
    twin = next(n for n in bench.candidate.graph.node if n.name == name)
    inner = list(bench.network.marks["step"])
    place = int(bench.random.integers(3))
    tensor = next(n for n in body.node if n.name == inner[place]).output[0]
    scale = next(t for t in _body(twin, "body").initializer if t.name == f"{tensor}_scale")
    share = np.float32(bench.random.uniform(0.1, 0.35))
    scale.CopyFrom(numpy_helper.from_array(np.asarray(numpy_helper.to_array(scale) * share), scale.name))
    bench.note(f"{inner[place]} in the body of {name}: range cut to {share:.0%}")
    return _inside("activation_clipping", name, "body", inner[place], ())
