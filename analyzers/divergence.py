"""Where the candidate first leaves the reference."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from analyzers.records import Layer


def first_divergence(
    layers: Iterable[Layer], tensors: Mapping[str, Collection[str]], is_below: Mapping[str, bool]
) -> str | None:
    """Return the earliest layer below the threshold whose inputs are all above it.

    Args:
        layers: All layers, topological.
        tensors: Layer name -> its reference tensors that were measured, inner ones included.
        is_below: Reference tensor -> whether its pair is below the threshold. An output without a pair is
            taken to be below where an input of its layer is: trouble passes through what cannot be seen.
    """
    known = dict(is_below)
    for layer in layers:
        has_bad_input = any(known.get(tensor, False) for tensor in layer.inputs)
        if not has_bad_input and any(known.get(tensor, False) for tensor in tensors.get(layer.name, ())):
            return layer.name
        for tensor in layer.outputs:
            known.setdefault(tensor, has_bad_input)
    return None
