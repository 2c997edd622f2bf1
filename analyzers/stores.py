"""How the candidate stores its tensors as integers, as its QuantizeLinear and DequantizeLinear nodes say."""

from __future__ import annotations

import onnx_ir as ir

from analyzers.evidence import Reader, Store
from analyzers.graph import node_name
from analyzers.project import Pair
from analyzers.skeleton import Skeleton, read_quantization


def find_stores(pair: Pair) -> dict[str, Store]:
    """Return how each reference tensor is stored whose candidate twin is; graph inputs included.

    Tensors whose parameters are computed while the model runs (dynamic quantization) have none.
    """
    ours, theirs = pair.paired.ours, pair.paired.theirs
    values = _values_by_name(pair.reference.ir.graph)
    readers = _Readers(pair)
    stores: dict[str, Store] = {}
    for paired in pair.pairing.pairs:
        core = ours.core(values[paired.reference])
        twin = pair.paired.matches.values.get(core)
        if core in pair.paired.matches.stand_ins:
            continue  # the store belongs to the tensor that stands in
        storages = [] if twin is None else theirs.storage.get(twin, [])
        for storage in storages[:1]:
            written = _written(storage.integer)
            if written is None:
                continue
            found = [r for s in storages for r in readers.of(s.integer, s.dequantized)]
            quantization = read_quantization(written)
            assert quantization is not None
            stores[paired.reference] = Store(
                paired.reference, paired.layer, paired.node, quantization, tuple(found)
            )
    return stores


class _Readers:
    """Finds out which reference operators read a dequantized candidate value."""

    def __init__(self, pair: Pair) -> None:
        layers = pair.pairing.layers
        self.theirs: Skeleton = pair.paired.theirs
        self.twins = {theirs: ours for ours, theirs in pair.paired.matches.nodes.items()}
        self.layer_of = {n: layers[i].name for n, i in pair.paired.grouping.layer_of.items()}

    def of(self, integer: ir.Value, dequantized: ir.Value) -> list[Reader]:
        """Return who reads this value without another quantizer in between."""
        written, read = _written(integer), dequantized.producer()
        quantization = None if read is None else read_quantization(read)
        quantizer = None if written is None else read_quantization(written)
        if quantization is None or quantizer is None:
            return []
        found: list[Reader] = []
        frontier = [dequantized]
        while frontier:
            value = frontier.pop()
            if value.is_graph_output():
                found.append(Reader("", "", quantization, quantizer))
            for node in dict.fromkeys(use.node for use in value.uses()):
                if node.op_type == "QuantizeLinear":
                    continue
                twin = self.twins.get(node)
                if twin is None and node.outputs[0] in self.theirs.cores:  # copies, or changes the layout
                    frontier.append(node.outputs[0])
                    continue
                layer = "" if twin is None else self.layer_of.get(twin, "")
                name = "" if twin is None else node_name(twin)
                found.append(Reader(layer, name, quantization, quantizer))
        return found


def _values_by_name(graph: ir.Graph) -> dict[str, ir.Value]:
    values = [*graph.inputs, *(v for node in graph for v in node.outputs)]
    return {v.name or "": v for v in values}


def _written(integer: ir.Value) -> ir.Node | None:
    """Return the QuantizeLinear that makes an integer value, if its parameters are constants."""
    node = integer.producer()
    if node is None or node.op_type != "QuantizeLinear" or read_quantization(node) is None:
        return None
    return node
