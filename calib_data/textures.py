"""Procedural surfaces for scene backgrounds: float32 BGR images, 0..1, any size."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]
Rng = np.random.Generator


def noise(
    rng: Rng, height: int, width: int, *, coarsest: int, octaves: int = 4, stretch: float = 1.0
) -> Image:
    """Return smooth noise, (height, width) around 0 with a standard deviation near 1.

    ``coarsest`` is the number of cells across the width in the first octave; each octave doubles it and
    halves the weight. ``stretch`` above 1 draws the cells out horizontally.
    """
    total = np.zeros((height, width), np.float32)
    weight, cells = 1.0, float(coarsest)
    for _ in range(octaves):
        rows = max(2, round(cells * height / width))
        columns = max(2, round(cells / stretch))
        grid = rng.standard_normal((rows, columns)).astype(np.float32)
        total += weight * cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC)
        weight, cells = weight * 0.6, cells * 2
    return total / np.float32(1.4)


def tint(values: Image, colour: Image, contrast: float) -> Image:
    """Return ``colour`` modulated by a noise field, (height, width, 3) in 0..1."""
    return np.clip(colour * (1 + np.float32(contrast) * values[..., None]), 0, 1)


def colour(rng: Rng, *, value: tuple[float, float], saturation: tuple[float, float]) -> Image:
    """Return a random BGR colour of a given range of brightness and saturation."""
    hue = rng.uniform(0, 360)
    hsv = np.array([[[hue, rng.uniform(*saturation), rng.uniform(*value)]]], np.float32)
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR)[0, 0], np.float32)


def plaster(rng: Rng, height: int, width: int) -> Image:
    """Return a plain wall with stains and fine grain."""
    base = colour(rng, value=(0.35, 0.9), saturation=(0.0, 0.35))
    stains = noise(rng, height, width, coarsest=3, octaves=4)
    grain = noise(rng, height, width, coarsest=120, octaves=1)
    return tint(0.7 * stains + 0.3 * grain, base, rng.uniform(0.05, 0.2))


def asphalt(rng: Rng, height: int, width: int) -> Image:
    """Return grey, grainy ground with a few darker patches."""
    base = colour(rng, value=(0.25, 0.55), saturation=(0.0, 0.1))
    field = 0.5 * noise(rng, height, width, coarsest=4, octaves=3) + noise(
        rng, height, width, coarsest=100, octaves=2
    )
    return tint(field, base, rng.uniform(0.1, 0.25))


def grass(rng: Rng, height: int, width: int) -> Image:
    """Return ground with upright fibres in greens and browns."""
    hue = rng.uniform(0.0, 1.0)
    dark = np.array([0.05, 0.25 + 0.1 * hue, 0.10 + 0.2 * (1 - hue)], np.float32)
    light = np.array([0.25, 0.65, 0.35 + 0.3 * (1 - hue)], np.float32)
    fibres = noise(rng, height, width, coarsest=90, octaves=2, stretch=0.5)
    patches = noise(rng, height, width, coarsest=4, octaves=3)
    mix = np.clip(0.45 + 0.25 * fibres + 0.2 * patches, 0, 1)[..., None]
    return dark + (light - dark) * mix


def wood(rng: Rng, height: int, width: int) -> Image:
    """Return boards with grain, their joints darker."""
    base = np.array([0.25, 0.42, 0.62], np.float32) * np.float32(rng.uniform(0.5, 1.2))
    grain = noise(rng, height, width, coarsest=40, octaves=3, stretch=8.0)
    boards = int(rng.integers(3, 9))
    rows = np.arange(height) * boards // height
    shade = rng.normal(0, 0.5, boards).astype(np.float32)[rows][:, None]
    joints = (np.arange(height) * boards % height < max(2, boards // 2)).astype(np.float32)[:, None]
    return tint(grain + shade - 3 * joints, base, rng.uniform(0.08, 0.2))


def brick(rng: Rng, height: int, width: int) -> Image:
    """Return a brick wall, or tiles where the courses are as high as wide."""
    course = int(rng.integers(12, 34))
    length = course * int(rng.integers(1, 4))
    gap = max(1, course // 10)
    y, x = np.mgrid[0:height, 0:width]
    row = y // course
    offset = (row % 2) * (length // 2) * int(length > course)
    column = (x + offset) // length
    mortar = (y % course < gap) | ((x + offset) % length < gap)
    shades = rng.normal(0, 1, (height // course + 1, width // length + 3)).astype(np.float32)
    field = shades[row, column] + 0.6 * noise(rng, height, width, coarsest=60, octaves=2)
    wall = tint(field, colour(rng, value=(0.3, 0.8), saturation=(0.05, 0.55)), rng.uniform(0.06, 0.18))
    joint = colour(rng, value=(0.4, 0.85), saturation=(0.0, 0.15))
    return np.where(mortar[..., None], joint, wall).astype(np.float32)


def foliage(rng: Rng, height: int, width: int) -> Image:
    """Return out-of-focus blotches, as a far background has them."""
    first = colour(rng, value=(0.1, 0.5), saturation=(0.1, 0.6))
    second = colour(rng, value=(0.4, 0.95), saturation=(0.05, 0.5))
    mix = np.clip(0.5 + 0.4 * noise(rng, height, width, coarsest=6, octaves=4), 0, 1)[..., None]
    return first + (second - first) * mix


WALLS: tuple[Callable[[Rng, int, int], Image], ...] = (plaster, brick, foliage, wood)
GROUNDS: tuple[Callable[[Rng, int, int], Image], ...] = (asphalt, grass, wood, brick)
