"""Checks of a parsed graph: opsets, operators, connections, declared sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from analyzers.backends import onnxruntime_schemas as schemas
from analyzers.errors import ModelLoadError

MAX_TENSOR_BYTES = 1 << 36  # 64 GiB: no network that runs on a CPU has such a tensor
_MAX_SHAPE_VALUES = 64
_EXPORT_AGAIN = "Check the model with onnx.checker.check_model, and export it again"
_SHAPED_BY_INPUT = {"ConstantOfShape": 0, "Expand": 1, "Tile": 1}


def nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every node of the model, those of subgraphs and functions too."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    """Yield every constant of the model: initializers and tensor attributes, at every depth."""
    graphs = [*model.graphs(), *(g for f in model.functions.values() for g in f.subgraphs())]
    for graph in graphs:
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value
    for node in nodes(model):
        for attribute in node.attributes.values():
            if attribute.is_ref():
                continue
            if attribute.type == ir.AttributeType.TENSOR:
                yield attribute.as_tensor()
            elif attribute.type == ir.AttributeType.TENSORS:
                yield from attribute.as_tensors()


def check_opsets(model: ir.Model, path: Path) -> None:
    """Refuse opsets and file versions that the installed onnxruntime does not run."""
    newest_ir = schemas.newest_ir_version()
    if model.ir_version > newest_ir:
        raise _opset(f"The file has IR version {model.ir_version}, newer than {newest_ir}", path)
    imports = [model.opset_imports, *(f.opset_imports for f in model.functions.values())]
    for domain, opset in sorted({pair for table in imports for pair in table.items()}):
        name = domain or schemas.ONNX_DOMAIN
        if domain in ("", schemas.ONNX_DOMAIN) and opset < schemas.OLDEST_OPSET:
            raise ModelLoadError(
                "unsupported_opset",
                f"The model uses opset {opset}; the oldest that can be read is {schemas.OLDEST_OPSET}",
                where=str(path),
                hint="Lift it with onnx.version_converter.convert_version(model, 13)",
            )
        if domain in schemas.STANDARD_DOMAINS and opset > schemas.newest_opset(domain):
            newest = schemas.newest_opset(domain)
            raise _opset(f"The model uses opset {opset} of {name}, newer than {newest}", path)


def _opset(fact: str, path: Path) -> ModelLoadError:
    return ModelLoadError(
        "unsupported_opset",
        f"{fact}, the newest that the installed onnxruntime {schemas.VERSION} runs",
        where=str(path),
        hint="Export the model with an older opset, or install a newer onnxruntime",
    )


def check_not_empty(model: ir.Model, path: Path) -> None:
    """Refuse a graph that computes nothing."""
    for count, what in ((len(model.graph), "operators"), (len(model.graph.outputs), "outputs")):
        if count == 0:
            raise _invalid(f"the graph is empty, it has no {what}", path)


def check_sizes(model: ir.Model, path: Path) -> None:
    """Refuse constants that do not have the size they declare, and tensors that no machine can hold."""
    for tensor in tensors(model):
        dims = tuple(int(d) for d in tensor.shape.numpy())
        if any(d < 0 for d in dims):
            raise _invalid(f"constant {tensor.name!r} declares the shape {list(dims)}", path)
        _check_bytes(tensor.name, dims, tensor.dtype, path)
        _check_stored(tensor, math.prod(dims), path)
    for value in _declared_values(model):
        if value.shape is not None and all(isinstance(d, int) for d in value.shape):
            dims = tuple(d for d in value.shape if isinstance(d, int))
            _check_bytes(value.name, dims, value.dtype or ir.DataType.FLOAT, path)
    for node in nodes(model):
        if node.op_type in _SHAPED_BY_INPUT:
            _check_constant_shape(node, path)


def _declared_values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
    for node in nodes(model):
        yield from node.outputs


def _check_bytes(name: str | None, dims: Iterable[int], dtype: ir.DataType, path: Path) -> None:
    size = math.prod(dims) * (1 if dtype == ir.DataType.STRING else dtype.itemsize)
    if size > MAX_TENSOR_BYTES:
        raise _invalid(f"tensor {name!r} declares the absurd size of {int(size):,} bytes", path)


def _check_stored(tensor: ir.TensorProtocol, count: int, path: Path) -> None:
    proto = tensor.raw
    if not isinstance(proto, onnx.TensorProto):
        return  # external data is checked against its file, everything else is built from values
    if proto.HasField("raw_data"):
        stored, expected = len(proto.raw_data), {math.ceil(count * tensor.dtype.bitwidth / 8)}
    else:
        typed = (
            proto.float_data, proto.int32_data, proto.int64_data,
            proto.double_data, proto.uint64_data, proto.string_data,
        )  # fmt: skip
        stored = max(len(values) for values in typed)
        per_value = {1, 2} if tensor.dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128) else {1}
        expected = {count * n for n in per_value}
        if tensor.dtype.bitwidth < 8:
            expected.add(math.ceil(count * tensor.dtype.bitwidth / 8))
    if stored not in expected:
        raise _invalid(
            f"constant {tensor.name!r} declares the shape {list(tensor.shape.numpy())} "
            f"but stores {stored:,} bytes or values",
            path,
        )


def _check_constant_shape(node: ir.Node, path: Path) -> None:
    position = _SHAPED_BY_INPUT[node.op_type]
    value = node.inputs[position] if position < len(node.inputs) else None
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    # External data was not checked yet; a shape is never stored there in earnest.
    if tensor is None or isinstance(tensor, ir.ExternalTensor) or tensor.size > _MAX_SHAPE_VALUES:
        return
    dims = [max(int(d), 1) for d in tensor.numpy().ravel()]
    _check_bytes(node.outputs[0].name, dims, ir.DataType.FLOAT, path)


def check_operators(model: ir.Model, path: Path) -> None:
    """Refuse operators that the installed onnxruntime has no definition of."""
    for node in model.graph.all_nodes():
        _check_operator(node, model, model.opset_imports, path)
    for function in model.functions.values():
        for node in function.all_nodes():
            _check_operator(node, model, function.opset_imports, path)


def _check_operator(node: ir.Node, model: ir.Model, opsets: dict[str, int], path: Path) -> None:
    if node.op_identifier() in model.functions:
        return
    domain = "" if node.domain == schemas.ONNX_DOMAIN else node.domain
    versions = schemas.operators().get((domain, node.op_type))
    what = f"{node.op_type} of domain {domain or schemas.ONNX_DOMAIN} (node {_label(node)!r})"
    if versions is None:
        kind = "Custom operator" if domain not in schemas.STANDARD_DOMAINS else "Unknown operator"
        raise ModelLoadError(
            "unsupported_operator",
            f"{kind} {what} is unsupported: onnxruntime {schemas.VERSION} has no implementation",
            where=str(path),
            hint="Export the network with standard operators, or cut this part off the model",
        )
    opset = opsets.get(domain, opsets.get(schemas.ONNX_DOMAIN) if domain == "" else None)
    if opset is None:
        return
    current = [version for version in versions if version.opset <= opset]
    if not current:
        raise ModelLoadError(
            "unsupported_operator",
            f"Operator {what} needs opset {versions[0].opset}, the model uses opset {opset}",
            where=str(path),
            hint=f"Export the model with opset {versions[0].opset} or newer",
        )
    if current[-1].is_removed:
        raise ModelLoadError(
            "unsupported_operator",
            f"Operator {what} is unsupported: it was removed in opset {current[-1].opset}",
            where=str(path),
            hint="Export the model again with standard operators of its opset",
        )


def check_connections(model: ir.Model, path: Path) -> None:
    """Refuse tensors that nobody produces, and cycles."""
    bodies: list[ir.Graph | ir.Function] = [*model.graphs(), *model.functions.values()]
    bodies += [g for f in model.functions.values() for g in f.subgraphs()]
    known = {value for body in bodies for value in body.inputs}
    known |= {v for body in bodies if isinstance(body, ir.Graph) for v in body.initializers.values()}
    for node in nodes(model):
        for value in node.inputs:
            if value is not None and value.producer() is None and value not in known:
                raise _invalid(
                    f"node {_label(node)!r} reads the tensor {value.name!r}, which is undefined: "
                    "no node produces it and it is neither an input nor a constant",
                    path,
                )
    for body in bodies:
        for value in body.outputs:
            if value.producer() is None and value not in known:
                raise _invalid(f"the output {value.name!r} is undefined: no node produces it", path)
        _check_acyclic(body, path)


def _check_acyclic(body: ir.Graph | ir.Function, path: Path) -> None:
    needs = {node: _producers(node, body) for node in body}
    readers: dict[ir.Node, list[ir.Node]] = {node: [] for node in needs}
    for node, producers in needs.items():
        for producer in producers:
            readers[producer].append(node)
    waiting = {node: len(producers) for node, producers in needs.items()}
    ready = [node for node, count in waiting.items() if count == 0]
    while ready:
        for reader in readers[ready.pop()]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    stuck = {node for node, count in waiting.items() if count > 0}
    if stuck:
        names = " -> ".join(_label(node) for node in _a_cycle(stuck, needs))
        raise _invalid(f"its nodes form a cycle: {names}", path)


def _a_cycle(stuck: set[ir.Node], needs: dict[ir.Node, set[ir.Node]]) -> list[ir.Node]:
    """Walk from any stuck node to one that it waits for until a node comes again."""
    trail: list[ir.Node] = []
    node = next(n for n in needs if n in stuck)
    while node not in trail:
        trail.append(node)
        node = next(n for n in needs[node] if n in stuck)
    return [*trail[trail.index(node) :], node][::-1]


def _producers(node: ir.Node, body: ir.Graph | ir.Function) -> set[ir.Node]:
    """Return the nodes of ``body`` whose values this node, or a subgraph in it, reads."""
    graph = body.graph if isinstance(body, ir.Function) else body
    readers = [node]
    for attribute in node.attributes.values():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            readers += attribute.as_graph().all_nodes()
        elif attribute.type == ir.AttributeType.GRAPHS:
            readers += [inner for g in attribute.as_graphs() for inner in g.all_nodes()]
    values = (value for reader in readers for value in reader.inputs if value is not None)
    producers = (value.producer() for value in values)
    return {producer for producer in producers if producer is not None and producer.graph is graph}


def _label(node: ir.Node) -> str:
    if node.name:
        return node.name
    return f"{node.op_type}:{node.outputs[0].name if node.outputs else ''}"


def _invalid(fact: str, path: Path) -> ModelLoadError:
    return ModelLoadError(
        "invalid_graph", f"The graph is invalid: {fact}", where=str(path), hint=_EXPORT_AGAIN
    )
