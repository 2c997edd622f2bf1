"""From an image to the network's input, with OpenCV's arithmetic, which detectors are trained with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import cv2
import numpy as np

from analyzers.errors import SampleError, TaskError
from analyzers.records import Array, Letterbox, TensorSpec

_INTERPOLATIONS = {
    "nearest": cv2.INTER_NEAREST,
    "linear": cv2.INTER_LINEAR,
    "area": cv2.INTER_AREA,
    "cubic": cv2.INTER_CUBIC,
}
_CONVERSIONS = {"RGB": cv2.COLOR_BGR2RGB, "GRAY": cv2.COLOR_BGR2GRAY}


@dataclass(frozen=True, slots=True)
class Preprocess:
    """The ``preprocess`` part of a task file: ``(pixel * scale - mean) / std`` after resizing.

    Attributes:
        input: The network's input for the image; "" where it has only one.
        size: Height and width in pixels; None for those of the network's input.
        resize: "stretch" to the size; "letterbox" keeps the aspect ratio and pads; "crop" keeps it and cuts.
        placement: Where a letterbox puts the image. "top-left" rounds its size down (YOLOX), "center" to the
            nearest pixel (YOLOv5 and later).
        pad_value: Pixel value around a letterboxed image, 0..255.
        crop_fraction: Share of the shorter side that "crop" keeps, 0.875 for 224 out of 256.
        interpolation: OpenCV's method of that name.
        channels: Order of the colour channels; images are stored as RGB.
        scale: Factor on the pixel values 0..255, before ``mean``.
        mean: Subtracted, one value or one per channel.
        std: Divisor, one value or one per channel.
        layout: Axes of the input.
        dtype: Type of the input; "" for the network's. Integers are rounded and saturated.
    """

    input: str = ""
    size: tuple[int, int] | None = None
    resize: Literal["stretch", "letterbox", "crop"] = "stretch"
    placement: Literal["top-left", "center"] = "center"
    pad_value: int = 114
    crop_fraction: float = 1.0
    interpolation: Literal["nearest", "linear", "area", "cubic"] = "linear"
    channels: Literal["RGB", "BGR", "GRAY"] = "RGB"
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    dtype: Literal["", "float32", "float16", "uint8", "int8"] = ""

    def __post_init__(self) -> None:
        count = self.channel_count
        rules = {
            "size": self.size is None or min(self.size) > 0,
            "pad_value": 0 <= self.pad_value <= 255,
            "crop_fraction": 0.0 < self.crop_fraction <= 1.0,
            "mean": len(self.mean) in (1, count),
            "std": len(self.std) in (1, count) and 0.0 not in self.std,
        }
        for key, is_met in rules.items():
            if not is_met:
                raise TaskError(
                    "malformed_task", f"'{key}' cannot be {getattr(self, key)!r}", where=f"preprocess.{key}"
                )

    @property
    def channel_count(self) -> int:
        """Number of colour channels."""
        return 1 if self.channels == "GRAY" else 3


def resolve(preprocess: Preprocess, spec: TensorSpec, *, where: str) -> Preprocess:
    """Return the preprocessing with the size and type that the network's input asks for.

    Raises:
        SampleError: ``dynamic_size``, ``wrong_shape`` or ``wrong_dtype``.
    """
    if len(spec.shape) != 4:
        raise _wrong_shape(preprocess, spec, where)
    batch = spec.shape[0]
    channels, height, width = (
        spec.shape[i] for i in ((1, 2, 3) if preprocess.layout == "NCHW" else (3, 1, 2))
    )
    size = preprocess.size or _static_size(height, width, spec, where)
    wanted = ((batch, 1), (channels, preprocess.channel_count), (height, size[0]), (width, size[1]))
    if any(has is not None and has != given for has, given in wanted):
        raise _wrong_shape(replace(preprocess, size=size), spec, where)
    if preprocess.dtype not in ("", spec.dtype):
        raise SampleError(
            "wrong_dtype",
            f"The task makes '{spec.name}' of type {preprocess.dtype}, the model wants {spec.dtype}",
            where=where,
            hint=f"Set preprocess.dtype to {spec.dtype} or leave it out",
        )
    if spec.dtype not in ("float32", "float16", "uint8", "int8"):
        raise SampleError(
            "wrong_dtype",
            f"Images cannot be made into '{spec.name}' of type {spec.dtype}",
            where=where,
            hint="Store the inputs in an .npz",
        )
    return replace(preprocess, size=size, dtype=spec.dtype)  # type: ignore[arg-type]


def prepare(image: Array, preprocess: Preprocess) -> tuple[Array, Letterbox]:
    """Make the network's input from an image.

    Args:
        image: ``(H, W, 3)`` uint8, BGR as OpenCV reads it.
        preprocess: With size and type resolved.

    Returns:
        The input with a batch axis of one, and where the image went in it.
    """
    assert preprocess.size is not None
    placed, box = _place(image, preprocess, preprocess.size)
    conversion = _CONVERSIONS.get(preprocess.channels)
    pixels = placed if conversion is None else cv2.cvtColor(placed, conversion)
    values = _normalize(pixels.reshape(*preprocess.size, preprocess.channel_count), preprocess)
    if preprocess.layout == "NCHW":
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values[None]), box


def _place(image: Array, preprocess: Preprocess, size: tuple[int, int]) -> tuple[Array, Letterbox]:
    height, width = image.shape[:2]
    to_height, to_width = size
    method = _INTERPOLATIONS[preprocess.interpolation]
    if preprocess.resize == "stretch":
        placed: Array = cv2.resize(image, (to_width, to_height), interpolation=method)
        return placed, Letterbox(
            height, width, to_width / width, to_height / height, 0.0, 0.0, to_height, to_width
        )
    if preprocess.resize == "letterbox":
        scale = min(to_height / height, to_width / width)
    else:
        scale = max(to_height / height, to_width / width) / preprocess.crop_fraction
    is_floor = preprocess.resize == "letterbox" and preprocess.placement == "top-left"
    rounded = math.floor if is_floor else round
    new_height, new_width = max(1, rounded(height * scale)), max(1, rounded(width * scale))
    resized = cv2.resize(image, (new_width, new_height), interpolation=method)
    if preprocess.resize == "crop":
        return _crop(resized, size, scale, image)
    top, left = (0, 0) if is_floor else (_half(to_height - new_height), _half(to_width - new_width))
    placed = np.full((to_height, to_width, 3), preprocess.pad_value, np.uint8)
    placed[top : top + new_height, left : left + new_width] = resized
    return placed, Letterbox(height, width, scale, scale, float(left), float(top), to_height, to_width)


def _crop(resized: Array, size: tuple[int, int], scale: float, image: Array) -> tuple[Array, Letterbox]:
    top, left = ((resized.shape[i] - size[i]) // 2 for i in (0, 1))
    placed = resized[top : top + size[0], left : left + size[1]]
    height, width = image.shape[:2]
    return placed, Letterbox(height, width, scale, scale, float(-left), float(-top), size[0], size[1])


def _half(space: int) -> int:
    """Half of the space, the smaller half first, as the YOLOv5 letterbox places images."""
    return round(space / 2 - 0.1)


def _normalize(pixels: Array, preprocess: Preprocess) -> Array:
    values = pixels.astype(np.float32)
    if preprocess.scale != 1.0:
        values *= np.float32(preprocess.scale)
    if any(preprocess.mean):
        values -= np.asarray(preprocess.mean, np.float32)
    if any(s != 1.0 for s in preprocess.std):
        values /= np.asarray(preprocess.std, np.float32)
    dtype = np.dtype(preprocess.dtype or "float32")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(dtype, copy=False)


def _static_size(height: int | None, width: int | None, spec: TensorSpec, where: str) -> tuple[int, int]:
    if height is None or width is None:
        raise SampleError(
            "dynamic_size",
            f"The model input '{spec.name}' has a dynamic height or width, so images have no size to go to",
            where=where,
            hint="Set preprocess.size to [height, width] in the task file",
        )
    return height, width


def _wrong_shape(preprocess: Preprocess, spec: TensorSpec, where: str) -> SampleError:
    dims = tuple(spec.shape)
    made = f"{preprocess.layout} with {preprocess.channel_count} channels, one image at a time"
    size = f" of {preprocess.size[0]} x {preprocess.size[1]}" if preprocess.size else ""
    swapped = "NHWC" if preprocess.layout == "NCHW" else "NCHW"
    axis = 3 if preprocess.layout == "NCHW" else 1
    looks_swapped = len(dims) == 4 and dims[axis] == preprocess.channel_count
    return SampleError(
        "wrong_shape",
        f"The task makes '{spec.name}' as {made}{size}; the model expected the shape {dims}",
        where=where,
        hint=f"The model reads {swapped}: set preprocess.layout"
        if looks_swapped
        else "Correct the task file",
    )
