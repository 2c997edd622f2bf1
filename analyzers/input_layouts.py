"""The ways in which an array can be laid out wrongly between two programs that feed the same picture.

Each layout can be undone: what one side was fed is brought into the arrangement that the other side has, so
that channels can then be compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.records import Array

FEW_CHANNELS = 4  # grey, colour, colour with alpha: an axis this short beside longer ones holds channels
_SHORTEST_SIDE = 3  # two axes at least this long make a picture that can be mirrored
_MOST_PERMUTED_AXES = 4

_FLIPS = {
    (): "",
    (1,): "mirrored left to right",
    (0,): "upside down",
    (0, 1): "turned by 180 degrees",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """An arrangement of the candidate's array, relative to the reference's.

    Attributes:
        words: What happened; "" where nothing did.
        cost: How far-fetched it is: of those that fit alike, the cheapest is believed.
        shape: Shape of the reference's array.
        order: Axes of the reference in the order in which the candidate's buffer holds them.
        is_reread: The buffer holds the reference's order, but was read as if it held ``order``.
        flipped: Axes of the reference along which it is reversed.
    """

    words: str
    cost: float
    shape: tuple[int, ...]
    order: tuple[int, ...]
    is_reread: bool = False
    flipped: tuple[int, ...] = ()

    def undo(self, candidate: Array) -> Array:
        """Return the candidate's array in the reference's arrangement.

        Raises:
            ValueError: The array cannot have been arranged this way.
        """
        if self.is_reread:
            straight = candidate.transpose(self.order).reshape(self.shape)
        else:
            buffer = candidate.reshape(tuple(self.shape[axis] for axis in self.order))
            straight = buffer.transpose(tuple(int(i) for i in np.argsort(self.order)))
        return np.flip(straight, self.flipped) if self.flipped else straight


def channel_axis(shape: Sequence[int]) -> int | None:
    """Return the axis that holds channels; None where an array has none."""
    rank = len(shape)
    if rank < 2:
        return None
    if rank == 2:
        return 1
    if rank == 3:
        if 1 < shape[0] <= FEW_CHANNELS < min(shape[1], shape[2]):
            return 0
        return 1 if shape[1] <= shape[2] else 2
    return rank - 1 if shape[-1] <= FEW_CHANNELS < shape[1] else 1


def layouts(reference: tuple[int, ...], candidate: tuple[int, ...]) -> Iterator[Layout]:
    """Yield the arrangements in which an array of one shape can have become one of another, once each.

    Args:
        reference: Shape of what the reference was fed.
        candidate: Shape of what the candidate was fed; as many values.
    """
    letters, images = _letters(reference)
    seen: set[tuple[object, ...]] = set()
    for order in _orders(reference, letters):
        moved = tuple(axis for axis in order if reference[axis] > 1)  # axes of length one may go anywhere
        is_given = moved == tuple(sorted(moved))
        shape = tuple(reference[axis] for axis in order)
        for is_reread in (False, True):
            if not _is_possible(reference, candidate, shape, is_given=is_given, is_reread=is_reread):
                continue
            words = (
                "" if is_given else _words(letters, order, is_reread=is_reread, is_plain=shape == candidate)
            )
            cost = 0.0 if is_given else 1.1 if is_reread else 1.0
            for flip, flip_words in _FLIPS.items():
                key = (moved, is_reread, flip)
                if key in seen or (flip and not images):
                    continue
                seen.add(key)
                yield Layout(
                    words=" and ".join(w for w in (words, flip_words) if w),
                    cost=cost + bool(flip),
                    shape=reference,
                    order=order,
                    is_reread=is_reread,
                    flipped=tuple(images[i] for i in flip),
                )


def _letters(shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Return a letter per axis, and the two axes of a picture (rows, columns) where there are such."""
    rank, channels = len(shape), channel_axis(shape)
    has_batch = rank >= 4 or (rank == 3 and channels != 0)
    spatial = [a for a in range(rank) if a != channels and not (has_batch and a == 0)]
    names = {2: "HW", 3: "DHW"}.get(len(spatial), "TUVWXYZ"[: len(spatial)])
    letters = ["N"] * rank
    if channels is not None:
        letters[channels] = "C"
    for axis, letter in zip(spatial, names, strict=False):
        letters[axis] = letter
    images = tuple(spatial[-2:]) if len(spatial) >= 2 else ()
    is_picture = len(images) == 2 and min(shape[a] for a in images) >= _SHORTEST_SIDE
    return "".join(letters), images if is_picture else ()


def _orders(shape: tuple[int, ...], letters: str) -> Iterator[tuple[int, ...]]:
    """Yield orders of the axes, the given one first; a leading batch axis stays where it is."""
    rank = len(shape)
    first = 1 if letters[:1] == "N" and rank > 2 else 0
    free = range(first, rank)
    if len(free) > _MOST_PERMUTED_AXES or rank < 2:
        yield tuple(range(rank))
        return
    for order in itertools.permutations(free):
        yield (*range(first), *order)


def _is_possible(
    reference: tuple[int, ...],
    candidate: tuple[int, ...],
    shape: tuple[int, ...],
    *,
    is_given: bool,
    is_reread: bool,
) -> bool:
    """Tell whether the candidate's shape allows an order of axes that gives the buffer this shape.

    Reading the wrong order is another fault than a transposition only where the sizes differ.
    """
    if is_reread:
        return candidate == reference and not is_given and shape != reference
    return candidate in {reference, shape}


def _words(letters: str, order: tuple[int, ...], *, is_reread: bool, is_plain: bool) -> str:
    theirs = "".join(letters[axis] for axis in order)
    if is_reread:
        return f"{letters} bytes read as {theirs}"
    if is_plain:
        swapped = {a for a, b in zip(letters, theirs, strict=True) if a != b}
        return "rows and columns swapped" if swapped == {"H", "W"} else f"{letters} transposed to {theirs}"
    return f"{theirs} bytes read as {letters}"
