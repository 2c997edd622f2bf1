"""What every decoder is: a record of its options that turns outputs into detections when called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from analyzers.errors import TaskError
from analyzers.records import Array, Letterbox


class Decoder(Protocol):
    """Turns the outputs of one sample into detections."""

    def __call__(self, outputs: Mapping[str, Array], image: Letterbox, /) -> Array:
        """Return the detections of one image.

        Args:
            outputs: Output name -> array, with a batch axis of one.
            image: Where the image is in the network's input.

        Returns:
            ``(N, 6)`` float64, best first: x1, y1, x2, y2 in image pixels, score, class index from 0.

        Raises:
            TaskError: ``output_missing`` or ``wrong_output_shape``.
        """
        ...


@dataclass(frozen=True, slots=True)
class DecoderKind:
    """A decoder of the registry.

    Attributes:
        name: Its name in task files.
        options: The record that is made from the task file's keys.
    """

    name: str
    options: type[Decoder]


def check_limits(score_threshold: float, nms_iou: float, max_detections: int) -> None:
    """Check the options that all decoders share.

    Raises:
        TaskError: ``malformed_task``.
    """
    rules = {
        "score_threshold": (score_threshold, 0.0 <= score_threshold < 1.0, "at least 0 and less than 1"),
        "nms_iou": (nms_iou, 0.0 < nms_iou <= 1.0, "more than 0 and at most 1"),
        "max_detections": (max_detections, max_detections > 0, "more than 0"),
    }
    for key, (value, is_met, rule) in rules.items():
        if not is_met:
            raise TaskError(
                "malformed_task", f"'{key}' has to be {rule}, not {value}", where=f"decoder.{key}"
            )


def check_strides(strides: tuple[int, ...]) -> None:
    """Check the sizes of the grids' cells.

    Raises:
        TaskError: ``malformed_task``.
    """
    if min(strides) < 1:
        raise TaskError(
            "malformed_task", f"'strides' has to be positive, not {strides}", where="decoder.strides"
        )


def find_output(outputs: Mapping[str, Array], name: str, *, decoder: str) -> Array:
    """Return an output by name; "" is the only output.

    Raises:
        TaskError: ``output_missing``.
    """
    if name in outputs:
        return outputs[name]
    if not name and len(outputs) == 1:
        return next(iter(outputs.values()))
    listed = ", ".join(f"'{n}'" for n in outputs)
    wanted = f"the output '{name}'" if name else "the name of one output"
    raise TaskError(
        "output_missing",
        f"The decoder {decoder} needs {wanted}; the model has {listed}",
        where=name,
        hint="Name the model's outputs in the 'decoder' part of the task file",
    )


def wrong_shape(array: Array, expected: str, *, name: str, decoder: str, hint: str = "") -> TaskError:
    """Return the error for an output that the decoder cannot read."""
    label = f"The output '{name}'" if name else "The output"
    return TaskError(
        "wrong_output_shape",
        f"{label} has the shape {tuple(array.shape)}; the decoder {decoder} expects {expected}",
        where=name,
        hint=hint or "Choose the decoder, its options and its outputs in the task file to suit the model",
    )
