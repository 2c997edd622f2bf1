"""The things in a scene, each drawn with its own shading on a transparent square.

Coordinates run from -1 (left, top) to 1 (right, bottom). Sprites are drawn at twice their size and reduced,
which smooths their edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from calib_data import textures
from calib_data.textures import Image, Rng

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Sprite:
    """A drawn thing.

    Attributes:
        image: (S, S, 3) float32 BGR, 0..1, not multiplied by alpha.
        alpha: (S, S) float32 coverage, 0..1.
    """

    image: Image
    alpha: Image


Painter = Callable[[Rng, int, Vector], Sprite]


def grid(size: int) -> tuple[Image, Image]:
    """Return x and y at the pixel centres of a square sprite."""
    line = ((np.arange(size, dtype=np.float32) + 0.5) * 2 / size - 1).astype(np.float32)
    return np.meshgrid(line, line)[0], np.meshgrid(line, line)[1]


def shade(base: Image, normal: Image, light: Vector, *, gloss: float, ambient: float = 0.35) -> Image:
    """Return a colour lit by Lambert's law plus a Blinn-Phong highlight.

    Source: J. F. Blinn, "Models of light reflection for computer synthesized pictures", 1977.
    """
    lambert = np.clip((normal * light).sum(-1), 0, 1)[..., None]
    half = light + np.array([0, 0, 1], np.float32)
    half = half / np.sqrt((half * half).sum())
    highlight = np.clip((normal * half).sum(-1), 0, 1)[..., None] ** 40
    return np.clip(base * (ambient + (1 - ambient) * lambert) + np.float32(gloss) * highlight, 0, 1)


def round_normal(x: Image, half_width: Image) -> Image:
    """Return the normals of an upright solid of revolution with the given half width per pixel."""
    across = np.clip(x / np.maximum(half_width, 1e-3), -1, 1)
    return np.stack([across, np.zeros_like(across), np.sqrt(1 - across * across)], -1)


def ball(rng: Rng, size: int, light: Vector) -> Sprite:
    """Draw a sphere with stripes or panels in two colours."""
    x, y = grid(size)
    z = np.sqrt(np.clip(1 - x * x - y * y, 0, 1))
    normal = np.stack([x, y, z], -1)
    axis = rng.standard_normal((2, 3)).astype(np.float32)
    axis /= np.sqrt((axis * axis).sum(1, keepdims=True))
    first = (normal * axis[0]).sum(-1)
    second = (normal * axis[1]).sum(-1)
    count = rng.uniform(2.0, 5.0)
    pattern = np.sin(count * first) * (np.sin(count * second) if rng.random() < 0.5 else np.float32(1))
    main = textures.colour(rng, value=(0.55, 1.0), saturation=(0.5, 1.0))
    other = textures.colour(rng, value=(0.75, 1.0), saturation=(0.0, 0.5))
    mix = np.clip(0.5 + 12 * pattern, 0, 1)[..., None].astype(np.float32)
    image = shade(main + (other - main) * mix, normal, light, gloss=rng.uniform(0.1, 0.6))
    return Sprite(image, (x * x + y * y < 1).astype(np.float32))


def cone(rng: Rng, size: int, light: Vector) -> Sprite:
    """Draw a traffic cone: a tapered body with pale bands on a flat foot."""
    x, y = grid(size)
    top, bottom = rng.uniform(0.05, 0.1), rng.uniform(0.34, 0.5)
    half = (top + (bottom - top) * (y + 1) / 1.8).astype(np.float32)
    body = (np.abs(x) < half) & (y < 0.8)
    foot_half = min(0.95, bottom + rng.uniform(0.12, 0.3))
    foot = (np.abs(x) < foot_half + 0.08 * (y - 0.8)) & (y > 0.74) & (y < 0.98)
    hue = rng.choice(3, p=[0.6, 0.2, 0.2])
    main = np.array([[0.05, 0.35, 0.95], [0.08, 0.1, 0.85], [0.1, 0.75, 0.95]][hue], np.float32)
    start, width = rng.uniform(-0.5, -0.2), rng.uniform(0.16, 0.3)
    bands = np.zeros_like(body)
    for offset in range(int(rng.integers(1, 3))):
        low = start + offset * 2 * width
        bands |= (y > low) & (y < low + width)
    base = np.where(bands[..., None], np.float32(0.92), main).astype(np.float32)
    image = shade(base, round_normal(x, half), light, gloss=0.2)
    flat = main * np.float32(0.55 + 0.3 * max(0.0, -float(light[1])))
    image = np.where((foot & ~body)[..., None], flat, image).astype(np.float32)
    return Sprite(image, (body | foot).astype(np.float32))


def planks(rng: Rng, size: int) -> Image:
    """Draw one face of a crate: boards in a frame, sometimes with a diagonal brace."""
    face = textures.wood(rng, size, size)
    line = np.arange(size) / size
    y, x = np.meshgrid(line, line, indexing="ij")
    edge = rng.uniform(0.08, 0.14)
    frame = (x < edge) | (x > 1 - edge) | (y < edge) | (y > 1 - edge)
    if rng.random() < 0.7:
        frame |= np.abs(x - y) < edge * 0.9
    seam = np.abs(np.minimum(np.minimum(x, 1 - x), np.minimum(y, 1 - y)) - edge) < 0.02
    face = np.where(frame[..., None], face * np.float32(1.25) + np.float32(0.03), face * np.float32(0.8))
    return np.clip(np.where(seam[..., None], face * np.float32(0.45), face), 0, 1).astype(np.float32)


def crate(rng: Rng, size: int, light: Vector) -> Sprite:
    """Draw a wooden box seen from slightly above, two sides and the lid visible."""
    yaw, pitch = rng.uniform(0.25, 1.3), rng.uniform(0.15, 0.6)
    tall = rng.uniform(0.7, 1.1)
    corners = np.array([[a, b, c] for a in (-1, 1) for b in (-tall, tall) for c in (-1, 1)], np.float32)
    turn = np.array([[np.cos(yaw), 0, np.sin(yaw)], [0, 1, 0], [-np.sin(yaw), 0, np.cos(yaw)]], np.float32)
    nod = np.array(
        [[1, 0, 0], [0, np.cos(pitch), -np.sin(pitch)], [0, np.sin(pitch), np.cos(pitch)]], np.float32
    )
    spun = (corners[:, None, :] * turn[None]).sum(-1)
    spun = (spun[:, None, :] * nod[None]).sum(-1)
    flat = spun[:, :2] / (1 + 0.12 * spun[:, 2:])
    flat = flat / np.abs(flat).max() * 0.98
    pixels = ((flat + 1) * size / 2).astype(np.float32)
    image, alpha = np.zeros((size, size, 3), np.float32), np.zeros((size, size), np.float32)
    resolution = 64
    square = np.array([[0, 0], [resolution, 0], [resolution, resolution], [0, resolution]], np.float32)
    tone = textures.colour(rng, value=(0.75, 1.0), saturation=(0.0, 0.35))
    # Corner order per face: across, then down. Faces looking away from the viewer wind the other way round.
    for face, normal in (
        ((0, 4, 6, 2), (0, 0, -1)),
        ((5, 1, 3, 7), (0, 0, 1)),
        ((1, 0, 2, 3), (-1, 0, 0)),
        ((4, 5, 7, 6), (1, 0, 0)),
        ((1, 5, 4, 0), (0, -1, 0)),
    ):
        quad = pixels[list(face)]
        (ax, ay), (bx, by) = quad[1] - quad[0], quad[3] - quad[0]
        texture = planks(rng, resolution) * tone
        if ax * by - ay * bx <= 0:
            continue
        warp = cv2.getPerspectiveTransform(square, quad)
        turned = (np.array(normal, np.float32)[None, :] * turn).sum(-1)
        turned = (turned[None, :] * nod).sum(-1) * np.array([1, 1, -1], np.float32)
        lit = np.float32(0.4 + 0.6 * max(0.0, float((turned * light).sum())))
        painted = cv2.warpPerspective(texture * lit, warp, (size, size), borderMode=cv2.BORDER_REPLICATE)
        cover = np.zeros((size, size), np.uint8)
        cv2.fillConvexPoly(cover, np.round(quad * 16).astype(np.int32), 1, shift=4)
        image = np.where(cover[..., None] > 0, painted, image)
        alpha = np.maximum(alpha, cover.astype(np.float32))
    return Sprite(np.clip(image, 0, 1), alpha)


def bottle(rng: Rng, size: int, light: Vector) -> Sprite:
    """Draw a bottle: neck, shoulder, body, cap and label."""
    x, y = grid(size)
    body, neck = rng.uniform(0.24, 0.36), rng.uniform(0.07, 0.12)
    shoulder, slope = rng.uniform(-0.45, -0.1), rng.uniform(6, 14)
    half = (neck + (body - neck) / (1 + np.exp(-slope * (y - shoulder)))).astype(np.float32)
    half = half * np.where(y > 0.93, 1 - 2 * (y - 0.93), 1).astype(np.float32)
    inside = (np.abs(x) < half) & (np.abs(y) < 0.99)
    glass = textures.colour(rng, value=(0.2, 0.75), saturation=(0.3, 0.9))
    base = np.broadcast_to(glass, (size, size, 3)).copy()
    label_top = rng.uniform(shoulder + 0.25, 0.45)
    label = (y > label_top) & (y < label_top + rng.uniform(0.25, 0.5))
    paper = textures.colour(rng, value=(0.7, 1.0), saturation=(0.0, 0.5))
    lines = np.sin(y * rng.uniform(20, 45) + 2 * np.sin(6 * x)) > 0.3
    base[label] = paper
    base[label & lines & (np.abs(x) < body * 0.7)] = paper * np.float32(0.45)
    base[y < -0.84] = textures.colour(rng, value=(0.4, 1.0), saturation=(0.0, 1.0))
    image = shade(base, round_normal(x, half), light, gloss=rng.uniform(0.3, 0.8), ambient=0.3)
    clear = rng.uniform(0.75, 1.0)
    alpha = np.where(label | (y < -0.84), 1.0, clear).astype(np.float32)
    return Sprite(image, inside * alpha)


def sign(rng: Rng, size: int, light: Vector) -> Sprite:
    """Draw a board on a pole: triangle, octagon, disc, diamond or rectangle with a border and a mark."""
    x, y = grid(size)
    radius = rng.uniform(0.42, 0.55)
    centre = -1 + radius * 1.03
    v = y - np.float32(centre)
    shape = int(rng.integers(5))
    if shape == 0:
        distance = np.maximum(1.7 * np.abs(x) * 0.55 - v * 0.5 + 0.0, v * 1.25)
    elif shape == 1:
        distance = np.maximum(np.maximum(np.abs(x), np.abs(v)), (np.abs(x) + np.abs(v)) * 0.7071)
    elif shape == 2:
        distance = np.sqrt(x * x + v * v)
    elif shape == 3:
        distance = np.abs(x) + np.abs(v)
    else:
        distance = np.maximum(np.abs(x), np.abs(v) * rng.uniform(1.0, 1.4))
    board = distance < radius
    border = board & (distance > radius * rng.uniform(0.72, 0.88))
    scheme = int(rng.integers(4))
    field = np.array(
        [[0.95, 0.95, 0.95], [0.1, 0.1, 0.8], [0.7, 0.3, 0.1], [0.1, 0.8, 0.95]][scheme], np.float32
    )
    rim = np.array(
        [[0.1, 0.1, 0.85], [0.95, 0.95, 0.95], [0.95, 0.95, 0.95], [0.05, 0.05, 0.05]][scheme], np.float32
    )
    ink = np.array(
        [[0.1, 0.1, 0.1], [0.95, 0.95, 0.95], [0.95, 0.95, 0.95], [0.1, 0.1, 0.1]][scheme], np.float32
    )
    angle = rng.uniform(0, np.pi)
    along, across = x * np.cos(angle) + v * np.sin(angle), v * np.cos(angle) - x * np.sin(angle)
    mark = (np.abs(across) < 0.16 * radius) & (np.abs(along) < 0.5 * radius)
    if rng.random() < 0.5:
        mark |= (np.abs(along - 0.35 * radius) < 0.13 * radius) & (np.abs(across) < 0.42 * radius)
    image = np.broadcast_to(np.float32(0.55), (size, size, 3)).copy()
    pole = (np.abs(x) < rng.uniform(0.03, 0.06)) & (y > centre)
    image *= np.where(x > 0.01, 0.7, 1.0)[..., None].astype(np.float32)
    facing = np.float32(0.5 + 0.5 * float(light[2]))
    image[board] = field * facing
    image[border] = rim * facing
    image[board & ~border & mark] = ink * facing
    return Sprite(image, (board | pole).astype(np.float32))


def gear(rng: Rng, size: int, light: Vector) -> Sprite:
    """Draw a toothed metal wheel, tilted, with a bore and sometimes holes."""
    x, y = grid(size)
    tilt, turn = rng.uniform(0.6, 1.0), rng.uniform(0, np.pi)
    u = x * np.cos(turn) + y * np.sin(turn)
    v = (y * np.cos(turn) - x * np.sin(turn)) / tilt
    teeth, depth = int(rng.integers(8, 15)), rng.uniform(0.14, 0.24)
    bore, holes = rng.uniform(0.16, 0.34), int(rng.integers(0, 2)) * int(rng.integers(3, 7))

    def cover(u: Image, v: Image) -> NDArray[np.bool_]:
        radius, angle = np.sqrt(u * u + v * v), np.arctan2(v, u)
        rim = 0.97 - depth * np.clip(0.5 + 2.5 * np.sin(teeth * angle), 0, 1)
        inside = (radius < rim) & (radius > bore)
        if holes:
            wave = np.cos(holes * angle)
            inside &= ~((np.abs(radius - (bore + 0.78 - depth) / 2 - 0.08) < 0.1) & (wave > 0.45))
        return inside

    face = cover(u, v)
    side = cover(u, v - np.float32(0.16 * np.sqrt(1 - tilt * tilt) + 0.02)) & ~face
    radius, angle = np.sqrt(u * u + v * v), np.arctan2(v, u)
    metal = textures.colour(rng, value=(0.55, 0.85), saturation=(0.0, 0.45))
    brushed = 0.75 + 0.22 * np.cos(2 * (angle + rng.uniform(0, np.pi))) + 0.05 * np.sin(40 * radius)
    ring = np.where(np.abs(radius - bore - 0.08) < 0.03, 0.7, 1.0)
    lit = np.float32(0.4 + 0.6 * max(0.0, float(light[2])))
    image = metal * (brushed * ring * lit)[..., None].astype(np.float32)
    image = np.where(side[..., None], metal * np.float32(0.3), image)
    return Sprite(np.clip(image, 0, 1).astype(np.float32), (face | side).astype(np.float32))


def stone(rng: Rng, size: int, light: Vector) -> Sprite:
    """Draw a lump of no class: something to hide behind and to be mistaken."""
    x, y = grid(size)
    angle = np.arctan2(y, x)
    rim = 0.8 + sum(
        rng.uniform(0.0, 0.09) * np.sin(k * angle + rng.uniform(0, 2 * np.pi)) for k in range(2, 6)
    )
    squeeze = rng.uniform(0.5, 1.0)
    radius = np.sqrt(x * x + (y / squeeze) ** 2) / rim
    z = np.sqrt(np.clip(1 - radius * radius, 0, 1))
    normal = np.stack([x, y, z], -1).astype(np.float32)
    field = textures.noise(rng, size, size, coarsest=6, octaves=3)
    base = textures.tint(field, textures.colour(rng, value=(0.2, 0.8), saturation=(0.0, 0.5)), 0.15)
    return Sprite(shade(base, normal, light, gloss=0.0), (radius < 1).astype(np.float32))


def stick(rng: Rng, size: int, light: Vector) -> Sprite:
    """Draw a thin round bar of no class."""
    x, y = grid(size)
    half = np.full_like(x, rng.uniform(0.03, 0.09))
    base = np.broadcast_to(textures.colour(rng, value=(0.2, 0.8), saturation=(0.0, 0.6)), (size, size, 3))
    image = shade(base.astype(np.float32), round_normal(x, half), light, gloss=0.2)
    return Sprite(image, ((np.abs(x) < half) & (np.abs(y) < 0.97)).astype(np.float32))


CLASSES: dict[str, Painter] = {
    "cone": cone,
    "ball": ball,
    "crate": crate,
    "bottle": bottle,
    "sign": sign,
    "gear": gear,
}
CLUTTER: tuple[Painter, ...] = (stone, stick)
# Largest turn in degrees from upright; bottles may lie.
TURNS: dict[str, float] = {"cone": 12, "ball": 180, "crate": 6, "bottle": 14, "sign": 8, "gear": 180}
