"""Read an ONNX file safely, and the few graph operations that everything else is built from.

Graphs are ``onnx_ir`` models: external data stays on disk until it is asked for, and values know their
producers and uses. Files are always opened by path, so external data can only come from the model's folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from analyzers import opsets, reading
from analyzers.records import Array, Notice, TensorSpec
from analyzers.zero_points import write_zero_points

FLOAT_TYPES = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16})
OLDEST_OPSET = 13  # per-axis QuantizeLinear starts here
_LARGE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A model file that was read.

    Attributes:
        path: The file.
        digest: sha256 over the file and its external data, hexadecimal.
        ir: The graph, lifted to at least opset 13; every node and value has a unique name.
        inputs: What it reads (initializers excluded).
        outputs: Output names in order.
        notices: What was noticed while reading.
    """

    path: Path
    digest: str
    ir: ir.Model
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]
    notices: tuple[Notice, ...] = ()


def read_model(path: Path, *, opset: int = OLDEST_OPSET) -> Model:
    """Read a model by path and lift it to at least ``opset``.

    Raises:
        ModelLoadError: Not a readable, safe ONNX model; the code says which way.
    """
    model = reading.parse_model(path)
    notices = reading.check_graph(model, path)
    digest = _digest(model, path)
    model = opsets.lift_opset(model, path, opset)
    _normalize(model)
    return Model(
        path=path,
        digest=digest,
        ir=model,
        inputs=tuple(_spec(v) for v in model.graph.inputs),
        outputs=tuple(_name(v) for v in model.graph.outputs),
        notices=notices,
    )


def _normalize(model: ir.Model) -> None:
    common.RemoveInitializersFromInputsPass()(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    _name_everything(model.graph)
    write_zero_points(model.graphs())
    model.graph.sort()
    infer_shapes(model)


def infer_shapes(model: ir.Model) -> None:
    """Add types and shapes where onnx can infer them; a model that it cannot handle stays as it is."""
    if sum(t.nbytes for t in _tensors(model.graph)) > _LARGE_BYTES:
        return
    try:
        common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
    except Exception:  # onnx raises many kinds; missing shapes only make answers less detailed
        return


def _name_everything(graph: ir.Graph) -> None:
    taken: set[str] = set()
    for node in graph:
        for output in node.outputs:
            if not output.name:
                output.name = f"{node.op_type}_output_{id(output):x}"
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}:{node.outputs[0].name}"
        taken.add(node.name)
        for subgraph in subgraphs(node):
            _name_everything(subgraph)


def node_name(node: ir.Node) -> str:
    """Return the unique name that reading gave the node."""
    return node.name or f"{node.op_type}:{node.outputs[0].name}"


def _name(value: ir.Value) -> str:
    assert value.name is not None
    return value.name


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the graphs that the node's attributes hold (If, Loop, Scan)."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()


def captured_values(node: ir.Node) -> list[ir.Value]:
    """Return the values of outer scopes that the node's subgraphs read."""
    found: dict[ir.Value, None] = {}
    for graph in subgraphs(node):
        _collect_captured(graph, set(), found)
    return list(found)


def _collect_captured(graph: ir.Graph, known: set[ir.Value], found: dict[ir.Value, None]) -> None:
    known = known | set(graph.inputs) | set(graph.initializers.values())
    for node in graph:
        for value in node.inputs:
            if value is not None and value not in known:
                found[value] = None
        known |= set(node.outputs)
        for inner in subgraphs(node):
            _collect_captured(inner, known, found)
    for value in graph.outputs:
        if value not in known:
            found[value] = None


def is_constant(value: ir.Value | None) -> bool:
    """Return True for initializers."""
    return value is not None and value.is_initializer() and not value.is_graph_input()


def constant_array(value: ir.Value | None) -> Array | None:
    """Return the array of a constant, or None for anything else."""
    if value is None or not is_constant(value) or value.const_value is None:
        return None
    array: Array = value.const_value.numpy()
    return array


def is_float(value: ir.Value) -> bool:
    """Return True if the value is known to be floating point, or its type is unknown."""
    return value.dtype is None or value.dtype in FLOAT_TYPES


def save_model(model: ir.Model, folder: Path, *, name: str = "model.onnx") -> Path:
    """Write a model for a session to open.

    External tensors are copied beside it once per folder, so many models of one origin share them. (They are
    not hard-linked: a file with two links is refused as external data.)
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    _bring_external_data(model.graph, folder)
    proto = ir.to_proto(model)
    if proto.ByteSize() > _LARGE_BYTES:
        ir.save(model, path, external_data=f"{name}.data")
    else:
        path.write_bytes(proto.SerializeToString())
    return path


def _bring_external_data(graph: ir.Graph, folder: Path) -> None:
    for value in graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            source = Path(tensor.path).resolve()
            location = f"{hashlib.sha256(str(source).encode()).hexdigest()[:16]}.data"
            _copy_once(source, folder / location)
            value.const_value = ir.ExternalTensor(
                location,
                tensor.offset,
                tensor.length,
                tensor.dtype,
                shape=tensor.shape,
                name=value.name or "",
                base_dir=folder,
            )
    for node in graph:
        for inner in subgraphs(node):
            _bring_external_data(inner, folder)


def _copy_once(source: Path, target: Path) -> None:
    if not target.exists():
        partial = target.with_suffix(f".{os.getpid()}.part")
        shutil.copyfile(source, partial)
        partial.replace(target)


def with_outputs(model: ir.Model, names: Sequence[str]) -> ir.Model:
    """Return a copy whose outputs are exactly the values of these names, dead nodes removed.

    Raises:
        KeyError: No value has that name.
    """
    copy = model.clone()
    values = {_name(v): v for v in all_values(copy.graph)}
    copy.graph.outputs.clear()
    copy.graph.outputs.extend(values[name] for name in names)
    common.RemoveUnusedNodesPass()(copy)
    return copy


def all_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Yield graph inputs, initializers and node outputs of the main graph."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _tensors(graph: ir.Graph) -> Iterator[ir.TensorProtocol]:
    for value in graph.initializers.values():
        if value.const_value is not None:
            yield value.const_value
    for node in graph:
        for inner in subgraphs(node):
            yield from _tensors(inner)


def _spec(value: ir.Value) -> TensorSpec:
    dtype = "" if value.dtype is None else np.dtype(value.dtype.numpy()).name
    shape = value.shape
    dims = () if shape is None else tuple(d if isinstance(d, int) else None for d in shape)
    return TensorSpec(name=_name(value), dtype=dtype, shape=dims)


def _digest(model: ir.Model, path: Path) -> str:
    digest = hashlib.sha256()
    external = {Path(t.path) for t in _tensors(model.graph) if isinstance(t, ir.ExternalTensor)}
    for file in (path, *sorted(external)):
        _update(digest, file)
    return digest.hexdigest()


def _update(digest: hashlib._Hash, file: Path) -> None:
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)


def names_of(values: Iterable[ir.Value]) -> tuple[str, ...]:
    """Return the names of values."""
    return tuple(_name(v) for v in values)
