"""Count the islands of a fallback set: each one is a round trip between the NPU and another unit."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.records import Layer


def count_islands(layers: Sequence[Layer], fallback: frozenset[str]) -> int:
    """Return the number of connected parts of the graph that the set's layers form.

    Layers that take their producer's precision (Reshape, MaxPool ...) connect what they lie between.

    Args:
        layers: All layers, topological.
        fallback: Names of the layers that leave INT8.
    """
    producer = {tensor: layer.name for layer in layers for tensor in layer.outputs}
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    for layer in layers:
        sources = [producer[t] for t in layer.inputs if t in producer]
        follows = layer.is_pass_through and bool(sources) and sources[0] in root
        if layer.name not in fallback and not follows:
            continue
        root[layer.name] = layer.name
        for source in sources[:1] if layer.is_pass_through else sources:
            if source in root:
                root[find(layer.name)] = find(source)
    return len({find(name) for name in fallback if name in root})
