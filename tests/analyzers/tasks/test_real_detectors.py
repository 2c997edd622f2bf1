"""The shipped task files on real detectors, where these are present; scored by pycocotools too."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from analyzers.backends.onnxruntime import open_session
from analyzers.samples import open_samples
from analyzers.tasks.metric import make_metric
from analyzers.tasks.metrics.average_precision import AveragePrecision
from analyzers.tasks.task import read_task

REPOSITORY = Path(__file__).parents[3]
REAL = Path(os.environ.get("TEARLINE_SHARED", REPOSITORY.parent / "shared")) / "real"

DETECTORS = [
    ("yolox_nano", "yolox_nano_416.onnx", "coco128/val2017", "coco128/val2017.json"),
    ("ultraface", "ultraface-rfb-320.onnx", "widerval/images", "widerval/gt.json"),
    ("yunet", "yunet_n_320.onnx", "widerval/images", "widerval/gt.json"),
]


@pytest.mark.skipif(not REAL.is_dir(), reason="the real detectors are not present")
@pytest.mark.parametrize(("name", "model", "images", "annotations"), DETECTORS, ids=[d[0] for d in DETECTORS])
def test_the_score_of_a_real_detector_is_what_pycocotools_gives(
    name: str, model: str, images: str, annotations: str
) -> None:
    task = read_task(REPOSITORY / "sample_models" / "tasks" / f"{name}.yaml")
    runner = open_session(REAL / "models" / model)
    samples = open_samples(REAL / images, runner.inputs, task=task, selection="16")
    metric = make_metric(
        task=task,
        name=None,
        annotations=REAL / annotations,
        samples=samples,
        outputs=runner.outputs,
        slices={},
    )
    assert isinstance(metric, AveragePrecision)
    found = []
    for index in range(len(samples)):
        sample = samples[index]
        found.append(metric.observe(sample, runner.run(sample.feeds), None))
    details = metric.score(samples.names, found).details
    ids = [metric.images[n] for n in samples.names]
    rows = [
        {
            "image_id": image,
            "category_id": metric.categories[int(r[5])],
            "bbox": [r[0], r[1], r[2] - r[0], r[3] - r[1]],
            "score": r[4],
        }
        for image, table in zip(ids, found, strict=True)
        for r in table.tolist()
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(REAL / annotations))
        evaluator = COCOeval(truth, truth.loadRes(rows), "bbox")
        evaluator.params.imgIds = ids
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    expected = [v if v > -1 else np.nan for v in evaluator.stats[:6]]
    given = [details[k] for k in ("AP", "AP50", "AP75", "APs", "APm", "APl")]
    np.testing.assert_allclose(given, expected, atol=1e-6)
    assert details["AP"] > 0.15
