"""Which metric is made, and metrics of the user's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest

from analyzers.contracts import Metric
from analyzers.errors import TaskError
from analyzers.records import Letterbox, Sample
from analyzers.tasks.metric import make_metric, metric_warnings
from analyzers.tasks.task import Task, read_task


@dataclass(frozen=True)
class Names:
    """A set of which only the names are asked for."""

    names: tuple[str, ...] = ("s0", "s1")
    digest: str = "0"

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Sample:
        raise AssertionError("no sample is needed to make a metric")


def make(task: Task | None = None, name: str | None = None, annotations: Path | None = None) -> Metric:
    return make_metric(
        task=task, name=name, annotations=annotations, samples=Names(), outputs=("y",), slices={}
    )


def task_of(folder: Path, text: str) -> Task:
    (folder / "task.yaml").write_text(text)
    return read_task(folder / "task.yaml", allow_code=True)


def test_a_name_wins_over_the_task_and_the_label_free_metric_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text('{"s0": 1, "s1": 0}')
    task = task_of(tmp_path, "metric: {name: topk, k: 3}")
    assert make(task, annotations=tmp_path / "l.json").name == "top3"
    assert make(task, "sqnr").name == "sqnr"
    assert make().name == "slice-sqnr"
    assert make(task_of(tmp_path, "name: bare")).name == "slice-sqnr"
    assert make(name="topk", annotations=tmp_path / "l.json").name == "top1"
    with pytest.raises(TaskError, match="sqnr") as caught:
        make(name="sqrn")
    assert caught.value.code == "metric_unknown"


def test_a_task_that_needs_something_says_what(tmp_path: Path) -> None:
    for text, code in (
        ("metric: ap", "malformed_task"),
        ("metric: topk", "annotations_missing"),
    ):
        with pytest.raises(TaskError) as caught:
            make(task_of(tmp_path, text))
        assert caught.value.code == code


def test_warnings_of_a_metric_are_passed_on(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text('{"s0": 1}')
    assert [n.code for n in metric_warnings(make(name="topk", annotations=tmp_path / "l.json"))] == [
        "images_without_annotations"
    ]
    assert metric_warnings(make()) == ()


CODE = """
import json
from dataclasses import dataclass

@dataclass
class Row:
    x: float

def decode(outputs, image):
    return [[0, 0, image.width, image.height, float(v), 1] for v in outputs["y"].ravel() if v > 0]

def score(names, observations, annotations):
    truth = json.loads(annotations.read_text())
    return sum(len(o) == truth[n] for n, o in zip(names, observations)) / len(names)

def fails(*arguments):
    raise KeyError("oops")

def odd(outputs, image):
    return [1, 2, 3]
"""


def test_a_decoder_and_a_metric_of_the_users_own_are_called(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "truth.json").write_text('{"s0": 2, "s1": 5}')
    task = task_of(tmp_path, "decoder: mine.py:decode\nmetric: mine.py:score")
    metric = make(task, annotations=tmp_path / "truth.json")
    sample = Sample("s0", {"x": np.zeros((1, 3, 20, 30))}, Letterbox(7, 9, 1, 1, 0, 0))
    seen = metric.observe(sample, {"y": np.array([1.0, -1.0, 2.0])}, None)
    np.testing.assert_array_equal(seen, [[0, 0, 9, 7, 1, 1], [0, 0, 9, 7, 2, 1]])
    no_image = metric.observe(Sample("s1", sample.feeds), {"y": np.array([1.0])}, None)
    np.testing.assert_array_equal(no_image[0, :4], [0, 0, 30, 20])
    again = ForkingPickler.loads(ForkingPickler.dumps(metric))
    score = again.score(["s0", "s1"], [seen, no_image])
    assert (score.value, score.metric) == (0.5, "score")


def test_without_a_decoder_a_metric_of_the_users_own_sees_the_only_output(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    metric = make(task_of(tmp_path, "metric: mine.py:score"))
    output = np.arange(3.0)
    np.testing.assert_array_equal(metric.observe(Sample("s0", {}), {"y": output}, None), output)
    with pytest.raises(TaskError) as caught:
        metric.observe(Sample("s0", {}), {"y": output, "z": output}, None)
    assert caught.value.code == "output_missing"


def test_without_annotations_the_references_detections_are_the_truth(tmp_path: Path) -> None:
    task = task_of(
        tmp_path,
        "decoder: {name: in_graph_nms, score_threshold: 0.01}\nmetric: {name: ap, reference_threshold: 0.5}",
    )
    metric = make(task)
    assert (metric.name, metric.needs_reference) == ("ap-to-reference", True)
    assert [n.code for n in metric_warnings(metric)] == ["reference_as_truth"]
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 60, (20, 2))
    table = np.concatenate(
        [corner, corner + rng.uniform(10, 30, (20, 2)), rng.random((20, 1)), rng.integers(0, 3, (20, 1))],
        axis=1,
    )
    moved = table + np.array([4, 4, 4, 4, 0, 0])
    sample = Sample("s0", {"x": np.zeros((1, 3, 100, 100))})

    def score(rows: np.ndarray, reference: np.ndarray = table) -> float:
        return metric.score(["s0"], [metric.observe(sample, {"y": rows}, {"y": reference})]).value

    assert score(table) == pytest.approx(1.0)
    assert 0.0 < score(moved) < 0.8
    assert score(table[:0]) == 0.0
    assert np.isnan(score(table[:0], table[:0]))


def test_code_of_the_users_own_that_fails_is_their_error(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    coco = {
        "images": [{"id": 1, "file_name": "s0"}],
        "annotations": [],
        "categories": [{"id": 1, "name": "a"}],
    }
    (tmp_path / "gt.json").write_text(json.dumps(coco))
    metric = make(task_of(tmp_path, "decoder: mine.py:fails\nmetric: mine.py:fails"))
    odd = make(task_of(tmp_path, "decoder: mine.py:odd\nmetric: ap"), annotations=tmp_path / "gt.json")
    sample = Sample("s0", {"x": np.zeros((1, 3, 4, 4))})
    calls = (
        lambda: metric.observe(sample, {"y": np.zeros(1)}, None),
        lambda: metric.score(["s0"], [np.zeros(1)]),
        lambda: odd.observe(sample, {"y": np.zeros(1)}, None),
    )
    for call, says in zip(calls, ("KeyError", "KeyError", r"\(N, 6\)"), strict=True):
        with pytest.raises(TaskError, match=says) as caught:
            call()
        assert caught.value.code == "user_code_failed"
