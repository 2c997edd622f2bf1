"""Decode one sample, with a decoder of the registry or the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from analyzers.errors import TaskError
from analyzers.records import Array, Letterbox, Sample
from analyzers.tasks.decoder import Decoder
from analyzers.tasks.detections import COLUMNS
from analyzers.tasks.user_code import UserFunction


@dataclass(frozen=True, slots=True)
class SampleDecoder:
    """The decoder of a task.

    Attributes:
        decoder: The configured decoder, or a function of the user's with the same arguments.
        layout: Axes of the network's image input, for samples that are no images.
    """

    decoder: Decoder | UserFunction
    layout: str = "NCHW"

    def __call__(self, sample: Sample, outputs: Mapping[str, Array]) -> Array:
        """Return what the decoder makes of a sample's outputs.

        Raises:
            TaskError: The outputs do not suit the decoder, or the user's function failed.
        """
        image = sample.image or whole_input(sample, self.layout)
        if isinstance(self.decoder, UserFunction):
            return _run_user_decoder(self.decoder, outputs, image)
        return self.decoder(outputs, image)

    def detections(self, sample: Sample, outputs: Mapping[str, Array]) -> Array:
        """Return detections as ``(N, 6)`` float64; a user's function is checked.

        Raises:
            TaskError: As for a call; ``user_code_failed`` for a result of another shape.
        """
        found = self(sample, outputs)
        if found.size == 0:
            return np.empty((0, COLUMNS), np.float64)
        if found.ndim != 2 or found.shape[1] != COLUMNS or not np.isfinite(found).all():
            raise TaskError(
                "user_code_failed",
                f"The decoder returned an array of shape {found.shape} or with undefined values; expected "
                "(N, 6): x1, y1, x2, y2, score, class",
                hint="Correct the function that the task file names",
            )
        return found


def whole_input(sample: Sample, layout: str) -> Letterbox:
    """Return the place of an image that fills the network's input, which pixels then refer to."""
    shapes = [a.shape for a in sample.feeds.values() if a.ndim == 4]
    if not shapes:
        return Letterbox(1, 1, 1.0, 1.0, 0.0, 0.0, 1, 1)
    height, width = shapes[0][2:] if layout == "NCHW" else shapes[0][1:3]
    return Letterbox(height, width, 1.0, 1.0, 0.0, 0.0, height, width)


def _run_user_decoder(function: UserFunction, outputs: Mapping[str, Array], image: Letterbox) -> Array:
    try:
        return np.asarray(function.load()(dict(outputs), image), np.float64)
    except TaskError:
        raise
    except Exception as cause:
        raise TaskError(
            "user_code_failed",
            f"The decoder '{function.name}' failed: {type(cause).__name__}: {cause}",
            where=str(function.path),
            hint="It gets (outputs, image) and returns rows of x1, y1, x2, y2, score, class",
        ) from cause
