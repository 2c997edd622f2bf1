"""Measure the model card's table: ``python -m sample_models.measure``; with ``--write`` put it into the card.

Every file is scored on the full evaluation set twice: by the product, and by ``scoring``, which decodes with
NumPy and asks pycocotools.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from analyzers import samples
from analyzers.backends.onnxruntime import open_session
from analyzers.tasks.metric import make_metric
from analyzers.tasks.task import read_task
from sample_models import scoring
from sample_models.scoring import Floats

FOLDER = Path(__file__).parent
CALIB_DATA = FOLDER.parent / "calib_data"


@dataclass(frozen=True, slots=True)
class Kind:
    """What the files whose names start alike have in common.

    Attributes:
        task: Task file name.
        data: Folder below ``calib_data``.
        annotations: Annotations or labels below ``calib_data``.
    """

    task: str
    data: str
    annotations: str


KINDS = {
    "detector_decoded": Kind("sample_detector_decoded.yaml", "evaluation", "evaluation.json"),
    "detector": Kind("sample_detector.yaml", "evaluation", "evaluation.json"),
    "classifier": Kind("sample_classifier.yaml", "crops", "crops.txt"),
}


def main(*, is_written: bool) -> None:
    """Print one row per shipped file."""
    rows = ["| file | KiB | product | independent |", "| --- | --- | --- | --- |"]
    for path in shipped():
        size, name = path.stat().st_size / 1024, path.relative_to(FOLDER).as_posix()
        rows.append(f"| `{name}` | {size:.0f} | {by_product(path):.4f} | {independently(path):.4f} |")
        print(rows[-1], flush=True)
    if is_written:
        card = FOLDER / "MODEL_CARD.md"
        text = card.read_text(encoding="utf-8")
        table = re.compile(r"^\| file \| KiB .*?\n(?=\n)", re.DOTALL | re.MULTILINE)
        card.write_text(table.sub("\n".join([*rows, ""]), text), encoding="utf-8")


def shipped() -> list[Path]:
    """Return every ONNX file of the folder, FP32 networks first."""
    return [
        path for part in (".", "candidates", "planted") for path in sorted((FOLDER / part).glob("*.onnx"))
    ]


def kind_of(path: Path) -> Kind:
    """Return the task and set of a file; planted ones are detectors."""
    return next((kind for start, kind in KINDS.items() if path.name.startswith(start)), KINDS["detector"])


def by_product(path: Path) -> float:
    """Return COCO AP, or top-1 accuracy, as Tearline computes it."""
    kind, runner = kind_of(path), open_session(path)
    task = read_task(FOLDER / "tasks" / kind.task)
    data = samples.open_samples(CALIB_DATA / kind.data, runner.inputs, task=task)
    metric = make_metric(
        task=task,
        name=None,
        annotations=CALIB_DATA / kind.annotations,
        samples=data,
        outputs=runner.outputs,
        slices={},
    )
    observations = []
    for index in range(len(data)):
        sample = data[index]
        observations.append(metric.observe(sample, runner.run(sample.feeds), None))
    return metric.score(data.names, observations).value


def independently(path: Path) -> float:
    """Return the same number without the product's preprocessing, decoding and metric."""
    kind, runner = kind_of(path), open_session(path)

    def run(image: Floats) -> list[Floats]:
        return list(runner.run({"images": image}).values())

    folder, annotations = CALIB_DATA / kind.data, CALIB_DATA / kind.annotations
    if annotations.suffix == ".txt":
        return scoring.score_classifier(run, folder, annotations)
    return float(scoring.score_detector(run, folder, annotations)[0])


if __name__ == "__main__":
    main(is_written="--write" in sys.argv)
