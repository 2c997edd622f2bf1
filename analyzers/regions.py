"""Parts of a graph that compute one value from one other, however many operators that takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from analyzers.skeleton import Skeleton

_MOST_NODES = 16  # a decomposed normalization has about ten


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Nodes that together compute ``exit`` from a single value.

    Attributes:
        nodes: The nodes, in topological order; empty where the value is passed on as it is.
        exit: Core value that others read.
    """

    nodes: tuple[ir.Node, ...]
    exit: ir.Value


def regions(
    skeleton: Skeleton,
    start: ir.Value,
    first: ir.Node,
    is_free: Callable[[ir.Node], bool],
    outputs: Collection[ir.Value],
) -> Iterator[Region]:
    """Yield the regions that begin with a reader of a value, the smallest first.

    Args:
        skeleton: The graph.
        start: Core value that the region reads.
        first: A node that reads nothing else.
        is_free: Says which nodes may be part of a region.
        outputs: Core values that leave the graph.
    """
    nodes = [first]
    made = {skeleton.core(v) for v in first.outputs}
    if not _reads_only(skeleton, first, {start}):
        return
    while len(nodes) <= _MOST_NODES:
        exits = [v for v in made if v in outputs or _is_read_outside(skeleton, v, nodes)]
        if len(exits) == 1 and exits[0].producer() is nodes[-1]:
            yield Region(tuple(nodes), exits[0])
        follower = _follower(skeleton, nodes, made | {start}, is_free)
        if follower is None:
            return
        nodes.append(follower)
        made |= {skeleton.core(v) for v in follower.outputs}


def _is_read_outside(skeleton: Skeleton, value: ir.Value, nodes: list[ir.Node]) -> bool:
    return any(reader not in nodes for reader in skeleton.readers.get(value, []))


def _reads_only(skeleton: Skeleton, node: ir.Node, known: set[ir.Value]) -> bool:
    data = [v for v in skeleton.data_inputs(node) if v is not None]
    return bool(data) and all(v in known for v in data)


def _follower(
    skeleton: Skeleton, nodes: list[ir.Node], known: set[ir.Value], is_free: Callable[[ir.Node], bool]
) -> ir.Node | None:
    """Return the next node that reads nothing but what the region knows, and something that it made."""
    for node in nodes:
        for output in node.outputs:
            for reader in skeleton.readers.get(skeleton.core(output), []):
                if reader not in nodes and is_free(reader) and _reads_only(skeleton, reader, known):
                    return reader
    return None
