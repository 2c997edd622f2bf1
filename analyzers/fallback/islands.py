"""Where a plan leaves INT8: what each layer computes in, and the islands that its fallback layers form.

Each island is a round trip between INT8 and the fallback precision: the target has to stop, exchange tensors
and go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from analyzers.records import Layer

Side = Literal["int8", "fallback", "float", "input"]
"""What a layer computes in: "float" where the candidate does, "input" where graph inputs are only moved."""


def sides_of(layers: Sequence[Layer], fallback: frozenset[str]) -> dict[str, Side]:
    """Return what each layer computes in; those that only move values about follow their producer.

    Args:
        layers: All layers, topological.
        fallback: Names of the layers that leave INT8.
    """
    maker = _makers(layers)
    sides: dict[str, Side] = {}
    for layer in layers:
        if layer.is_pass_through:
            source = maker.get(layer.inputs[0]) if layer.inputs else None
            sides[layer.name] = "input" if source is None else sides[source]
        elif layer.name in fallback:
            sides[layer.name] = "fallback"
        else:
            sides[layer.name] = "int8" if layer.is_quantized else "float"
    return sides


def islands_of(layers: Sequence[Layer], fallback: frozenset[str]) -> tuple[tuple[str, ...], ...]:
    """Return the connected parts of the graph that a set's layers form, each topological, in order.

    Layers that take their producer's precision (Reshape, MaxPool ...) and those that the candidate leaves in
    float connect what they lie between: nothing returns to INT8 there.

    Args:
        layers: All layers, topological.
        fallback: Names of the layers that leave INT8.
    """
    maker = _makers(layers)
    sides = sides_of(layers, fallback)
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root[name] != name:
            name = root[name]
        return name

    for layer in layers:
        if sides[layer.name] not in ("fallback", "float"):
            continue
        root[layer.name] = layer.name
        read = layer.inputs[:1] if layer.is_pass_through else layer.inputs
        for source in (maker[tensor] for tensor in read if tensor in maker):
            if source in root:
                root[find(layer.name)] = find(source)
    islands: dict[str, list[str]] = {}
    for layer in layers:
        if layer.name in fallback and layer.name in root:
            islands.setdefault(find(layer.name), []).append(layer.name)
    return tuple(tuple(members) for members in islands.values())


def count_islands(layers: Sequence[Layer], fallback: frozenset[str]) -> int:
    """Return the number of connected parts of the graph that the set's layers form."""
    return len(islands_of(layers, fallback))


def _makers(layers: Sequence[Layer]) -> dict[str, str]:
    """Return tensor -> the layer that makes it."""
    return {tensor: layer.name for layer in layers for tensor in layer.outputs}
