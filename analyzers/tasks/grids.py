"""The grids of cells that anchor-free heads predict on."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from analyzers.records import Array, Letterbox


def cell_count(image: Letterbox, strides: tuple[int, ...]) -> int:
    """Return the number of cells of all strides over the network's input."""
    return sum((image.input_height // s) * (image.input_width // s) for s in strides)


@lru_cache(maxsize=16)
def cells(height: int, width: int, strides: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the cells of an input, stride by stride, row by row.

    Returns:
        ``(N, 2)`` column and row of each cell, and ``(N, 1)`` its stride, float64.
    """
    grids, sizes = [], []
    for stride in strides:
        columns, rows = np.meshgrid(np.arange(width // stride), np.arange(height // stride))
        grid = np.stack([columns, rows], axis=-1).reshape(-1, 2)
        grids.append(grid)
        sizes.append(np.full((len(grid), 1), stride))
    made = np.concatenate(grids).astype(np.float64), np.concatenate(sizes).astype(np.float64)
    for array in made:
        array.flags.writeable = False
    return made
