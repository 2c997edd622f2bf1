"""Quantize the sample networks with the stock quantizer: ``python -m sample_models.make_candidates``.

Nothing is planted here: the candidates differ in what they were calibrated on and in how weights are scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analyzers import graph, quantizing, samples
from analyzers.records import QuantizeOptions
from analyzers.steps import finish
from analyzers.tasks.task import read_task

FOLDER = Path(__file__).parent
CALIB_DATA = FOLDER.parent / "calib_data"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one candidate is made.

    Attributes:
        name: File name without suffix.
        reference: File name of the FP32 side.
        task: Task file name.
        calibration: Folder below ``calib_data``.
        per_channel: Scale weights per output channel, not per tensor.
        symmetric: Ranges around zero, as many NPUs have them.
    """

    name: str
    reference: str
    task: str
    calibration: str
    per_channel: bool = True
    symmetric: bool = False


RECIPES = (
    Recipe("detector_int8", "detector.onnx", "sample_detector.yaml", "calibration"),
    Recipe(
        "detector_int8_per_tensor",
        "detector.onnx",
        "sample_detector.yaml",
        "calibration",
        per_channel=False,
    ),
    Recipe("detector_int8_noise", "detector.onnx", "sample_detector.yaml", "noise"),
    Recipe("detector_int8_dark", "detector.onnx", "sample_detector.yaml", "dark"),
    Recipe(
        "detector_decoded_int8",
        "detector_decoded.onnx",
        "sample_detector_decoded.yaml",
        "calibration",
        symmetric=True,
    ),
    Recipe("classifier_int8", "classifier.onnx", "sample_classifier.yaml", "crops_calibration"),
)


def main() -> None:
    """Write every candidate into ``candidates/``."""
    (FOLDER / "candidates").mkdir(exist_ok=True)
    for recipe in RECIPES:
        print(make(recipe))


def make(recipe: Recipe) -> Path:
    """Write one candidate and return its path."""
    reference = FOLDER / recipe.reference
    output = FOLDER / "candidates" / f"{recipe.name}.onnx"
    task = read_task(FOLDER / "tasks" / recipe.task)
    specs = graph.read_model(reference).inputs
    calibration = samples.open_samples(CALIB_DATA / recipe.calibration, specs, task=task, role="calibration")
    options = QuantizeOptions(per_channel=recipe.per_channel, symmetric=recipe.symmetric)
    finish(quantizing.quantize(reference, calibration, options, output))
    return output


if __name__ == "__main__":
    main()
