"""What the user allows: which layers may, must and must not leave INT8."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.errors import InputError
from analyzers.records import Layer, SearchOptions


@dataclass(frozen=True, slots=True)
class Bounds:
    """The user's constraints, resolved to layer names in topological order.

    Attributes:
        free: Layers that may join the set or not.
        forced: Layers that are in every set.
        max_layers: Largest acceptable set.
    """

    free: tuple[str, ...]
    forced: tuple[str, ...]
    max_layers: int


def resolve(layers: Sequence[Layer], options: SearchOptions) -> Bounds:
    """Match the patterns against the layers that can leave INT8.

    Raises:
        InputError: A pattern matches nothing, a layer is both kept and forced, or the numbers cannot be met.
    """
    check_numbers(options)
    eligible = tuple(layer for layer in layers if layer.is_quantized and not layer.is_pass_through)
    kept = _matching(layers, eligible, options.keep_int8, "--keep-int8")
    forced = _matching(layers, eligible, options.force_fallback, "--force-fallback")
    both = kept & forced
    if both:
        raise InputError(
            "contradicting_constraints",
            "A layer is to be kept in INT8 and to leave it at once",
            where=", ".join(sorted(both)),
            hint="Narrow --keep-int8 or --force-fallback",
        )
    limit = len(eligible) if options.max_layers is None else options.max_layers
    if len(forced) > limit:
        raise InputError(
            "contradicting_constraints",
            f"{len(forced)} layers are forced into the set, but it may have only {limit}",
            hint="Raise --max-layers or force fewer layers",
        )
    return Bounds(
        free=tuple(layer.name for layer in eligible if layer.name not in kept | forced),
        forced=tuple(layer.name for layer in eligible if layer.name in forced),
        max_layers=limit,
    )


def check_numbers(options: SearchOptions) -> None:
    """Refuse numbers that no search can mean.

    Raises:
        InputError: Neither or both of target and max_drop, or a number out of range.
    """
    if (options.target is None) == (options.max_drop is None):
        raise InputError(
            "target_missing" if options.target is None else "target_ambiguous",
            "A search needs exactly one of a target and a largest drop",
            hint="Give --target X or --max-drop X",
        )
    checks = {
        "--target": options.target is None or math.isfinite(options.target),
        "--max-drop": options.max_drop is None or 0 <= options.max_drop < math.inf,
        "--budget": options.budget is None or options.budget > 0,
        "--max-layers": options.max_layers is None or options.max_layers >= 0,
        "--holdout": 0 <= options.holdout < 1,
        "rank_samples": options.rank_samples >= 1,
    }
    for name, is_fine in checks.items():
        if not is_fine:
            raise InputError("option_out_of_range", f"The value of {name} is out of range", where=name)


def _matching(
    layers: Sequence[Layer], eligible: Sequence[Layer], patterns: Sequence[str], option: str
) -> frozenset[str]:
    found: set[str] = set()
    for pattern in patterns:
        matches = {layer.name for layer in eligible if _is_match(layer, pattern)}
        if not matches:
            raise InputError("unknown_layer", *_nothing_matches(layers, pattern), where=f"{option} {pattern}")
        found |= matches
    return frozenset(found)


def _is_match(layer: Layer, pattern: str) -> bool:
    # A name that is spelled out wins over its meaning as a pattern: layer names may hold brackets.
    names = (layer.name, *layer.nodes)
    return pattern in names or any(fnmatch.fnmatchcase(name, pattern) for name in names)


def _nothing_matches(layers: Sequence[Layer], pattern: str) -> tuple[str]:
    if any(_is_match(layer, pattern) for layer in layers):
        return ("The pattern only matches layers that the candidate does not quantize",)
    return ("No layer or node has a name like this",)
