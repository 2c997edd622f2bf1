"""Compose one scene: a wall and a ground, things on them with shadows, then a camera."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from calib_data import objects, textures
from calib_data.objects import Sprite, Vector
from calib_data.textures import Image, Rng

SIZE = 320
CLASS_NAMES = tuple(objects.CLASSES)
Look = Literal["day", "dark"]
SMALLEST_SIDE = 8
LEAST_VISIBLE = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A rendered picture and what is in it.

    Attributes:
        image: (320, 320, 3) uint8 BGR, before any JPEG coding.
        boxes: (n, 4) float32 xyxy in pixels, around the visible part.
        labels: (n,) int64 indices into ``CLASS_NAMES``.
    """

    image: NDArray[np.uint8]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]


def render(seed: int, index: int, *, look: Look = "day") -> Scene:
    """Render scene ``index`` of the series ``seed``; equal arguments give equal scenes."""
    rng = np.random.default_rng([seed, index])
    light = light_direction(rng)
    canvas = background(rng)
    owner = np.full((SIZE, SIZE), -1, np.int32)
    full_areas: list[float] = []
    labels: list[int] = []
    for size, label in sorted(contents(rng)):
        sprite = draw(rng, size, label, light)
        left, top = place(rng, size)
        if full_areas and rng.random() < 0.2:  # put some things in front of others on purpose
            rows, columns = np.nonzero(owner >= 0)
            if len(rows):
                pick = int(rng.integers(len(rows)))
                left, top = int(columns[pick]) - size // 2, int(rows[pick]) - size // 3
        cast_shadow(rng, canvas, sprite, left, top, light)
        paste(canvas, owner, sprite, left, top, len(labels) if label >= 0 else -1)
        if label >= 0:
            labels.append(label)
            full_areas.append(float((sprite.alpha > 0.5).sum()))
    image = photograph(rng, canvas, look)
    boxes, kept = visible_boxes(owner, full_areas)
    return Scene(image, boxes, np.asarray(labels, np.int64)[kept])


def light_direction(rng: Rng) -> Vector:
    """Return a unit vector to the light, from above and in front."""
    vector = np.array([rng.uniform(-0.9, 0.9), rng.uniform(-0.9, -0.1), rng.uniform(0.4, 1.0)], np.float32)
    return vector / np.sqrt((vector * vector).sum())


def background(rng: Rng) -> Image:
    """Return a wall above a ground, with the wall out of focus and light falling off to one side."""
    wall = textures.WALLS[int(rng.integers(len(textures.WALLS)))](rng, SIZE, SIZE)
    ground = textures.GROUNDS[int(rng.integers(len(textures.GROUNDS)))](rng, SIZE, SIZE)
    wall = cv2.GaussianBlur(wall, (0, 0), rng.uniform(0.5, 3.0))
    horizon = int(rng.uniform(-0.2, 0.7) * SIZE)
    if horizon > 0:
        # The ground recedes: its far edge shows more of the texture than its near one.
        spread = rng.uniform(0.0, 0.35) * SIZE
        source = np.array([[0, 0], [SIZE, 0], [SIZE, SIZE], [0, SIZE]], np.float32)
        target = np.array(
            [[spread, horizon], [SIZE - spread, horizon], [SIZE + spread, SIZE], [-spread, SIZE]], np.float32
        )
        warp = cv2.getPerspectiveTransform(source, target)
        ground = cv2.warpPerspective(ground, warp, (SIZE, SIZE), borderMode=cv2.BORDER_REFLECT_101)
        canvas = np.concatenate([wall[:horizon], ground[horizon:]])
    else:
        canvas = ground
    x, y = objects.grid(SIZE)
    slope = rng.uniform(-0.3, 0.3, 2)
    return np.clip(canvas * (1 + slope[0] * x + slope[1] * y)[..., None], 0, 1).astype(np.float32)


def contents(rng: Rng) -> list[tuple[int, int]]:
    """Return (size in pixels, class) for all things of a scene; class -1 is clutter."""
    things = [
        (round(float(np.exp(rng.uniform(np.log(18), np.log(210))))), int(rng.integers(len(CLASS_NAMES))))
        for _ in range(int(rng.integers(2, 9)))
    ]
    clutter = [(int(rng.integers(20, 110)), -1) for _ in range(int(rng.integers(0, 4)))]
    return things + clutter


def draw(rng: Rng, size: int, label: int, light: Vector) -> Sprite:
    """Draw one thing of a class (or clutter), turned a little, at its final size."""
    if label < 0:
        painter, turn = objects.CLUTTER[int(rng.integers(len(objects.CLUTTER)))], 180.0
    else:
        name = CLASS_NAMES[label]
        painter, turn = objects.CLASSES[name], objects.TURNS[name]
    sprite = painter(rng, 2 * size, light)
    angle = rng.uniform(-turn, turn)
    if label >= 0 and CLASS_NAMES[label] == "bottle" and rng.random() < 0.25:
        angle += 90
    # Turned corners of the square are lost, so shrink by what a square of this turn needs.
    radians = np.deg2rad(abs(angle))
    needed = abs(np.cos(radians)) + abs(np.sin(radians))
    scale = 1.0 if painter in (objects.ball, objects.gear, objects.stone) else 1 / needed
    warp = cv2.getRotationMatrix2D((size - 0.5, size - 0.5), angle, scale)
    extent = (2 * size, 2 * size)
    image = cv2.warpAffine(sprite.image, warp, extent, borderMode=cv2.BORDER_REPLICATE)
    alpha = cv2.warpAffine(sprite.alpha, warp, extent)
    return Sprite(
        cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA),
        cv2.resize(alpha, (size, size), interpolation=cv2.INTER_AREA),
    )


def place(rng: Rng, size: int) -> tuple[int, int]:
    """Return the left and top of a thing; up to a fifth of it may be outside."""
    margin = size // 5
    return (
        int(rng.integers(-margin, SIZE - size + margin + 1)),
        int(rng.integers(-margin, SIZE - size + margin + 1)),
    )


def cast_shadow(rng: Rng, canvas: Image, sprite: Sprite, left: int, top: int, light: Vector) -> None:
    """Darken the canvas where the thing keeps the light away: its outline, sheared away from the light."""
    size = sprite.alpha.shape[0]
    depth = rng.uniform(0.25, 0.6)
    shear, squash = -1.2 * float(light[0]), rng.uniform(0.2, 0.45)
    bottom = top + size * 0.97
    warp = np.array([[1, shear * -1, left + shear * size], [0, squash, bottom - squash * size]], np.float32)
    shadow = cv2.warpAffine(sprite.alpha, warp, (SIZE, SIZE))
    shadow = cv2.GaussianBlur(shadow, (0, 0), 0.6 + size * 0.03)
    canvas *= 1 - np.float32(depth) * shadow[..., None]


def paste(canvas: Image, owner: NDArray[np.int32], sprite: Sprite, left: int, top: int, number: int) -> None:
    """Lay a sprite over the canvas and note whose the covered pixels are."""
    size = sprite.alpha.shape[0]
    x0, y0, x1, y1 = max(0, left), max(0, top), min(SIZE, left + size), min(SIZE, top + size)
    if x0 >= x1 or y0 >= y1:
        return
    part = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
    alpha = sprite.alpha[part][..., None]
    area = canvas[y0:y1, x0:x1]
    area += alpha * (sprite.image[part] - area)
    owner[y0:y1, x0:x1][sprite.alpha[part] > 0.5] = number


def visible_boxes(
    owner: NDArray[np.int32], full_areas: list[float]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return boxes around what can be seen of each thing, and which things count as seen."""
    boxes, kept = [], np.zeros(len(full_areas), bool)
    for number, area in enumerate(full_areas):
        mask = owner == number
        seen = int(mask.sum())
        if seen < max(LEAST_VISIBLE * area, 1):
            continue
        columns, rows = np.nonzero(mask.any(0))[0], np.nonzero(mask.any(1))[0]
        box = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
        if min(box[2] - box[0], box[3] - box[1]) < SMALLEST_SIDE:
            continue
        boxes.append(box)
        kept[number] = True
    return np.asarray(boxes, np.float32).reshape(-1, 4), kept


def photograph(rng: Rng, canvas: Image, look: Look) -> NDArray[np.uint8]:
    """Return what a cheap camera makes of it: white balance, exposure, vignette, blur, noise, 8 bits."""
    x, y = objects.grid(SIZE)
    balance = rng.uniform(0.85, 1.15, 3).astype(np.float32)
    exposure = rng.uniform(0.65, 1.25)
    vignette = 1 - rng.uniform(0, 0.3) * (x * x + y * y)
    blur, motion = rng.uniform(0, 1.1), rng.random()
    grain = rng.uniform(0.004, 0.03)
    if look == "dark":
        balance *= np.array([1.25, 1.0, 0.8], np.float32)
        exposure, grain = exposure * rng.uniform(0.1, 0.28), grain + 0.012
    picture = canvas * (balance * np.float32(exposure)) * vignette[..., None].astype(np.float32)
    if motion < 0.15:
        length = int(rng.integers(2, 6))
        kernel = np.zeros((length, length), np.float32)
        cv2.line(kernel, (0, int(rng.integers(length))), (length - 1, int(rng.integers(length))), 1.0)
        picture = cv2.filter2D(picture, -1, kernel / kernel.sum())
    elif blur > 0.3:
        picture = cv2.GaussianBlur(picture, (0, 0), blur)
    shot = np.sqrt(np.clip(picture, 0, 1)) * np.float32(grain) + np.float32(grain / 3)
    picture = picture + shot * rng.standard_normal(picture.shape, np.float32)
    return np.clip(np.rint(picture * 255), 0, 255).astype(np.uint8)
