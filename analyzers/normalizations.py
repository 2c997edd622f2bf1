"""Normalizations and softmaxes, as one operator or written out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from analyzers.graph import is_float, node_name
from analyzers.likeness import MULTIPLIES
from analyzers.project import Pair
from analyzers.regions import regions

FUSED = frozenset(
    "LayerNormalization SimplifiedLayerNormalization SkipLayerNormalization RMSNormalization "
    "InstanceNormalization GroupNormalization LpNormalization Softmax LogSoftmax".split()
)
_REDUCES = frozenset(
    {"ReduceMean", "ReduceSum", "ReduceL2", "ReduceSumSquare", "ReduceMax", "ReduceLogSumExp"}
)
_DIVIDES = frozenset({"Div", "Reciprocal", "Sqrt", "Pow"})


@dataclass(frozen=True, slots=True)
class Normalization:
    """Operators that divide a tensor by a statistic of itself.

    Attributes:
        nodes: Names of the operators, topological.
        source: The tensor that is normalized.
        inside: Tensors between its operators; empty where it is one operator.
        exit: The result.
    """

    nodes: tuple[str, ...]
    source: str
    inside: tuple[str, ...]
    exit: str


def normalizations(pair: Pair) -> Iterator[Normalization]:
    """Yield those of the reference, topological."""
    ours = pair.paired.ours
    outputs = {ours.core(v) for v in pair.reference.ir.graph.outputs}
    seen: set[ir.Node] = set()
    for node in ours.nodes:
        data = list(dict.fromkeys(v for v in ours.data_inputs(node) if v is not None))
        if node in seen or not data or not is_float(node.outputs[0]):
            continue
        if node.op_type in FUSED:
            result = node.outputs[0].name or ""
            yield Normalization((node_name(node),), data[0].name or "", (), result)
        elif len(data) == 1:
            for region in regions(ours, data[0], node, lambda _: True, outputs):
                types = {n.op_type for n in region.nodes}
                if types & MULTIPLIES:
                    break
                if types & _REDUCES and types & _DIVIDES and types & {"Div", "Mul"}:
                    seen.update(region.nodes)
                    made = [v for n in region.nodes for v in n.outputs if v is not region.exit]
                    yield Normalization(
                        tuple(node_name(n) for n in region.nodes),
                        data[0].name or "",
                        tuple(v.name or "" for v in made),
                        region.exit.name or "",
                    )
                    break
