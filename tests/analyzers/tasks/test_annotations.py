"""COCO json and labels from files that nobody vouches for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analyzers.errors import TaskError
from analyzers.tasks.annotations import class_categories, match_images, read_annotations
from analyzers.tasks.labels import read_labels

IMAGES = [{"id": 7, "file_name": "a.jpg", "width": 20, "height": 10}, {"id": 9, "file_name": "b/c.jpg"}]
OBJECTS = [
    {"id": 0, "image_id": 7, "category_id": 3, "bbox": [1, 2, 4, 5.5], "iscrowd": 1},
    {"id": 5, "image_id": 9, "category_id": 1, "bbox": [0, 0, 2, 2], "area": 3.5},
]
CATEGORIES = [{"id": 3, "name": "cat"}, {"id": 1, "name": "dog"}]
COCO: dict[str, object] = {"images": IMAGES, "annotations": OBJECTS, "categories": CATEGORIES}


def write(folder: Path, value: object) -> Path:
    path = folder / "gt.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def changed(part: str, index: int, **fields: object) -> dict[str, object]:
    value = json.loads(json.dumps(COCO))
    value[part][index].update(fields)
    return dict(value)


def test_annotations_become_arrays(tmp_path: Path) -> None:
    found = read_annotations(write(tmp_path, COCO))
    assert [i.name for i in found.images] == ["a.jpg", "b/c.jpg"]
    assert (found.images[0].width, found.images[1].width) == (20, 0)
    assert found.areas.tolist() == [22.0, 3.5]
    assert found.is_crowd.tolist() == [True, False]
    assert found.categories == {3: "cat", 1: "dog"}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("{", "JSON"),
        ("[" * 100_000, "JSON"),
        ([1], "mapping"),
        ({"images": [], "annotations": []}, "categories"),
        ({**COCO, "images": {}}, "lists"),
        (changed("images", 0, file_name=3), "file_name"),
        (changed("images", 0, id="x"), "'id'"),
        (changed("images", 0, id=9), "one id"),
        (changed("annotations", 0, id=5), "one id"),
        (changed("categories", 0, id=1), "one id"),
        (changed("annotations", 0, bbox=[1, 2, 3]), "bbox"),
        (changed("annotations", 0, bbox=[1, 2, 3, "4"]), "bbox"),
        (changed("annotations", 0, bbox=[1, 2, float("nan"), 4]), "bbox"),
        (changed("annotations", 0, bbox=[1, 2, -3, 4]), "negative"),
        (changed("annotations", 0, image_id=8), "image 8"),
        (changed("annotations", 0, category_id=None), "category_id"),
        (changed("annotations", 0, category_id=10**30), "category_id"),
        ({**COCO, "annotations": [3]}, "annotation"),
    ],
)
def test_malformed_annotations_say_what_is_wrong(tmp_path: Path, value: object, says: str) -> None:
    with pytest.raises(TaskError, match=says) as caught:
        read_annotations(write(tmp_path, value))
    assert caught.value.code == "malformed_annotations"


def test_absent_annotations_and_unlisted_categories(tmp_path: Path) -> None:
    with pytest.raises(TaskError) as caught:
        read_annotations(tmp_path / "absent.json")
    assert caught.value.code == "file_absent"
    with pytest.raises(TaskError, match="77") as caught:
        read_annotations(write(tmp_path, changed("annotations", 0, category_id=77)))
    assert caught.value.code == "category_unknown"


def test_images_are_matched_by_name_then_by_a_unique_file_name(tmp_path: Path) -> None:
    annotations = read_annotations(write(tmp_path, COCO))
    found, notices = match_images(annotations, ("x/a.jpg", "c.jpg"))
    assert {n: i.id for n, i in found.items()} == {"x/a.jpg": 7, "c.jpg": 9}
    assert notices == ()
    found, notices = match_images(annotations, ("a.jpg", "other.jpg"))
    assert set(found) == {"a.jpg"}
    assert [n.code for n in notices] == ["images_without_annotations"]
    assert "other.jpg" in notices[0].message
    with pytest.raises(TaskError, match=r"a\.jpg") as caught:
        match_images(annotations, ("other.jpg",))
    assert caught.value.code == "annotations_match_no_image"
    with pytest.raises(TaskError, match="same annotated image"):
        match_images(annotations, ("x/a.jpg", "y/a.jpg"))


def test_classes_are_the_sorted_categories_unless_the_task_says_otherwise(tmp_path: Path) -> None:
    annotations = read_annotations(write(tmp_path, COCO))
    assert class_categories(annotations, None, None) == {0: 1, 1: 3}
    assert class_categories(annotations, None, 2) == {0: 1, 1: 3}
    assert class_categories(annotations, ((4, 3), (2, 1)), 5) == {4: 3, 2: 1}
    for categories, classes in ((None, 3), (((0, 1),), None), (((0, 1), (7, 3)), 5)):
        with pytest.raises(TaskError) as caught:
            class_categories(annotations, categories, classes)
        assert caught.value.code == "category_unknown"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("l.json", '{"a.jpg": 3, "b c.jpg": 0}'),
        ("l.csv", "name,label\na.jpg,3\nb c.jpg,0\n"),
        ("l.txt", "a.jpg 3\n\nb c.jpg\t0\n"),
    ],
)
def test_labels_are_read_in_three_forms(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_labels(tmp_path / name) == {"a.jpg": 3, "b c.jpg": 0}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("l.json", "[1]", "mapping"),
        ("l.json", '{"a": -1}', "'a'"),
        ("l.csv", "a.jpg,1\nb.jpg,cat\n", "line 2"),
        ("l.csv", "a.jpg,1\na.jpg,2\n", "two labels"),
    ],
)
def test_malformed_labels_say_what_is_wrong(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TaskError, match=says) as caught:
        read_labels(tmp_path / name)
    assert caught.value.code == "malformed_annotations"
