"""See through quantization: which values of a graph are the same value, and how they are stored.

A *core* value is one that is computed; everything that only quantizes, dequantizes, copies or re-lays it
out (QuantizeLinear, DequantizeLinear, Identity, Dropout, Cast between floats, Transposes that cancel) is an
alias of that core.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from analyzers.graph import FLOAT_TYPES, captured_values, constant_array, is_constant
from analyzers.records import Array, Quantization

Permutation = tuple[int, ...]
_COPIES = frozenset({"Identity", "Dropout"})
_RESTATES = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "DequantizeLinear", "Transpose"})


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Where a core value lies as integers.

    Attributes:
        integer: The quantized value.
        dequantized: The first float value read back from it.
        quantization: Its parameters.
        permutation: Layout of the stored tensor relative to the core; None for the same layout.
    """

    integer: ir.Value
    dequantized: ir.Value
    quantization: Quantization
    permutation: Permutation | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Skeleton:
    """The computing part of a graph.

    Attributes:
        nodes: Nodes that compute, topological.
        cores: Every value -> its core.
        readers: Core value -> the computing nodes that read it.
        storage: Core value -> its storages, the nearest first.
    """

    nodes: tuple[ir.Node, ...]
    cores: dict[ir.Value, ir.Value]
    readers: dict[ir.Value, list[ir.Node]] = field(default_factory=dict)
    storage: dict[ir.Value, list[Storage]] = field(default_factory=dict)

    def core(self, value: ir.Value) -> ir.Value:
        """Return the core of a value (itself where it is one)."""
        return self.cores.get(value, value)

    def data_inputs(self, node: ir.Node) -> list[ir.Value | None]:
        """Return the cores of the node's inputs in order, None for constants and absent ones."""
        values: list[ir.Value | None] = []
        for value in node.inputs:
            core = None if value is None else self.core(value)
            values.append(None if core is None or is_constant(core) else core)
        values.extend(self.core(v) for v in captured_values(node) if not is_constant(self.core(v)))
        return values


def skeleton_of(graph: ir.Graph) -> Skeleton:
    """Analyze a topologically sorted graph in QDQ or float form."""
    chains: dict[ir.Value, list[tuple[ir.Value, Permutation | None]]] = {}
    nodes: list[ir.Node] = []
    cores: dict[ir.Value, ir.Value] = {}
    for node in graph:
        source = _alias_source(node)
        if source is None:
            nodes.append(node)
            continue
        step = _permutation(node)
        upstream = chains.get(source, [(source, None)])
        chain = [(value, _compose(layout, step)) for value, layout in upstream]
        output = node.outputs[0]
        core = next((value for value, layout in chain if _is_identity(layout)), None)
        if core is None:
            nodes.append(node)
            core = output
        chains[output] = [*chain, (output, None)]
        cores[output] = core
    skeleton = Skeleton(tuple(nodes), cores)
    _find_readers(skeleton)
    _find_storage(graph, skeleton)
    return skeleton


def _alias_source(node: ir.Node) -> ir.Value | None:
    """Return the value that the node's first output merely re-states, or None if it computes."""
    is_alias = node.op_type in _RESTATES or node.op_type in _COPIES
    if node.op_type == "Cast":
        to = node.attributes["to"].as_int()
        is_alias = ir.DataType(to) in FLOAT_TYPES and (
            node.inputs[0] is not None and node.inputs[0].dtype in FLOAT_TYPES
        )
    return node.inputs[0] if is_alias else None


def _permutation(node: ir.Node) -> Permutation | None:
    if node.op_type != "Transpose":
        return None
    attribute = node.attributes.get("perm")
    if attribute is not None:
        return tuple(attribute.as_ints())
    source = node.inputs[0]
    rank = None if source is None or source.shape is None else len(source.shape)
    return tuple(reversed(range(rank))) if rank is not None else (1, 0)


def _compose(first: Permutation | None, then: Permutation | None) -> Permutation | None:
    """Return the permutation of transposing by ``first`` and then by ``then``."""
    if first is None or then is None:
        return then if first is None else first
    return tuple(first[axis] for axis in then) if len(first) == len(then) else (-1,)


def _is_identity(layout: Permutation | None) -> bool:
    return layout is None or layout == tuple(range(len(layout)))


def _find_readers(skeleton: Skeleton) -> None:
    for node in skeleton.nodes:
        for core in skeleton.data_inputs(node):
            if core is not None:
                skeleton.readers.setdefault(core, []).append(node)


def _find_storage(graph: ir.Graph, skeleton: Skeleton) -> None:
    for node in graph:
        if node.op_type != "DequantizeLinear" or node.inputs[0] is None:
            continue
        integer = node.inputs[0]
        producer = integer.producer()
        quantization = read_quantization(node)
        if producer is None or producer.op_type != "QuantizeLinear" or quantization is None:
            continue
        source = producer.inputs[0]
        assert source is not None
        core, layout = _stored_core(skeleton, source)
        skeleton.storage.setdefault(core, []).append(Storage(integer, node.outputs[0], quantization, layout))


def _stored_core(skeleton: Skeleton, source: ir.Value) -> tuple[ir.Value, Permutation | None]:
    """Return what is stored: see through one Transpose that exists only for the storage layout."""
    core = skeleton.core(source)
    node = core.producer()
    if node is None or node.op_type != "Transpose" or node.inputs[0] is None:
        return core, None
    readers = skeleton.readers.get(core, [])
    if any(reader.op_type != "Transpose" for reader in readers):
        return core, None
    before = skeleton.core(node.inputs[0])
    undone = any(skeleton.core(v) is before and v is not before for v in _transposed_readers(core))
    return (before, _permutation(node)) if undone else (core, None)


def _transposed_readers(core: ir.Value) -> list[ir.Value]:
    found: list[ir.Value] = []
    frontier = [core]
    while frontier:
        value = frontier.pop()
        for use in value.uses():
            node = use.node
            if _alias_source(node) is value:
                output = node.outputs[0]
                (found if node.op_type == "Transpose" else frontier).append(output)
    return found


def read_quantization(node: ir.Node) -> Quantization | None:
    """Return the parameters of a QuantizeLinear/DequantizeLinear, or None if they are not constants."""
    scale = constant_array(node.inputs[1])
    if scale is None:
        return None
    zero_value = node.inputs[2] if len(node.inputs) > 2 else None
    zero = constant_array(zero_value)
    integer = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    dtype = zero_value.dtype if zero_value is not None and zero_value.dtype is not None else None
    dtype = dtype or (integer.dtype if integer is not None else None) or ir.DataType.UINT8
    axis = node.attributes.get("axis")
    block = node.attributes.get("block_size")
    scale = np.asarray(scale, dtype=np.float32)
    zero = np.zeros(scale.shape, np.int64) if zero is None else np.asarray(zero).astype(np.int64)
    if scale.size == 1:
        scale, zero = scale.reshape(()), zero.reshape(())
    return Quantization(
        scale=scale,
        zero_point=zero,
        dtype=dtype.name.lower(),
        axis=None if scale.ndim == 0 else (axis.as_int() if axis is not None else 1),
        block_size=block.as_int() if block is not None else 0,
    )


def constant_of(skeleton: Skeleton, value: ir.Value | None) -> Array | None:
    """Return a constant input as the candidate computes with it: weights dequantized, else as they are."""
    if value is None:
        return None
    if is_constant(value):
        return constant_array(value)
    core = skeleton.core(value)
    if not is_constant(core):
        return None
    node = value.producer()
    while node is not None and node.op_type in _COPIES:
        value = node.inputs[0]
        assert value is not None
        node = value.producer()
    array = constant_array(core)
    if node is None or node.op_type != "DequantizeLinear" or array is None:
        return array
    quantization = read_quantization(node)
    return None if quantization is None else dequantize(array, quantization)


def dequantize(integers: Array, quantization: Quantization) -> Array:
    """Return ``(integers - zero_point) * scale`` in float32, per tensor, per axis or blocked."""
    scale, zero = quantization.scale, quantization.zero_point
    if quantization.axis is not None and scale.ndim:
        axis = quantization.axis % integers.ndim
        if quantization.block_size:
            scale = np.repeat(scale, quantization.block_size, axis=axis).take(
                range(integers.shape[axis]), axis=axis
            )
            zero = np.repeat(zero, quantization.block_size, axis=axis).take(
                range(integers.shape[axis]), axis=axis
            )
        else:
            shape = [1] * integers.ndim
            shape[axis] = -1
            scale, zero = scale.reshape(shape), zero.reshape(shape)
    result: Array = ((integers.astype(np.int64) - zero) * scale).astype(np.float32)
    return result
