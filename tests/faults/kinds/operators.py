"""Conversion faults: an operator replaced, an attribute changed, an activation lost."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from numpy.random import Generator
from onnx import helper

from tests.faults import architectures, surgery
from tests.faults.network import Network
from tests.faults.registry import Bench, Truth, blame, fault
from tests.faults.surgery import UnsuitableError

Attributes = dict[str, object]
_HARD_SIGMOID: Attributes = {"alpha": 0.2, "beta": 0.5}
_REPLACEMENTS: dict[str, tuple[tuple[str, Attributes], ...]] = {
    "HardSwish": (("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}), ("Relu", {})),
    "HardSigmoid": (("Relu", {}), ("Tanh", {})),
    "Sigmoid": (("Tanh", {}), ("Relu", {}), ("HardSigmoid", _HARD_SIGMOID)),
    "Tanh": (("Sigmoid", {}), ("HardSigmoid", _HARD_SIGMOID)),
    "Relu": (("LeakyRelu", {"alpha": 0.5}), ("Abs", {}), ("Tanh", {}), ("Elu", {"alpha": 1.0})),
    "LeakyRelu": (("Relu", {}), ("Elu", {"alpha": 1.0})),
    "Gelu": (("Relu", {}), ("Sigmoid", {}), ("HardSwish", {})),
    "Erf": (("Tanh", {}), ("Relu", {})),
    "GlobalAveragePool": (("GlobalMaxPool", {}),),
    "Softmax": (("Sigmoid", {}),),
    "Add": (("Sub", {}), ("Mul", {})),
    "Mul": (("Add", {}),),
}
_POOLS = {"MaxPool": "AveragePool", "AveragePool": "MaxPool"}


@fault("operator_changed")
def operator_replaced(bench: Bench) -> Truth:
    """A converter took another operator."""
    node = bench.pick([n for n in bench.nodes(*_REPLACEMENTS) if _reads_values(bench, n)])
    options = _REPLACEMENTS[node.op_type]
    name, attributes = options[int(bench.random.integers(len(options)))]
    bench.note(f"{node.name}: {node.op_type} became {name}")
    if name == "HardSwish" and bench.source.opset_import[0].version < 14:
        raise UnsuitableError("the opset has no HardSwish")
    node.op_type = name
    del node.attribute[:]
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    bench.requantize()
    # A Relu that the quantizer turned into a range leaves no activation in the file at all.
    is_absorbed = name == "Relu" and not bench.style.keep_activations
    return blame("operator_changed", node.name, accept=["activation_function_lost"] if is_absorbed else [])


def _reads_values(bench: Bench, node: onnx.NodeProto) -> bool:
    """Say whether all inputs are computed; adding to a constant is not what a network is about."""
    constants = {t.name for t in bench.source.graph.initializer}
    return not any(name in constants for name in node.input)


@fault("operator_changed", network=architectures.any_of(architectures.plain, architectures.unet))
def pool_replaced(bench: Bench) -> Truth:
    """MaxPool became AveragePool or the reverse."""
    node = bench.pick(bench.nodes(*_POOLS))
    bench.note(f"{node.name}: {node.op_type} became {_POOLS[node.op_type]}")
    node.op_type = _POOLS[node.op_type]
    kept = [a for a in node.attribute if a.name in ("kernel_shape", "strides", "pads")]
    del node.attribute[:]
    node.attribute.extend(kept)
    bench.requantize()
    return blame("operator_changed", node.name, accept=["operator_attribute_changed"])


# ---- attributes


def _resize(bench: Bench, node: onnx.NodeProto) -> None:
    if surgery.attribute(node, "mode") == b"linear":
        other = str(bench.random.choice(["asymmetric", "align_corners"]))
        surgery.set_attribute(node, "coordinate_transformation_mode", other)
    elif bench.random.integers(2):
        surgery.set_attribute(node, "nearest_mode", "ceil")
    else:
        surgery.set_attribute(node, "mode", "linear")


def _conv(bench: Bench, node: onnx.NodeProto) -> None:
    pads = [int(p) for p in surgery.attribute(node, "pads", [])]  # type: ignore[attr-defined]
    if not pads or len(set(pads)) != 1 or pads[0] == 0:
        raise UnsuitableError("no padding to move")
    kernel = set(surgery.attribute(node, "kernel_shape"))  # type: ignore[call-overload]
    dilated = surgery.attribute(node, "dilations")
    half = len(pads) // 2
    if bench.random.integers(2) and dilated is None and kernel == {3}:
        surgery.set_attribute(node, "dilations", [2] * half)
        surgery.set_attribute(node, "pads", [2] * len(pads))
    else:
        surgery.set_attribute(node, "pads", [0] * half + [2 * pads[0]] * half)


def _pool(bench: Bench, node: onnx.NodeProto) -> None:
    pads = [int(p) for p in surgery.attribute(node, "pads", [])]  # type: ignore[attr-defined]
    if not any(pads):
        raise UnsuitableError("no padding to move")
    if node.op_type == "AveragePool" and bench.random.integers(2):
        surgery.set_attribute(node, "count_include_pad", 0)
        return
    half = len(pads) // 2
    surgery.set_attribute(node, "pads", [0] * half + [2 * p for p in pads[half:]])


def _factor(name: str, low: float, high: float) -> Callable[[Bench, onnx.NodeProto], None]:
    def change(bench: Bench, node: onnx.NodeProto) -> None:
        value = float(surgery.attribute(node, name, 1.0))  # type: ignore[arg-type]
        surgery.set_attribute(node, name, value * float(bench.random.uniform(low, high)))

    return change


def _softmax(bench: Bench, node: onnx.NodeProto) -> None:
    surgery.set_attribute(node, "axis", -2)


def _layer_norm(bench: Bench, node: onnx.NodeProto) -> None:
    surgery.set_attribute(node, "epsilon", float(bench.random.uniform(0.5, 4)))


_CHANGES: dict[str, Callable[[Bench, onnx.NodeProto], None]] = {
    "Resize": _resize,
    "Conv": _conv,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "LeakyRelu": _factor("alpha", 3, 6),
    "HardSigmoid": _factor("alpha", 1.8, 3),
    "Gemm": _factor("alpha", 0.3, 0.7),
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
}


@fault("operator_attribute_changed", least_gain_db=6.0)
def attribute_changed(bench: Bench) -> Truth:
    """An attribute got lost or has another default."""
    types = sorted({n.op_type for n in bench.nodes(*_CHANGES)})
    if not types:
        raise UnsuitableError("no operator with such an attribute")
    node = bench.pick(bench.nodes(str(bench.random.choice(types))))
    before = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    _CHANGES[node.op_type](bench, node)
    changed = {
        a.name: helper.get_attribute_value(a)
        for a in node.attribute
        if helper.get_attribute_value(a) != before.get(a.name)
    }
    bench.note(f"{node.name} ({node.op_type}): {changed}")
    bench.requantize()
    return blame("operator_attribute_changed", node.name, accept=["operator_changed"])


@fault(
    "operator_attribute_changed",
    network=architectures.any_of(architectures.unet, architectures.detector),
    least_gain_db=6.0,
)
def resize_changed(bench: Bench) -> Truth:
    """The transformation of coordinates, or the mode, of a Resize is another."""
    node = bench.pick(bench.nodes("Resize"))
    _resize(bench, node)
    bench.note(f"{node.name}: {[helper.get_attribute_value(a) for a in node.attribute]}")
    bench.requantize()
    return blame("operator_attribute_changed", node.name, accept=["operator_changed"])


# ---- lost activations


def with_activations(random: Generator) -> Network:
    return architectures.any_of(
        architectures.plain,
        architectures.residual,
        architectures.mobile,
        architectures.unet,
        architectures.inception,
        architectures.tabular,
        architectures.audio,
    )(random)


@fault("activation_function_lost", network=with_activations)
def activation_removed(bench: Bench) -> Truth:
    """An activation is gone; its name may live on at what comes before it."""
    node = bench.pick(
        bench.nodes("Relu", "Clip", "LeakyRelu", "PRelu", "HardSwish", "Tanh", "Sigmoid", "Gelu")
    )
    names, source, result = [node.name], node.input[0], node.output[0]
    gate_readers = list(surgery.readers(bench.source, node.output[0]))
    if node.op_type == "Sigmoid" and len(gate_readers) == 1 and gate_readers[0][0].op_type == "Mul":
        product = gate_readers[0][0]
        if source in product.input:
            names.append(product.name)
            result = product.output[0]
    maker = surgery.producer(bench.source, source)
    if maker is None:
        raise UnsuitableError("the activation reads the input")
    removed = [n for n in bench.source.graph.node if n.name in names]
    others = [n for n, _ in surgery.readers(bench.source, source) if n.name not in names]
    leaves = result in {o.name for o in bench.source.graph.output}
    if leaves and others:
        raise UnsuitableError("the pre-activation is read elsewhere")
    for gone in removed:
        bench.source.graph.node.remove(gone)
    if not others and (leaves or bench.random.integers(2)):
        maker.output[0] = result
    else:
        for reader, index in list(surgery.readers(bench.source, result)):
            reader.input[index] = source
    used = {name for n in bench.source.graph.node for name in n.input}
    for tensor in [t for t in bench.source.graph.initializer if t.name not in used]:
        bench.source.graph.initializer.remove(tensor)
    bench.note(f"{', '.join(names)} removed behind {maker.name}")
    bench.requantize()
    return blame("activation_function_lost", *names, accept=["operator_changed"], tolerate=[maker.name])
