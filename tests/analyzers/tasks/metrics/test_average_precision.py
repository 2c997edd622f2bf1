"""COCO AP against pycocotools, and what it refuses."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from analyzers.errors import TaskError
from analyzers.records import Array, Letterbox, Sample
from analyzers.tasks.decoding import SampleDecoder
from analyzers.tasks.kinds import MetricSetup
from analyzers.tasks.matches import average_precision
from analyzers.tasks.metrics.average_precision import ApOptions, AveragePrecision

KEYS = ("AP", "AP50", "AP75", "APs", "APm", "APl")


@dataclass(frozen=True, slots=True)
class AsStored:
    """A decoder for outputs that are detections already."""

    classes: int | None = None

    def __call__(self, outputs: Mapping[str, Array], image: Letterbox) -> Array:
        return outputs["detections"]


def scene(
    seed: int, images: int = 12, first_id: int = 1
) -> tuple[dict[str, list[dict[str, object]]], list[Array]]:
    """Objects of all sizes, some of them crowds, and detections that are near them, doubled or wrong."""
    rng = np.random.default_rng(seed)
    categories = [{"id": i, "name": f"c{i}"} for i in (2, 5, 11)]
    found: list[Array] = []
    objects: list[dict[str, object]] = []
    for image in range(images):
        rows = []
        for _ in range(int(rng.integers(0, 7))):
            size = rng.uniform(8, 25) * rng.choice([1, 3, 8], 2)
            corner = rng.uniform(0, 300, 2)
            category = int(rng.integers(0, 3))
            objects.append(
                {
                    "id": first_id + len(objects),
                    "image_id": image + 1,
                    "category_id": categories[category]["id"],
                    "bbox": [*corner.tolist(), *size.tolist()],
                    "area": float(size.prod() * rng.uniform(0.6, 1.0)),
                    "iscrowd": int(rng.random() < 0.15),
                }
            )
            for _ in range(int(rng.integers(0, 3))):
                moved = np.concatenate([corner, corner + size]) + rng.normal(0, 0.06, 4) * np.tile(size, 2)
                label = category if rng.random() < 0.85 else int(rng.integers(0, 3))
                rows.append([*moved.tolist(), round(float(rng.random()), 2), label])
        for _ in range(int(rng.integers(0, 4))):
            corner = rng.uniform(0, 300, 2)
            wrong = [*corner.tolist(), *(corner + rng.uniform(5, 90, 2)).tolist()]
            rows.append([*wrong, float(rng.random()) * 0.6, int(rng.integers(0, 3))])
        table = np.array(rows, np.float64).reshape(-1, 6)
        found.append(table[np.argsort(-table[:, 4], kind="stable")])
    names = [{"id": i + 1, "file_name": f"{i:03d}.jpg", "width": 640, "height": 480} for i in range(images)]
    return {"images": names, "annotations": objects, "categories": categories}, found  # type: ignore[dict-item]


def make(folder: Path, coco: object, images: int = 12, **options: str) -> AveragePrecision:
    path = folder / "gt.json"
    path.write_text(json.dumps(coco))
    names = tuple(f"{i:03d}.jpg" for i in range(images))
    setup = MetricSetup(names, ("detections",), decoder=SampleDecoder(AsStored()), annotations=path)
    metric = ApOptions(**options).make(setup)  # type: ignore[arg-type]
    assert isinstance(metric, AveragePrecision)
    return metric


def independent(
    coco: dict[str, list[dict[str, object]]], found: list[Array], images: list[int]
) -> list[float]:
    """COCO's own numbers; undefined ones as nan."""
    ids = [c["id"] for c in coco["categories"]]
    rows = [
        {
            "image_id": i,
            "category_id": ids[int(r[5])],
            "bbox": [r[0], r[1], r[2] - r[0], r[3] - r[1]],
            "score": r[4],
        }
        for i in images
        for r in found[i - 1].tolist()
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        truth.dataset = json.loads(json.dumps(coco))
        truth.createIndex()
        evaluator = COCOeval(truth, truth.loadRes(rows), "bbox")
        evaluator.params.imgIds = images
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return [float(v) if v > -1 else float("nan") for v in evaluator.stats[:6]]


@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_pycocotools_on_all_images_and_on_subsets(tmp_path: Path, seed: int) -> None:
    coco, found = scene(seed)
    metric = make(tmp_path, coco)
    for chosen in (list(range(12)), [9, 2, 3, 5], [0, 1]):
        score = metric.score([f"{i:03d}.jpg" for i in chosen], [found[i] for i in chosen])
        expected = independent(coco, found, sorted(i + 1 for i in chosen))
        np.testing.assert_allclose([score.details[k] for k in KEYS], expected, atol=1e-9)
    assert score.metric == "ap"
    assert score.value == score.details["AP"]
    assert score.unit == ""


def test_classes_are_scored_one_by_one(tmp_path: Path) -> None:
    coco, found = scene(1)
    names = [f"{i:03d}.jpg" for i in range(12)]
    details = make(tmp_path, coco).score(names, found).details
    classes = [details[f"AP/c{i}"] for i in (2, 5, 11)]
    assert details["AP"] == pytest.approx(float(np.nanmean(classes)))


def test_another_number_can_be_the_score(tmp_path: Path) -> None:
    coco, found = scene(2)
    metric = make(tmp_path, coco, value="AP50")
    score = metric.score([f"{i:03d}.jpg" for i in range(12)], found)
    assert score.metric == "ap50"
    assert score.value == score.details["AP50"] > score.details["AP"]


def test_an_annotation_numbered_zero_counts_like_any_other(tmp_path: Path) -> None:
    names = [f"{i:03d}.jpg" for i in range(12)]
    (from_zero, found), (from_one, _) = scene(3, first_id=0), scene(3)
    assert make(tmp_path, from_zero).score(names, found) == make(tmp_path, from_one).score(names, found)


def test_finding_nothing_scores_zero_and_nothing_to_find_is_undefined(tmp_path: Path) -> None:
    coco, _ = scene(0)
    nothing = np.empty((0, 6))
    metric = make(tmp_path, coco)
    assert metric.score([f"{i:03d}.jpg" for i in range(12)], [nothing] * 12).value == 0.0
    coco["annotations"] = []
    assert np.isnan(make(tmp_path, coco).score(["000.jpg"], [nothing]).value)


def test_perfect_detections_score_one(tmp_path: Path) -> None:
    coco, _ = scene(5)
    index = {2: 0, 5: 1, 11: 2}
    found = [np.empty((0, 6)) for _ in range(12)]
    for row in coco["annotations"]:
        x, y, w, h = row["bbox"]  # type: ignore[misc]
        box = np.array([[x, y, x + w, y + h, 0.9, index[row["category_id"]]]])  # type: ignore[index]
        found[int(row["image_id"]) - 1] = np.concatenate([found[int(row["image_id"]) - 1], box])  # type: ignore[call-overload]
    assert make(tmp_path, coco).score([f"{i:03d}.jpg" for i in range(12)], found).value == pytest.approx(1.0)


def test_an_image_that_the_annotations_know_in_another_size_is_refused(tmp_path: Path) -> None:
    coco, found = scene(0)
    metric = make(tmp_path, coco)
    outputs = {"detections": found[0]}

    def observe(height: int, width: int) -> Array:
        return metric.observe(Sample("000.jpg", {}, Letterbox(height, width, 1, 1, 0, 0)), outputs, None)

    np.testing.assert_array_equal(observe(480, 640), found[0])
    with pytest.raises(TaskError, match=r"480 x 640 \(turned.*640 x 480") as caught:
        observe(640, 480)
    assert caught.value.code == "image_size_differs"


def test_a_class_without_a_category_is_refused_unless_the_task_leaves_it_out(tmp_path: Path) -> None:
    coco, found = scene(0)
    stray = np.array([[0, 0, 5, 5, 0.9, 3.0]])
    with pytest.raises(TaskError, match="Class 3") as caught:
        make(tmp_path, coco).score(["000.jpg"], [stray])
    assert caught.value.code == "category_unknown"
    setup = MetricSetup(
        ("000.jpg",),
        ("detections",),
        decoder=SampleDecoder(AsStored()),
        categories=((0, 2), (1, 5), (2, 11)),
        annotations=tmp_path / "gt.json",
    )
    metric = ApOptions().make(setup)
    with_stray = metric.score(["000.jpg"], [np.concatenate([stray, found[0]])])
    assert with_stray.details == pytest.approx(metric.score(["000.jpg"], [found[0]]).details, nan_ok=True)


def test_the_networks_classes_have_to_be_as_many_as_the_categories(tmp_path: Path) -> None:
    coco, _ = scene(0)
    (tmp_path / "gt.json").write_text(json.dumps(coco))
    setup = MetricSetup(
        ("000.jpg",), (), decoder=SampleDecoder(AsStored(classes=80)), annotations=tmp_path / "gt.json"
    )
    with pytest.raises(TaskError, match=r"80 classes.*3 categories"):
        ApOptions().make(setup)


def test_samples_without_annotations_are_left_out_and_reported(tmp_path: Path) -> None:
    coco, found = scene(1, images=13)
    coco["images"] = coco["images"][:12]
    coco["annotations"] = [a for a in coco["annotations"] if a["image_id"] != 13]
    names = [f"{i:03d}.jpg" for i in range(13)]
    metric = make(tmp_path, coco, images=13)
    assert [w.code for w in metric.warnings] == ["images_without_annotations"]
    assert metric.score(names, found) == metric.score(names[:12], found[:12])


def test_it_survives_the_way_to_another_process(tmp_path: Path) -> None:
    coco, found = scene(1)
    metric = make(tmp_path, coco)
    again = ForkingPickler.loads(ForkingPickler.dumps(metric))
    details = [m.score(["003.jpg"], [found[3]]).details for m in (metric, again)]
    assert details[0] == pytest.approx(details[1], nan_ok=True)


@pytest.mark.parametrize("seed", range(6))
def test_kept_matches_give_the_same_ap_for_any_choice_of_images(tmp_path: Path, seed: int) -> None:
    coco, found = scene(seed)
    metric = make(tmp_path, coco)
    names = [f"{i:03d}.jpg" for i in range(12)]
    matches = metric.matches(names, found)
    for chosen in (range(12), range(0, 12, 2), [3, 4, 5]):
        expected = metric.score([names[i] for i in chosen], [found[i] for i in chosen]).value
        assert average_precision([matches[i] for i in chosen]) == pytest.approx(expected, abs=1e-9)
        weights = [float(i in chosen) for i in range(12)]
        assert average_precision(matches, weights) == pytest.approx(expected, abs=1e-9)


def test_an_image_drawn_twice_counts_twice(tmp_path: Path) -> None:
    coco, found = scene(2)
    metric = make(tmp_path, coco)
    names = [f"{i:03d}.jpg" for i in range(12)]
    for image, table in enumerate(found):  # among equal scores the order of images would matter
        table[:, 4] += 1e-5 * (image + 1) + 1e-7 * np.arange(len(table))
    matches = metric.matches(names, found)
    doubled = average_precision([*matches, matches[4]])
    assert average_precision(matches, [2.0 if i == 4 else 1.0 for i in range(12)]) == pytest.approx(doubled)
    assert doubled != pytest.approx(average_precision(matches))


def test_no_objects_leave_ap_undefined_and_no_detections_make_it_zero(tmp_path: Path) -> None:
    coco, _ = scene(0)
    names = [f"{i:03d}.jpg" for i in range(12)]
    nothing = [np.empty((0, 6))] * 12
    matches = make(tmp_path, coco).matches(names, nothing)
    assert average_precision(matches) == 0.0
    assert np.isnan(average_precision(matches, [0.0] * 12))
    assert np.isnan(average_precision([]))
