"""Inputs that look like what networks see: pictures with colours and edges, spectra, tokens, records."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from analyzers.records import Array
from tests.faults.network import Data, Feeds

NORMALIZATIONS = {
    "unit": (1 / 255, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "imagenet": (1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "signed": (1 / 127.5, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
    "bytes": (1.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""(scale, mean, std): ``(pixels * scale - mean) / std``."""


def picture(random: Generator, height: int, width: int) -> Array:
    """Return one picture, (3, H, W) float of whole numbers 0..255: a tinted gradient, patches, grain."""
    rows, columns = np.mgrid[0:height, 0:width] / max(height, width)
    tint = random.uniform(40, 215, 3) + np.array([35.0, 0.0, -35.0])
    slope = random.uniform(-90, 90, (3, 2))
    base = tint[:, None, None] + slope[:, :1, None] * rows + slope[:, 1:, None] * columns
    for _ in range(int(random.integers(3, 7))):
        top, left = random.integers(height), random.integers(width)
        bottom, right = top + random.integers(2, height), left + random.integers(2, width)
        base[:, top:bottom, left:right] += random.uniform(-110, 110, (3, 1, 1))
    base += random.normal(size=base.shape) * random.uniform(2, 14)
    return np.asarray(np.clip(np.round(base), 0, 255))


def normalized(pixels: Array, scale: float, mean: Array, std: Array) -> Array:
    """Return a picture as a network reads it: (1, 3, H, W) float32."""
    result = (pixels * scale - mean[:, None, None]) / std[:, None, None]
    return np.asarray(result[None], np.float32)


def images(
    random: Generator,
    name: str,
    *,
    size: int | tuple[int, int],
    count: int = 8,
    calibration: int = 10,
    normalization: str | None = None,
) -> Data:
    """Return pictures."""
    height, width = (size, size) if isinstance(size, int) else size
    choice = normalization or str(random.choice(list(NORMALIZATIONS)))
    scale, mean, std = NORMALIZATIONS[choice]
    pixels = (scale, np.array(mean), np.array(std))

    def draw(number: int) -> tuple[Feeds, ...]:
        return tuple({name: normalized(picture(random, height, width), *pixels)} for _ in range(number))

    return Data(draw(count), draw(calibration), pixels)


def uneven_images(random: Generator, name: str, *, count: int = 8, calibration: int = 10) -> Data:
    """Return pictures of many sizes; those that are computed while building are of one size."""
    first = images(random, name, size=16, count=1, calibration=3)
    assert first.pixels is not None

    def draw() -> Feeds:
        height, width = (int(v) for v in random.integers(10, 29, 2))
        return {name: normalized(picture(random, height, width), *first.pixels)}  # type: ignore[misc]

    feeds = tuple(draw() for _ in range(count))
    more = tuple(draw() for _ in range(calibration - 3))
    return Data(feeds, (*first.calibration, *more), None)


def sentences(random: Generator, *, length: int, count: int = 8, calibration: int = 10) -> Data:
    """Return whole-number ids with a mask of the places that are filled."""

    def draw() -> Feeds:
        filled = int(random.integers(length // 2, length + 1))
        mask = np.arange(length) < filled
        ids = np.where(mask, random.integers(1, 40, length), 0)
        return {"ids": ids[None].astype(np.int64), "mask": mask[None]}

    return Data(tuple(draw() for _ in range(count)), tuple(draw() for _ in range(calibration)))


def spectra(
    random: Generator, name: str, *, bands: int, length: int, count: int = 8, calibration: int = 10
) -> Data:
    """Return smooth (1, bands, length) signals: a few tones with envelopes over a noise floor."""

    def draw() -> Feeds:
        time = np.arange(length) / length
        values = 0.15 * random.normal(size=(bands, length))
        for _ in range(int(random.integers(2, 5))):
            envelope = np.exp(-(((time - random.uniform()) / random.uniform(0.1, 0.5)) ** 2))
            tone = np.sin(2 * np.pi * (random.uniform(1, 9) * time + random.uniform()))
            values += np.outer(random.normal(size=bands), envelope * tone)
        return {name: values[None].astype(np.float32)}

    return Data(tuple(draw() for _ in range(count)), tuple(draw() for _ in range(calibration)))


def tokens(
    random: Generator, name: str, *, length: int, width: int, count: int = 8, calibration: int = 10
) -> Data:
    """Return (1, length, width) embeddings: a vocabulary of vectors, drawn with Zipf's law, plus position."""
    vocabulary = random.normal(size=(40, width))
    position = 0.3 * np.cumsum(random.normal(size=(length, width)), 0) / np.sqrt(length)
    frequency = 1 / np.arange(1, 41)

    def draw() -> Feeds:
        words = random.choice(40, size=length, p=frequency / frequency.sum())
        return {name: (vocabulary[words] + position)[None].astype(np.float32)}

    return Data(tuple(draw() for _ in range(count)), tuple(draw() for _ in range(calibration)))


def records(
    random: Generator, widths: dict[str, int], *, rows: int = 4, count: int = 8, calibration: int = 10
) -> Data:
    """Return tables of correlated features: one (rows, width) input per name."""
    mixing = {name: random.normal(size=(6, width)) for name, width in widths.items()}

    def draw() -> Feeds:
        hidden = random.normal(size=(rows, 6))
        return {
            name: (hidden @ m + 0.3 * random.normal(size=(rows, m.shape[1]))).astype(np.float32)
            for name, m in mixing.items()
        }

    return Data(tuple(draw() for _ in range(count)), tuple(draw() for _ in range(calibration)))
