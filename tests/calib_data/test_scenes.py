import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from calib_data import make_scenes, scenes

DATA = Path(make_scenes.__file__).parent
STORED_SCENE = Path(__file__).parent / "scene_12_7.png"


def test_a_scene_is_rendered_again_within_one_level() -> None:
    again = scenes.render(make_scenes.EVALUATION.seed, 7).image
    stored = cv2.imread(str(STORED_SCENE))
    assert np.abs(again.astype(int) - stored.astype(int)).max() <= 1


def test_a_shipped_picture_is_its_scene_after_jpeg() -> None:
    again = scenes.render(make_scenes.EVALUATION.seed, 7).image
    shipped = cv2.imread(str(DATA / "evaluation" / make_scenes.file_name(7)))
    assert np.abs(again.astype(int) - shipped.astype(int)).mean() < 6


def test_shipped_annotations_are_those_of_the_scene() -> None:
    scene = scenes.render(make_scenes.EVALUATION.seed, 7)
    truth = json.loads((DATA / "evaluation.json").read_text(encoding="utf-8"))
    boxes = [a["bbox"] for a in truth["annotations"] if a["image_id"] == 8]
    corners = np.array([[x, y, x + w, y + h] for x, y, w, h in boxes])
    assert np.abs(corners - scene.boxes).max() <= 1


@pytest.mark.parametrize("series", [make_scenes.CALIBRATION, make_scenes.EVALUATION, make_scenes.DARK])
def test_every_annotated_picture_is_there(series: make_scenes.Series) -> None:
    truth = json.loads((DATA / f"{series.name}.json").read_text(encoding="utf-8"))
    files = sorted(path.name for path in (DATA / series.name).glob("*.jpg"))
    assert files == [image["file_name"] for image in truth["images"]]
    assert len(files) == series.count
    sizes = np.array([a["bbox"][2:] for a in truth["annotations"]])
    assert sizes.min() >= scenes.SMALLEST_SIDE
    assert {a["category_id"] for a in truth["annotations"]} == set(range(1, len(scenes.CLASS_NAMES) + 1))


def test_dark_scenes_are_darker() -> None:
    day = np.mean([scenes.render(13, index).image.mean() for index in range(4)])
    dark = np.mean([scenes.render(13, index, look="dark").image.mean() for index in range(4)])
    assert dark < day / 2


def test_crops_are_labelled_by_what_they_show() -> None:
    scene = scenes.render(15, 0)
    found = make_scenes.crops(scene, smallest=0)
    assert [label for _, label in found] == scene.labels.tolist()
    assert all(image.shape == (make_scenes.CROP_SIZE, make_scenes.CROP_SIZE, 3) for image, _ in found)
