"""Delta debugging: shrink a set that is enough to one of which every member is needed.

Source: A. Zeller, R. Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE Transactions on
Software Engineering 28(2), 2002, algorithm ddmin.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from analyzers.steps import Steps


def minimize(
    items: Sequence[str], is_enough: Callable[[frozenset[str]], Steps[bool]], *, try_parts: bool = True
) -> Steps[tuple[str, ...]]:
    """Return a 1-minimal subset of ``items`` that is enough: taking out any one member is not.

    Args:
        items: A set that is enough, in the order in which members should be given up.
        is_enough: The test; asked about a set more than once, so it should remember its answers. The empty
            set is never asked about.
        try_parts: Also ask whether a small part alone is enough. Pays where few of many items matter.

    Returns:
        The members that stay, in the order of ``items``.
    """
    kept = tuple(items)
    parts = 2
    while len(kept) > 1:
        parts = min(parts, len(kept))
        chunks = _chunks(kept, parts)
        smaller = yield from _first_enough(kept, chunks, is_enough, try_parts=try_parts)
        if smaller is not None:
            # A chunk alone is split afresh; after giving up a chunk, the remaining ones stay as they are.
            parts = 2 if smaller in chunks else max(parts - 1, 2)
            kept = smaller
        elif parts == len(kept):
            break
        else:
            parts *= 2
    return kept


def _first_enough(
    kept: tuple[str, ...],
    chunks: Sequence[tuple[str, ...]],
    is_enough: Callable[[frozenset[str]], Steps[bool]],
    *,
    try_parts: bool,
) -> Steps[tuple[str, ...] | None]:
    """Return the first chunk, then the first complement of a chunk, that is enough; None if there is none."""
    if try_parts:
        for chunk in reversed(chunks):
            if (yield from is_enough(frozenset(chunk))):
                return chunk
    for chunk in chunks:
        rest = tuple(item for item in kept if item not in chunk)
        if (yield from is_enough(frozenset(rest))):
            return rest
    return None


def _chunks(items: tuple[str, ...], parts: int) -> list[tuple[str, ...]]:
    """Cut into ``parts`` runs whose lengths differ by one at most, longer ones first."""
    size, longer = divmod(len(items), parts)
    bounds = [0]
    for index in range(parts):
        bounds.append(bounds[-1] + size + (1 if index < longer else 0))
    return [items[start:stop] for start, stop in itertools.pairwise(bounds)]
