"""Generated network outputs and places of images, for all decoders."""

from __future__ import annotations

import numpy as np

from analyzers.records import Array, Letterbox

# An input of 64 x 96 (height x width) that holds an image of 50 x 80, shrunk and padded on all sides.
IMAGE = Letterbox(50, 80, 1.1, 1.2, 4.0, 2.0, 64, 96)


def uniform(shape: tuple[int, ...], low: float, high: float, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def slow_cells(strides: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Column, row and stride of each cell over the input of ``IMAGE``."""
    return [
        (column, row, stride)
        for stride in strides
        for row in range(IMAGE.input_height // stride)
        for column in range(IMAGE.input_width // stride)
    ]
