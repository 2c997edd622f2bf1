"""Lift a model to a newer opset, with its names and its meaning kept.

onnx's version converter forgets both in places: nodes that it replaces lose their names, and Resize of opset
10 (Upsample of 9) becomes Resize of 11 without the coordinates that it used until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from analyzers.errors import ModelLoadError

_COORDINATES_SINCE = 11  # Resize says from here on how coordinates map
_INITIALIZERS_APART_SINCE = 9


def lift_opset(model: ir.Model, path: Path, opset: int) -> ir.Model:
    """Return the model in at least this opset of the default domain, names kept.

    Raises:
        ModelLoadError: An operator cannot be expressed in the newer opset.
    """
    current = model.graph.opset_imports.get("", opset)
    if current >= opset:
        return model
    try:
        proto = onnx.load(str(path), load_external_data=False)
        if current < _INITIALIZERS_APART_SINCE:
            _make_initializers_inputs(proto)
        converted = onnx.version_converter.convert_version(proto, opset)
        _restore_names(proto, converted)
        if current < _COORDINATES_SINCE <= opset:
            _keep_coordinates(converted)
        lifted = ir.from_proto(converted)
    except Exception as cause:
        raise ModelLoadError(
            "unsupported_opset",
            f"The model cannot be lifted from opset {current} to {opset}: {str(cause).splitlines()[0][:200]}",
            where=str(path),
            hint=f"Export it again with opset {opset} or newer",
        ) from cause
    ir.external_data.set_base_dir(lifted.graph, path.parent)
    return lifted


def _make_initializers_inputs(proto: onnx.ModelProto) -> None:
    """List initializers as graph inputs too: the converter of old opsets (IR 3) insists on it."""
    named = {v.name for v in proto.graph.input}
    for tensor in proto.graph.initializer:
        if tensor.name not in named:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            proto.graph.input.append(value)


def _restore_names(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Give nodes that the converter replaced the names of those that they stand for."""
    kept = {name for node in after.graph.node for name in node.output}
    gone = [n for n in before.graph.node if n.output and n.output[0] not in kept and n.op_type != "Constant"]
    nameless = [n for n in before.graph.node if n.output and n.output[0] in kept]
    by_output = {n.output[0]: n for n in nameless}
    renamed: dict[str, str] = {}
    for node in after.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        known = by_output.get(node.output[0]) if node.output else None
        if known is not None and not node.name:
            node.name = known.name
        if node.op_type == "Constant" or not node.input or known is not None:
            continue
        twin = next((n for n in gone if n.input and n.input[0] == node.input[0]), None)
        if twin is not None and node.output[0] not in {n for o in before.graph.node for n in o.output}:
            gone.remove(twin)
            node.name = twin.name
            renamed[node.output[0]] = twin.output[0]
            node.output[0] = twin.output[0]
    for value in after.graph.value_info:
        value.name = renamed.get(value.name, value.name)


def _keep_coordinates(model: onnx.ModelProto) -> None:
    """Say what Resize did before it could be told: scale coordinates from the corner and round them down."""
    for node in _nodes(model.graph):
        is_told = any(a.name == "coordinate_transformation_mode" for a in node.attribute)
        if node.op_type != "Resize" or is_told:
            continue
        node.attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
        node.attribute.append(onnx.helper.make_attribute("nearest_mode", "floor"))


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)
