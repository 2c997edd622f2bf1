"""What the one-click demo runs on: files that come with the package, whether cloned or installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_MODELS = Path(__file__).resolve().parent
_DATA = _MODELS.parent / "calib_data"


@dataclass(frozen=True, slots=True)
class DemoPaths:
    """The demo's inputs.

    Attributes:
        reference: FP32 detector.
        candidate: Its stock INT8 twin, with per-tensor weights.
        data: Folder of evaluation pictures.
        annotations: Their COCO json.
        task: Task file.
        calibration: Folder of calibration pictures.
        max_drop: A drop of AP that a few layers of fallback reach.
    """

    reference: Path
    candidate: Path
    data: Path
    annotations: Path
    task: Path
    calibration: Path
    max_drop: float


def demo_paths() -> DemoPaths:
    """Return where the demo's files are."""
    return DemoPaths(
        reference=_MODELS / "detector.onnx",
        candidate=_MODELS / "candidates" / "detector_int8_per_tensor.onnx",
        data=_DATA / "evaluation",
        annotations=_DATA / "evaluation.json",
        task=_MODELS / "tasks" / "sample_detector.yaml",
        calibration=_DATA / "calibration",
        max_drop=0.01,
    )
