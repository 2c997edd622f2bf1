"""Other ways to write the same model, so that names, folding and operators no longer agree."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from analyzers.records import Array


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give every tensor another name, inputs and outputs included, and no node any."""
    names = sorted({x for n in model.graph.node for x in [*n.input, *n.output] if x})
    new = {name: f"t{i}" for i, name in enumerate(names)} | {"": ""}
    for node in model.graph.node:
        node.name = ""
        node.input[:] = [new[x] for x in node.input]
        node.output[:] = [new[x] for x in node.output]
    for tensor in model.graph.initializer:
        tensor.name = new.get(tensor.name, tensor.name)
    for value in [*model.graph.input, *model.graph.output]:
        value.name = new[value.name]
    del model.graph.value_info[:]
    return model


def with_folded_normalizations(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which every BatchNormalization is folded into the Conv or Gemm before it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {t.name: t for t in copy.graph.initializer}
    for node in [n for n in copy.graph.node if n.op_type == "BatchNormalization"]:
        maker = next(n for n in copy.graph.node if node.input[0] in n.output)
        gain, shift, mean, variance = (numpy_helper.to_array(known[name]) for name in node.input[1:5])
        factor = gain / np.sqrt(variance + 1e-5)
        weight = numpy_helper.to_array(known[maker.input[1]])
        _set(copy, maker.input[1], weight * factor.reshape(-1, *(1,) * (weight.ndim - 1)))
        bias = numpy_helper.to_array(known[maker.input[2]]) if len(maker.input) > 2 else np.zeros_like(mean)
        name = maker.input[2] if len(maker.input) > 2 else f"{maker.output[0]}_bias"
        _set(copy, name, (bias - mean) * factor + shift)
        del maker.input[2:]
        maker.input.append(name)
        maker.output[0] = node.output[0]
        copy.graph.node.remove(node)
    return copy


def with_products_written_out(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which every Gemm is a MatMul with transposed weights and an Add."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {t.name: t for t in copy.graph.initializer}
    nodes = []
    for node in copy.graph.node:
        if node.op_type != "Gemm":
            nodes.append(node)
            continue
        weight = numpy_helper.to_array(known[node.input[1]])
        _set(copy, node.input[1], np.ascontiguousarray(weight.T))
        product = f"{node.output[0]}_product"
        nodes.append(helper.make_node("MatMul", node.input[:2], [product], f"{node.name}_matmul"))
        nodes.append(helper.make_node("Add", [product, node.input[2]], [node.output[0]], f"{node.name}_add"))
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


def with_silu_in_one(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which every HardSigmoid and product with its input is a HardSwish."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for gate in [n for n in copy.graph.node if n.op_type == "HardSigmoid"]:
        product = next(n for n in copy.graph.node if n.op_type == "Mul" and gate.output[0] in n.input)
        product.op_type = "HardSwish"
        product.input[:] = [gate.input[0]]
        copy.graph.node.remove(gate)
    return copy


def in_half_precision(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy that computes in float16 between Casts at inputs and outputs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))
    before, after = [], []
    for value, ends in ((copy.graph.input, before), (copy.graph.output, after)):
        for item in value:
            name = item.name
            _rename_inside(copy, name, f"{name}_half")
            is_input = ends is before
            to = onnx.TensorProto.FLOAT16 if is_input else onnx.TensorProto.FLOAT
            names = (name, f"{name}_half") if is_input else (f"{name}_half", name)
            ends.append(helper.make_node("Cast", [names[0]], [names[1]], f"{name}_cast", to=to))
    nodes = [*before, *copy.graph.node, *after]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    del copy.graph.value_info[:]
    return copy


def changed_constants(model: onnx.ModelProto, change: Callable[[str, Array], Array]) -> onnx.ModelProto:
    """Change initializers in place."""
    for tensor in model.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(change(tensor.name, numpy_helper.to_array(tensor)), tensor.name)
        )
    return model


def _set(model: onnx.ModelProto, name: str, array: Array) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float32), name))
            return
    model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))


def _rename_inside(model: onnx.ModelProto, old: str, new: str) -> None:
    for node in model.graph.node:
        node.input[:] = [new if x == old else x for x in node.input]
        node.output[:] = [new if x == old else x for x in node.output]
