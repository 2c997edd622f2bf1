"""Write the shipped sets: ``python -m calib_data.make_scenes [FOLDER]``.

Every picture comes from its series' seed and its number, so each can be made again alone. The training script
uses other seeds and keeps its scenes in memory.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from calib_data import scenes
from calib_data.scenes import CLASS_NAMES, SIZE, Look, Scene

CROP_SIZE = 96
CROP_MARGIN = 0.12


@dataclass(frozen=True, slots=True)
class Series:
    """A set of scenes.

    Attributes:
        name: Folder and annotation file name.
        seed: Seed of the series.
        count: Number of scenes.
        look: How they are lit.
    """

    name: str
    seed: int
    count: int
    look: Look = "day"


CALIBRATION = Series("calibration", seed=11, count=100)
EVALUATION = Series("evaluation", seed=12, count=200)
DARK = Series("dark", seed=13, count=40, look="dark")
NOISE = Series("noise", seed=14, count=16)
CROPS = Series("crops", seed=15, count=100)
CROPS_CALIBRATION = Series("crops_calibration", seed=16, count=25)


def main(folder: Path) -> None:
    """Write every set below ``folder``."""
    for series in (CALIBRATION, EVALUATION, DARK):
        write_scenes(series, folder)
    write_noise(NOISE, folder)
    for series in (CROPS, CROPS_CALIBRATION):
        write_crops(series, folder)


def write_scenes(series: Series, folder: Path) -> None:
    """Write the pictures of a series as JPEG and its boxes as COCO json."""
    target = folder / series.name
    target.mkdir(parents=True, exist_ok=True)
    made = []
    for index in range(series.count):
        scene = scenes.render(series.seed, index, look=series.look)
        write_jpeg(target / file_name(index), scene.image, quality=74 + index % 4 * 6)
        made.append(scene)
    text = json.dumps(coco(made), separators=(",", ":"))
    (folder / f"{series.name}.json").write_text(text + "\n", encoding="utf-8")


def write_noise(series: Series, folder: Path) -> None:
    """Write pictures of nothing but noise: what a calibration set must not be."""
    target = folder / series.name
    target.mkdir(parents=True, exist_ok=True)
    for index in range(series.count):
        rng = np.random.default_rng([series.seed, index])
        image = rng.integers(0, 256, (SIZE, SIZE, 3)).astype(np.uint8)
        write_jpeg(target / file_name(index), image, quality=80)


def write_crops(series: Series, folder: Path) -> None:
    """Write single things cut out of scenes, and ``<file> <class index>`` lines for a classifier."""
    target = folder / series.name
    target.mkdir(parents=True, exist_ok=True)
    lines = []
    for index in range(series.count):
        scene = scenes.render(series.seed, index, look=series.look)
        for number, (image, label) in enumerate(crops(scene)):
            name = f"{index:06d}_{number}.jpg"
            write_jpeg(target / name, image, quality=85)
            lines.append(f"{name} {label}\n")
    (folder / f"{series.name}.txt").write_text("".join(lines), encoding="utf-8")


def crops(scene: Scene, *, smallest: float = 24) -> list[tuple[NDArray[np.uint8], int]]:
    """Return every thing of a scene whose longer side is at least ``smallest``, as a square of 96 pixels."""
    found = []
    for box, label in zip(scene.boxes, scene.labels, strict=True):
        side = float(max(box[2] - box[0], box[3] - box[1]))
        if side < smallest:
            continue
        reach = side * (0.5 + CROP_MARGIN)
        x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        scale = CROP_SIZE / (2 * reach)
        warp = np.array([[scale, 0, -(x - reach) * scale], [0, scale, -(y - reach) * scale]], np.float32)
        flags = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        image = cv2.warpAffine(
            scene.image, warp, (CROP_SIZE, CROP_SIZE), flags=flags, borderMode=cv2.BORDER_REFLECT_101
        )
        found.append((np.asarray(image, np.uint8), int(label)))
    return found


def coco(made: list[Scene]) -> dict[str, list[dict[str, object]]]:
    """Return the annotations of scenes in COCO's form; categories count from 1."""
    annotations: list[dict[str, object]] = []
    for index, scene in enumerate(made):
        for box, label in zip(scene.boxes.tolist(), scene.labels.tolist(), strict=True):
            width, height = box[2] - box[0], box[3] - box[1]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": index + 1,
                    "category_id": label + 1,
                    "bbox": [box[0], box[1], width, height],
                    "area": width * height,
                    "iscrowd": 0,
                }
            )
    return {
        "images": [
            {"id": index + 1, "file_name": file_name(index), "width": SIZE, "height": SIZE}
            for index in range(len(made))
        ],
        "categories": [{"id": index + 1, "name": name} for index, name in enumerate(CLASS_NAMES)],
        "annotations": annotations,
    }


def file_name(index: int) -> str:
    """Return the file name of picture ``index``; name order is number order."""
    return f"{index:06d}.jpg"


def write_jpeg(path: Path, image: NDArray[np.uint8], *, quality: int) -> None:
    """Write a picture as JPEG.

    Raises:
        OSError: It could not be written.
    """
    if not cv2.imwrite(str(path), image, [cv2.IMWRITE_JPEG_QUALITY, quality]):
        raise OSError(f"could not write {path}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
