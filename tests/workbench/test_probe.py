from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest

from analyzers.errors import InputError
from tests import networks
from workbench.demo import builtin_tasks
from workbench.probe import Facts, look, probe


def test_a_model_is_described(tmp_path: Path) -> None:
    reference, candidate = networks.quantized(networks.build(networks.PLAIN, networks.PLAIN_SHAPES), tmp_path)
    assert look("model", reference).summary == "FP32 · 10 operators · image 1x3x16x16 float32"
    assert look("model", candidate).summary.startswith("INT8, QDQ form")
    _, whole = networks.quantized(
        networks.build(networks.PLAIN, networks.PLAIN_SHAPES), tmp_path, form="QOperator"
    )
    assert look("model", whole).summary.startswith("INT8, QOperator form")


def test_external_data_that_is_missing_is_named(tmp_path: Path) -> None:
    model = networks.build(networks.PLAIN, networks.PLAIN_SHAPES)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "m.data").unlink()
    facts = probe("model", tmp_path / "m.onnx")
    assert facts.error is not None
    assert facts.error.code == "external_data_missing"
    assert "m.data" in facts.error.message


def test_samples_are_counted(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", image=np.zeros((4, 3, 8, 8), np.float32))
    assert look("set", tmp_path / "in.npz").summary == "image 4x3x8x8 float32"
    (tmp_path / "pics").mkdir()
    for name in ("a.png", "b.jpg"):
        cv2.imwrite(str(tmp_path / "pics" / name), np.zeros((4, 4, 3), np.uint8))
    assert look("set", tmp_path / "pics").summary == "2 images"


def test_annotations_and_labels_are_counted(tmp_path: Path) -> None:
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2], "area": 4, "iscrowd": 0}
    coco = {
        "images": [{"id": 1, "file_name": "a.png", "width": 4, "height": 4}],
        "annotations": [box],
        "categories": [{"id": 1, "name": "x"}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    assert look("annotations", tmp_path / "coco.json").summary == "1 images · 1 boxes · 1 classes"
    (tmp_path / "labels.json").write_text('{"a.png": 3, "b.png": 0}')
    assert look("annotations", tmp_path / "labels.json").summary == "2 labels"
    (tmp_path / "labels.csv").write_text("a.png,3\n")
    assert look("annotations", tmp_path / "labels.csv").summary == "1 labels"


def test_every_shipped_task_can_be_read() -> None:
    for path in builtin_tasks().values():
        assert "images" in look("task", path).summary


def test_a_target_profile_is_described(tmp_path: Path) -> None:
    (tmp_path / "board.yaml").write_text("name: board\ntitle: A board\n")
    assert probe("profile", tmp_path / "board.yaml").summary == "board · A board"


def test_code_in_an_uploaded_task_is_refused_and_not_run(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\ndef go(outputs, image): return []\n"
    )
    (tmp_path / "task.yaml").write_text("decoder: evil.py:go\n")
    facts = probe("task", tmp_path / "task.yaml")
    assert facts.error is not None
    assert facts.error.code == "code_not_allowed"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("role", ["model", "set", "annotations", "task", "profile"])
def test_garbage_is_refused_in_words(role: str, tmp_path: Path) -> None:
    name = {
        "model": "m.onnx",
        "set": "s.npz",
        "annotations": "a.json",
        "task": "t.yaml",
        "profile": "p.yaml",
    }[role]
    (tmp_path / name).write_bytes(b"\x00\xffgarbage{{{")
    with pytest.raises(InputError) as caught:
        look(role, tmp_path / name)  # type: ignore[arg-type]
    assert caught.value.message


def test_modules_in_the_folder_of_an_upload_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    np.savez(tmp_path / "in.npz", x=np.zeros(3, np.float32))
    assert probe("set", tmp_path / "in.npz") == Facts("x 3 float32")
    assert not (tmp_path / "ran").exists()


def test_a_look_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros(3, np.float32))
    facts = probe("set", tmp_path / "in.npz", seconds=0.01)
    assert facts.error is not None
    assert facts.error.code == "too_slow"
