"""Sample sets stored as images, made into tensors as a task file says."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import cv2
import numpy as np

from analyzers.errors import SampleError, TaskError
from analyzers.hashing import file_digest
from analyzers.records import Array, Sample, TensorSpec
from analyzers.tasks.preprocess import Preprocess, prepare, resolve

IMAGE_SUFFIXES = frozenset((".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))


def is_image(path: Path) -> bool:
    """Tell by its name whether a file is an image."""
    return path.suffix.lower() in IMAGE_SUFFIXES


class ImageSamples:
    """Images read and prepared when asked for; see ``analyzers.contracts.SampleSet``."""

    def __init__(self, folder: Path, names: tuple[str, ...], input_name: str, preprocess: Preprocess) -> None:
        self.folder = folder
        self.names = names
        self.preprocess = preprocess
        self._input = input_name

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Sample:
        """Read and prepare one image.

        Raises:
            SampleError: ``unreadable_image``.
        """
        array, box = prepare(read_image(self.folder / self.names[index]), self.preprocess)
        return Sample(self.names[index], {self._input: array}, box)

    @cached_property
    def digest(self) -> str:
        """Content hash: the images' bytes and names, and how they are made into tensors."""
        digest = hashlib.sha256(f"images\n{self._input}\n{self.preprocess}".encode())
        for name in self.names:
            digest.update(f"\n{file_digest(self.folder / name)} {name}".encode())
        return digest.hexdigest()


def read_image(path: Path) -> Array:
    """Return an image as ``(H, W, 3)`` uint8, BGR, turned upright as its EXIF data says.

    Raises:
        SampleError: ``unreadable_image``.
    """
    try:
        image = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
        cause = None
    except (OSError, cv2.error) as error:
        image, cause = None, error
    if image is None:
        raise SampleError(
            "unreadable_image",
            f"The image '{path.name}' cannot be read",
            where=str(path),
            hint="Replace or remove the file; it is damaged or no image",
        ) from cause
    return np.asarray(image)


def resolve_preprocess(
    preprocess: Preprocess | None, specs: Sequence[TensorSpec], *, where: str
) -> tuple[Preprocess, TensorSpec]:
    """Return how images become the network's input, and which input that is.

    Raises:
        SampleError: ``dynamic_size``, ``missing_input``, ``wrong_shape`` or ``wrong_dtype``.
        TaskError: ``task_missing``: nothing says how images become tensors.
    """
    if preprocess is None:
        dynamic = [s for s in specs if len(s.shape) == 4 and None in s.shape[1:]]
        if dynamic:
            raise SampleError(
                "dynamic_size",
                f"The model input '{dynamic[0].name}' has a dynamic shape, so images have no size to go to",
                where=where,
                hint="Give a task file with preprocess.size",
            )
        raise TaskError(
            "task_missing",
            "Nothing says how images become the model's input",
            where=where,
            hint="Give a task file with a 'preprocess' part (--task), or store the inputs in an .npz",
        )
    named = [s for s in specs if not preprocess.input or s.name == preprocess.input]
    if not named:
        raise SampleError(
            "wrong_input_name",
            f"The task makes the input '{preprocess.input}'; the model has no input named so (expected: "
            f"{', '.join(repr(s.name) for s in specs)})",
            where=where,
            hint="Correct preprocess.input in the task file",
        )
    if len(specs) > 1:
        others = [s.name for s in specs if s is not named[0]]
        raise SampleError(
            "missing_input",
            f"Images are one input, and the model also reads {', '.join(repr(n) for n in others)}",
            where=where,
            hint="Store all inputs in an .npz",
        )
    return resolve(preprocess, named[0], where=where), named[0]
