from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from analyzers.errors import TaskError
from analyzers.records import Sample
from analyzers.tasks.kinds import MetricSetup
from analyzers.tasks.metrics.topk import TopK, TopKOptions


def make(folder: Path, labels: str, names: tuple[str, ...], k: int = 1) -> TopK:
    (folder / "labels.csv").write_text(labels)
    return TopKOptions(k=k).make(MetricSetup(names, ("y",), annotations=folder / "labels.csv"))


@pytest.mark.parametrize(("k", "expected"), [(1, 1 / 3), (2, 2 / 3), (3, 1.0)])
def test_a_sample_is_right_if_its_label_is_among_the_best(tmp_path: Path, k: int, expected: float) -> None:
    metric = make(tmp_path, "a,0\nb,1\nc,2\n", ("a", "b", "c"), k)
    scores = np.array([[[3.0, 2.0, 1.0]], [[3.0, 2.0, 1.0]], [[3.0, 2.0, 1.0]]])
    seen = [metric.observe(Sample(n, {}), {"y": s}, None) for n, s in zip("abc", scores, strict=True)]
    score = metric.score(["a", "b", "c"], seen)
    assert score.value == pytest.approx(expected)
    assert score.metric == f"top{k}"
    assert metric.score(["a"], seen[:1]).value == 1.0


def test_a_network_that_answers_nan_is_wrong(tmp_path: Path) -> None:
    metric = make(tmp_path, "a,0\n", ("a",))
    seen = metric.observe(Sample("a", {}), {"y": np.array([[np.nan, np.nan]])}, None)
    assert metric.score(["a"], [seen]).value == 0.0


def test_samples_without_labels_are_left_out_and_reported(tmp_path: Path) -> None:
    metric = make(tmp_path, "x/a.jpg,1\n", ("a.jpg", "b.jpg"))
    assert [w.code for w in metric.warnings] == ["images_without_annotations"]
    assert metric.score(["a.jpg", "b.jpg"], [np.array([1.0]), np.array([0.0])]).value == 1.0
    assert math.isnan(metric.score(["b.jpg"], [np.array([0.0])]).value)


def test_what_it_cannot_score_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError) as caught:
        make(tmp_path, "q,0\n", ("a",))
    assert caught.value.code == "annotations_match_no_image"
    with pytest.raises(TaskError) as caught:
        TopKOptions().make(MetricSetup(("a",), ("y",)))
    assert caught.value.code == "annotations_missing"
    metric = make(tmp_path, "a,5\n", ("a",))
    with pytest.raises(TaskError, match=r"5.*3 classes"):
        metric.observe(Sample("a", {}), {"y": np.zeros((1, 3))}, None)
    with pytest.raises(TaskError, match=r"\(1, classes\)"):
        metric.observe(Sample("a", {}), {"y": np.zeros((2, 8))}, None)
