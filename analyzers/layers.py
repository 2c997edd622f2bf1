"""Group the reference's nodes into layers, the unit of fallback (DESIGN section 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from analyzers.graph import is_constant, is_float, names_of, node_name
from analyzers.records import Layer
from analyzers.skeleton import Skeleton

PASS_THROUGH = frozenset(
    "Reshape Transpose Flatten Squeeze Unsqueeze MaxPool Slice Split Identity Dropout DepthToSpace "
    "SpaceToDepth Expand Tile Gather".split()
)
_FOLLOWERS = frozenset(
    "BatchNormalization Relu Clip LeakyRelu PRelu Elu Selu Celu ThresholdedRelu Sigmoid HardSigmoid "
    "HardSwish Tanh Softplus Softsign Mish Gelu Swish Mul Add Sub Div Exp Log Sqrt Reciprocal Neg Abs Pow "
    "Erf Sin Cos Floor Ceil Round Sign".split()
)
_ELEMENTWISE = frozenset(
    "Sigmoid HardSigmoid Erf Tanh Softplus Mul Add Sub Div Pow Clip Relu Sqrt Neg Cast Identity".split()
)
_CURVES = frozenset({"Sigmoid", "HardSigmoid", "Erf", "Tanh", "Softplus"})
_MOST_ACTIVATION_NODES = 10


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """Nodes of a graph in groups.

    Attributes:
        groups: Each layer's nodes, topological, in topological order of their first nodes.
        layer_of: Node -> index into ``groups``; auxiliary nodes (no float output) are absent.
    """

    groups: tuple[tuple[ir.Node, ...], ...]
    layer_of: dict[ir.Node, int]


def group_nodes(skeleton: Skeleton, graph: ir.Graph, is_stored: Callable[[ir.Value], bool]) -> Grouping:
    """Group nodes by what the candidate computes without storing in between.

    Args:
        skeleton: The reference's skeleton.
        graph: The reference graph.
        is_stored: True for reference core values that the candidate stores as integers.
    """
    roots: dict[ir.Node, ir.Node] = {}
    float_nodes = [n for n in graph if any(is_float(v) for v in n.outputs)]
    for node in float_nodes:
        roots.setdefault(node, node)
        source = _followed(node, skeleton, is_stored)
        if source is not None:
            roots[node] = _root(roots, source)
        for member, leader in _activation(node, skeleton):
            roots[member] = _root(roots, leader)
    members: dict[ir.Node, list[ir.Node]] = {}
    for node in float_nodes:
        members.setdefault(_root(roots, node), []).append(node)
    groups = tuple(tuple(nodes) for nodes in members.values())
    return Grouping(groups, {node: i for i, nodes in enumerate(groups) for node in nodes})


def _root(roots: dict[ir.Node, ir.Node], node: ir.Node) -> ir.Node:
    while roots.get(node, node) is not node:
        node = roots[node]
    return node


def is_pass_through(node: ir.Node) -> bool:
    """Return True for single-input operators that only move values about."""
    if node.op_type == "Resize" or node.op_type == "Upsample":
        mode = node.attributes.get("mode")
        return mode is None or mode.as_string() == "nearest"
    if node.op_type == "Gather":
        return not is_constant(node.inputs[0]) and is_constant(node.inputs[1])
    return node.op_type in PASS_THROUGH


def _followed(node: ir.Node, skeleton: Skeleton, is_stored: Callable[[ir.Value], bool]) -> ir.Node | None:
    """Return the node whose layer ``node`` joins as a fused follower, or None."""
    data = [v for v in skeleton.data_inputs(node) if v is not None]
    if node.op_type not in _FOLLOWERS or len(data) != 1 or is_stored(data[0]):
        return None
    source = data[0].producer()
    is_private = len(skeleton.readers.get(data[0], [])) == 1 and not _leaves_graph(data[0], skeleton)
    if (
        source is None
        or not is_private
        or is_pass_through(source)
        or not any(is_float(v) for v in source.outputs)
    ):
        return None
    return source


def _leaves_graph(value: ir.Value, skeleton: Skeleton) -> bool:
    return value.is_graph_output() or any(
        alias.is_graph_output() for alias, core in skeleton.cores.items() if core is value
    )


def _activation(node: ir.Node, skeleton: Skeleton) -> list[tuple[ir.Node, ir.Node]]:
    """Return (member, leader) if ``node`` ends a decomposed activation ``x * curve(x)``.

    The region is grown backwards from a Mul through elementwise nodes until all its inputs come from a
    single value that a computing node made; only then is it an activation of that value.
    """
    if node.op_type != "Mul":
        return []
    data = [v for v in skeleton.data_inputs(node) if v is not None]
    if len(data) == 1:
        return _scaled_gelu(node, data[0], skeleton)
    region, leaf = _single_source_region(node, skeleton)
    if leaf is None or not any(n.op_type in _CURVES for n in region):
        return []
    leader = leaf.producer()
    if leader is None or is_pass_through(leader) or not any(is_float(v) for v in leader.outputs):
        return [(n, region[0]) for n in region[1:]]
    if any(reader not in region for reader in skeleton.readers.get(leaf, [])) or _leaves_graph(
        leaf, skeleton
    ):
        return [(n, region[0]) for n in region[1:]]
    return [(n, leader) for n in region]


def _scaled_gelu(node: ir.Node, source: ir.Value, skeleton: Skeleton) -> list[tuple[ir.Node, ir.Node]]:
    """Return the trailing ``* 0.5`` of a decomposed GELU as a member of it."""
    before = source.producer()
    if before is None or before.op_type != "Mul" or len(skeleton.readers.get(source, [])) != 1:
        return []
    region, _ = _single_source_region(before, skeleton)
    is_gelu = any(n.op_type in {"Erf", "Tanh"} for n in region)
    return [(node, before)] if is_gelu and not _leaves_graph(source, skeleton) else []


def _single_source_region(end: ir.Node, skeleton: Skeleton) -> tuple[list[ir.Node], ir.Value | None]:
    region = {end}
    while len(region) <= _MOST_ACTIVATION_NODES:
        leaves = {
            v
            for n in region
            for v in skeleton.data_inputs(n)
            if v is not None and (v.producer() is None or v.producer() not in region)
        }
        if len(leaves) == 1:
            leaf = next(iter(leaves))
            if len(region) > 1:
                order = [n for n in skeleton.nodes if n in region]
                return order, leaf
            return [], None
        inner = [v for v in leaves if _is_inner(v, region, skeleton)]
        if not inner:
            return [], None
        for value in inner:
            producer = value.producer()
            assert producer is not None
            region.add(producer)
    return [], None


def _is_inner(value: ir.Value, region: set[ir.Node], skeleton: Skeleton) -> bool:
    producer = value.producer()
    if producer is None or producer.op_type not in _ELEMENTWISE or value.is_graph_output():
        return False
    return all(reader in region for reader in skeleton.readers.get(value, []))


def layer_records(grouping: Grouping, is_quantized: Callable[[ir.Node], bool]) -> tuple[Layer, ...]:
    """Return the groups as records."""
    return tuple(_record(nodes, is_quantized) for nodes in grouping.groups)


def _record(nodes: tuple[ir.Node, ...], is_quantized: Callable[[ir.Node], bool]) -> Layer:
    own = set(nodes)
    made = {v for n in nodes for v in n.outputs}
    inputs: dict[ir.Value, None] = {}
    weight_bytes = 0
    for node in nodes:
        for value in node.inputs:
            if value is None or value in made:
                continue
            if is_constant(value):
                weight_bytes += 0 if value.const_value is None else value.const_value.nbytes
            else:
                inputs[value] = None
    outputs = [
        v for n in nodes for v in n.outputs if v.is_graph_output() or any(u.node not in own for u in v.uses())
    ]
    return Layer(
        name=node_name(nodes[0]),
        op_type=nodes[0].op_type,
        nodes=tuple(node_name(n) for n in nodes),
        inputs=names_of(inputs),
        outputs=names_of(outputs),
        is_pass_through=len(nodes) == 1 and is_pass_through(nodes[0]),
        is_quantized=any(is_quantized(n) for n in nodes),
        weight_bytes=weight_bytes,
    )
