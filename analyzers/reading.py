"""Is this file a readable, safe model that the installed onnxruntime can run?

Three stages, each cheap enough to run always: the file's bytes (``check_file``), the parsed graph
(``parse_model``), and what the graph asks for (``check_graph``). Every refusal is a ``ModelLoadError``
that names the file and says what to do.
"""

from __future__ import annotations

import logging
import mmap
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import onnx
import onnx_ir as ir

from analyzers import external_data, file_kinds, graph_checks, wire
from analyzers.errors import ModelLoadError
from analyzers.file_kinds import FileKind
from analyzers.records import Notice

_PROTOBUF_LIMIT_BYTES = (1 << 31) - 1
_FETCH_AGAIN = "Fetch or export the model again and compare the file sizes"
# QuantizeLinear, QLinearConv, QGemm, MatMulInteger, DynamicQuantizeMatMul, MatMulNBits, MatMulBnb4 ...
_QUANTIZED_OPERATOR = re.compile(r"(?i:quantize)|^Q[A-Z]|Integer|NBits|Bnb4|FpQ4")

# What it warns of while parsing (undefined tensors) is refused by check_graph, in one line.
logging.getLogger("onnx_ir.serde").setLevel(logging.ERROR)


def check_file(path: Path) -> None:
    """Check that the bytes of a file look like a whole ONNX model, without parsing it.

    Raises:
        ModelLoadError: ``file_absent``, ``file_not_readable``, ``not_a_model``, ``truncated_model`` or
            ``malformed_model``.
    """
    size = _size_of_regular_file(path)
    if size == 0:
        raise _error("not_a_model", "The model file is empty (0 bytes)", path, _FETCH_AGAIN)
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            head, walk = data[: file_kinds.HEAD_BYTES], wire.walk_model(data)
    except OSError as cause:
        raise _not_readable(path, cause) from cause
    _check_walk(walk, head, path)
    if size > _PROTOBUF_LIMIT_BYTES:
        raise _error(
            "malformed_model",
            f"The file has {size:,} bytes; a protobuf file cannot hold more than 2 GiB",
            path,
            "Save the model with external data: onnx.save(model, 'model.onnx', save_as_external_data=True)",
        )


def parse_model(path: Path) -> ir.Model:
    """Check a file, parse it, and return its graph; external data is not touched.

    Raises:
        ModelLoadError: What ``check_file`` raises, ``malformed_model`` or ``invalid_graph``.
    """
    check_file(path)
    try:
        proto = onnx.ModelProto.FromString(path.read_bytes())
    except Exception as cause:  # protobuf's DecodeError, whose module has no types
        raise _error(
            "malformed_model", "The file is damaged: it cannot be parsed as an ONNX model", path, _FETCH_AGAIN
        ) from cause
    _check_definitions(proto, path)
    try:
        model: ir.Model = ir.from_proto(proto)
    except Exception as cause:  # onnx-ir has no common base class for what a strange file can cause
        raise _error(
            "invalid_graph",
            f"The graph is invalid: {_innermost(cause)}",
            path,
            "Check the model with onnx.checker.check_model, and export it again",
        ) from cause
    for tensor in graph_checks.tensors(model):
        if isinstance(tensor, ir.ExternalTensor):
            tensor.base_dir = path.absolute().parent
    return model


def check_graph(ir_model: ir.Model, path: Path) -> tuple[Notice, ...]:
    """Check that a parsed graph is sound, safe to open, and runnable by the installed onnxruntime.

    Args:
        ir_model: The graph as it stands in the file, before anything is changed.
        path: The file it came from; external data is looked for beside it.

    Returns:
        What the user should know although it can be run.

    Raises:
        ModelLoadError: ``unsupported_opset``, ``invalid_graph``, ``external_data_missing``,
            ``external_data_unsafe`` or ``unsupported_operator``.
    """
    graph_checks.check_opsets(ir_model, path)
    graph_checks.check_not_empty(ir_model, path)
    graph_checks.check_sizes(ir_model, path)
    external = (t for t in graph_checks.tensors(ir_model) if isinstance(t, ir.ExternalTensor))
    external_data.check_external_data(external, path)
    graph_checks.check_operators(ir_model, path)
    graph_checks.check_connections(ir_model, path)
    return ()


def is_quantized(ir_model: ir.Model) -> bool:
    """Return whether any operator, in subgraphs too, quantizes or computes with quantized values."""
    return any(_QUANTIZED_OPERATOR.search(node.op_type) for node in graph_checks.nodes(ir_model))


def check_roles(
    reference: ir.Model, candidate: ir.Model, *, reference_path: Path, candidate_path: Path
) -> tuple[Notice, ...]:
    """Check that the reference is the float side and the candidate the quantized one.

    Raises:
        ModelLoadError: ``swapped_arguments`` or ``already_quantized``.
    """
    if is_quantized(reference):
        if not is_quantized(candidate):
            raise _error(
                "swapped_arguments",
                "The reference is quantized and the candidate is not: the two seem to be swapped",
                reference_path,
                f"Give {candidate_path.name} first and {reference_path.name} second",
            )
        raise already_quantized(reference_path)
    if is_quantized(candidate):
        return ()
    return (
        Notice(
            "int8_not_quantized",
            "The candidate contains no quantized operator and no QuantizeLinear: it is not quantized",
            where=str(candidate_path),
        ),
    )


def already_quantized(path: Path) -> ModelLoadError:
    """Return the error for a reference that holds quantized operators."""
    return _error(
        "already_quantized",
        "The reference is already quantized: it contains QuantizeLinear or other quantized operators",
        path,
        "Give the FP32 model that it was made from",
    )


def _error(code: str, message: str, path: Path, hint: str) -> ModelLoadError:
    return ModelLoadError(code, message, where=str(path), hint=hint)


def _not_readable(path: Path, cause: OSError) -> ModelLoadError:
    return _error(
        "file_not_readable",
        f"The model file cannot be read: {cause.strerror or cause}",
        path,
        "Check its permissions",
    )


def _size_of_regular_file(path: Path) -> int:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError) as cause:
        raise _error(
            "file_absent", "The model file does not exist", path, "Check the path and its spelling"
        ) from cause
    except (OSError, ValueError) as cause:
        raise _not_readable(path, cause if isinstance(cause, OSError) else OSError(str(cause))) from cause
    if stat.S_ISDIR(status.st_mode):
        raise _error(
            "not_a_model", "The path is a folder, not a model file", path, "Give the .onnx file inside it"
        )
    if not stat.S_ISREG(status.st_mode):
        raise _error("not_a_model", "The path is not a regular file", path, "Give an .onnx file")
    return status.st_size


def _check_walk(walk: wire.Walk, head: bytes, path: Path) -> None:
    if walk.verdict == "complete" and {wire.GRAPH, wire.OPSET_IMPORT} <= walk.fields:
        return
    kind = None if walk.verdict == "truncated" else _kind(walk, head, path)
    if kind is not None:
        raise _error("not_a_model", f"The file is not an ONNX model but {kind.name}", path, kind.hint)
    if walk.verdict == "truncated":
        lacking = f"; at least {walk.missing_bytes:,} bytes are missing" if walk.missing_bytes else ""
        raise _error("truncated_model", f"The model file is truncated{lacking}", path, _FETCH_AGAIN)
    if walk.verdict == "complete" and wire.IR_VERSION in walk.fields:
        part = "list of opsets" if wire.GRAPH in walk.fields else "graph"
        raise _error("truncated_model", f"The model file ends before its {part}", path, _FETCH_AGAIN)
    raise _error(
        "malformed_model",
        "The file is not a valid ONNX model: its bytes are damaged or of another format",
        path,
        _FETCH_AGAIN,
    )


def _kind(walk: wire.Walk, head: bytes, path: Path) -> FileKind | None:
    by_content = None if walk.verdict == "complete" else file_kinds.kind_by_content(head, path)
    return by_content or file_kinds.kind_by_name(path)


def _innermost(cause: BaseException) -> str:
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(cause).strip() or type(cause).__name__
    return text.splitlines()[0].rstrip(".")[:300]


def _check_definitions(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse what onnx-ir would drop, merge or stumble over: doubled names, sparse constants, bad offsets."""
    for graph in _graphs(proto.graph):
        if graph.sparse_initializer:
            raise _error(
                "unsupported_operator",
                f"The weights {graph.sparse_initializer[0].values.name!r} are stored as a sparse tensor",
                path,
                "Store them as an ordinary (dense) initializer",
            )
        inputs, constants = [v.name for v in graph.input], [t.name for t in graph.initializer]
        results = [name for node in graph.node for name in node.output if name]
        # An initializer under an input's name is that input's default value.
        own_constants = set(constants) - set(inputs)
        for names in (constants, [*inputs, *own_constants, *results]):
            name, count = max(Counter(names).items(), key=lambda item: item[1], default=("", 0))
            if count > 1:
                raise _error(
                    "invalid_graph",
                    f"The graph is invalid: {count} values have the same name {name!r}",
                    path,
                    "Export the model again; every tensor needs a name of its own",
                )
    for tensor in _tensor_protos(proto):
        external_data.check_entries(tensor, path)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    yield from _graphs_of(graph.node)


def _graphs_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
            for subgraph in attribute.graphs:
                yield from _graphs(subgraph)


def _tensor_protos(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    in_functions = (_graphs_of(function.node) for function in proto.functions)
    graphs = list(chain(_graphs(proto.graph), *in_functions))
    for graph in graphs:
        yield from graph.initializer
    for body in (*graphs, *proto.functions):
        for attribute in (attribute for node in body.node for attribute in node.attribute):
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
