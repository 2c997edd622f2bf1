"""Read COCO annotations into arrays, from files that nobody vouches for."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from analyzers.errors import TaskError
from analyzers.records import Notice

_MAX_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class AnnotatedImage:
    """An image of the annotations; sizes are 0 where the file gives none."""

    id: int
    name: str
    width: int
    height: int


@dataclass(frozen=True, slots=True, eq=False)
class Annotations:
    """Ground truth of a set of images.

    Attributes:
        path: The file.
        images: In the order of the file.
        categories: Category id -> name.
        ids: ``(N,)`` annotation ids.
        image_ids: ``(N,)``.
        category_ids: ``(N,)``.
        boxes: ``(N, 4)`` x, y, width, height in image pixels.
        areas: ``(N,)`` in square pixels, of the object and not of its box where the file says so.
        is_crowd: ``(N,)``: detections on these count neither as right nor as wrong.
    """

    path: Path
    images: tuple[AnnotatedImage, ...]
    categories: dict[int, str]
    ids: NDArray[np.int64]
    image_ids: NDArray[np.int64]
    category_ids: NDArray[np.int64]
    boxes: NDArray[np.float64]
    areas: NDArray[np.float64]
    is_crowd: NDArray[np.bool_]


def read_annotations(path: Path) -> Annotations:
    """Read a COCO json.

    Raises:
        TaskError: ``file_absent``, ``malformed_annotations``, or ``category_unknown`` for an annotation whose
            category the file does not list.
    """
    root = _read_json(path)
    if not isinstance(root, dict) or any(not isinstance(root.get(k), list) for k in _LISTS):
        raise _malformed(path, f"it has to be a mapping with the lists {', '.join(_LISTS)}")
    images = tuple(_image(item, path) for item in root["images"])
    categories = {}
    for item in root["categories"]:
        number = _integer(item, "id", "category", path)
        categories[number] = str(item.get("name", number))
    known = {image.id for image in images}
    for kind, count, ids in (
        ("images", len(images), known),
        ("categories", len(root["categories"]), set(categories)),
    ):
        if len(ids) != count:
            raise _malformed(path, f"two {kind} have one id")
    rows = [_annotation(item, known, path) for item in root["annotations"]]
    if len({r.id for r in rows}) != len(rows):
        raise _malformed(path, "two annotations have one id")
    foreign = sorted({r.category for r in rows} - set(categories))
    if foreign:
        raise TaskError(
            "category_unknown",
            f"Annotations have the category ids {_some(foreign)}, which the file's 'categories' do not list",
            where=str(path),
            hint="Add them to 'categories' or remove the annotations",
        )
    return Annotations(
        path=path,
        images=images,
        categories=categories,
        ids=np.array([r.id for r in rows], np.int64),
        image_ids=np.array([r.image for r in rows], np.int64),
        category_ids=np.array([r.category for r in rows], np.int64),
        boxes=np.array([r.box for r in rows], np.float64).reshape(-1, 4),
        areas=np.array([r.area for r in rows], np.float64),
        is_crowd=np.array([r.is_crowd for r in rows], np.bool_),
    )


def match_images(
    annotations: Annotations, names: Sequence[str]
) -> tuple[dict[str, AnnotatedImage], tuple[Notice, ...]]:
    """Find the annotated image of each sample: by its name, else by its file name where that is unique.

    Returns:
        Sample name -> image, and a notice about samples that the annotations do not know.

    Raises:
        TaskError: ``annotations_match_no_image``.
    """
    by_name = _unique((image.name, image) for image in annotations.images)
    by_file = _unique((PurePosixPath(image.name).name, image) for image in annotations.images)
    found: dict[str, AnnotatedImage] = {}
    for name in names:
        image = by_name.get(name) or by_file.get(PurePosixPath(name).name)
        if image is not None:
            found[name] = image
    if not found:
        example = annotations.images[0].name if annotations.images else "none"
        raise TaskError(
            "annotations_match_no_image",
            f"The annotations match no image of the set: they name '{example}', the set holds '{names[0]}'",
            where=str(annotations.path),
            hint="Use the annotations of these images; 'file_name' has to be the name of the image file",
        )
    if len({image.id for image in found.values()}) != len(found):
        raise TaskError(
            "malformed_annotations",
            "Two samples of the set have the same annotated image",
            where=str(annotations.path),
            hint="Use paths in 'file_name' where file names repeat",
        )
    unknown = [n for n in names if n not in found]
    if not unknown:
        return found, ()
    count = f"{len(unknown)} of {len(names)} images"
    text = f"{count} are not in the annotations and are not scored: {_some(unknown)}"
    return found, (Notice("images_without_annotations", text, str(annotations.path)),)


def class_categories(
    annotations: Annotations, categories: tuple[tuple[int, int], ...] | None, classes: int | None
) -> dict[int, int]:
    """Return the category id of each class index.

    Args:
        annotations: The ground truth.
        categories: What the task file says; None for the annotations' ids in order.
        classes: Number of classes of the network, where the task says it.

    Raises:
        TaskError: ``category_unknown``: the classes and the categories do not go together.
    """
    hint = "Give the category id of each class under 'categories' in the task file"
    if categories is None:
        ids = sorted(annotations.categories)
        if classes is not None and classes != len(ids):
            raise TaskError(
                "category_unknown",
                f"The network has {classes} classes and the annotations list {len(ids)} categories",
                where=str(annotations.path),
                hint=hint,
            )
        return dict(enumerate(ids))
    mapped = dict(categories)
    outside = sorted(set(annotations.category_ids.tolist()) - set(mapped.values()))
    if outside:
        raise TaskError(
            "category_unknown",
            f"Annotations have the category ids {_some(outside)}, which are outside the task's classes",
            where=str(annotations.path),
            hint=hint,
        )
    if classes is not None and max(mapped) >= classes:
        raise TaskError(
            "category_unknown",
            f"'categories' names class {max(mapped)}, the network has {classes} classes",
            where=str(annotations.path),
            hint=hint,
        )
    return mapped


@dataclass(frozen=True, slots=True)
class _Row:
    id: int
    image: int
    category: int
    box: tuple[float, ...]
    area: float
    is_crowd: bool


_LISTS = ("images", "annotations", "categories")


def _read_json(path: Path) -> object:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"it is larger than {_MAX_BYTES} bytes")
        value: object = json.loads(path.read_bytes())
    except FileNotFoundError as cause:
        raise TaskError("file_absent", "There is no such annotation file", where=str(path)) from cause
    except (OSError, ValueError, RecursionError) as cause:
        raise _malformed(path, f"it is no JSON ({cause})") from cause
    return value


def _image(item: object, path: Path) -> AnnotatedImage:
    number = _integer(item, "id", "image", path)
    assert isinstance(item, dict)
    name = item.get("file_name")
    if not isinstance(name, str) or not name:
        raise _malformed(path, f"image {number} has no 'file_name'")
    sizes = [item.get(k) for k in ("width", "height")]
    width, height = (int(s) if isinstance(s, int | float) and math.isfinite(s) else 0 for s in sizes)
    return AnnotatedImage(number, name, width, height)


def _annotation(item: object, images: set[int], path: Path) -> _Row:
    number = _integer(item, "id", "annotation", path)
    assert isinstance(item, dict)
    image = _integer(item, "image_id", f"annotation {number}:", path)
    if image not in images:
        raise _malformed(path, f"annotation {number} belongs to image {image}, which 'images' does not list")
    box = item.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(_is_number(v) for v in box):
        raise _malformed(path, f"annotation {number} has no 'bbox' of four numbers [x, y, width, height]")
    if box[2] < 0 or box[3] < 0:
        raise _malformed(path, f"annotation {number} has a 'bbox' of negative size {box}")
    area = item.get("area")
    return _Row(
        id=number,
        image=image,
        category=_integer(item, "category_id", f"annotation {number}:", path),
        box=tuple(float(v) for v in box),
        area=float(area) if isinstance(area, int | float) and _is_number(area) else float(box[2] * box[3]),
        is_crowd=bool(item.get("iscrowd", 0)),
    )


def _integer(item: object, key: str, what: str, path: Path) -> int:
    value = item.get(key) if isinstance(item, dict) else None
    if type(value) is not int or abs(value) >= 1 << 62:
        raise _malformed(path, f"{what} without a whole number '{key}'")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _unique(pairs: Iterable[tuple[str, AnnotatedImage]]) -> dict[str, AnnotatedImage]:
    found: dict[str, AnnotatedImage | None] = {}
    for name, image in pairs:
        found[name] = None if name in found else image
    return {name: image for name, image in found.items() if image is not None}


def _some(values: Sequence[object]) -> str:
    return ", ".join(str(v) for v in values[:5]) + (", ..." if len(values) > 5 else "")


def _malformed(path: Path, what: str) -> TaskError:
    return TaskError(
        "malformed_annotations",
        f"The annotations cannot be used: {what}",
        where=str(path),
        hint="Give a COCO json with 'images', 'annotations' and 'categories'",
    )
