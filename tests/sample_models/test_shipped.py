import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers import samples
from analyzers.records import TensorSpec
from analyzers.tasks.task import read_task
from sample_models import demo, make_planted, measure, priors, scoring

FOLDER = Path(measure.FOLDER)
CARD = (FOLDER / "MODEL_CARD.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| `(?P<file>[\w/]+\.onnx)` \| \d+ \| (?P<product>[\d.]+) \| (?P<independent>[\d.]+) \|$", re.M
)
STATED = {row["file"]: (float(row["product"]), float(row["independent"])) for row in ROW.finditer(CARD)}
MOST_BYTES = 30 * 2**20


def test_the_card_states_every_shipped_file() -> None:
    assert sorted(STATED) == sorted(path.relative_to(FOLDER).as_posix() for path in measure.shipped())


@pytest.mark.parametrize("file", ["detector.onnx", "candidates/detector_int8_per_tensor.onnx"])
def test_a_detector_scores_what_the_card_says(file: str) -> None:
    assert measure.by_product(FOLDER / file) == pytest.approx(STATED[file][0], abs=0.003)


def test_pycocotools_agrees_with_the_card() -> None:
    assert measure.independently(FOLDER / "detector.onnx") == pytest.approx(
        STATED["detector.onnx"][1], abs=0.003
    )


def test_the_classifier_scores_what_the_card_says() -> None:
    assert measure.by_product(FOLDER / "classifier.onnx") == pytest.approx(
        STATED["classifier.onnx"][0], abs=0.01
    )


def test_the_sample_behaves_as_the_demo_needs() -> None:
    reference = STATED["detector.onnx"][0]
    assert reference >= 0.55
    assert STATED["candidates/detector_int8_per_tensor.onnx"][0] <= reference - 0.10
    assert STATED["candidates/detector_int8_noise.onnx"][0] < STATED["candidates/detector_int8.onnx"][0]
    assert STATED["candidates/detector_decoded_int8.onnx"][0] < 0.05


def test_models_and_sets_fit_into_a_repository() -> None:
    folders = (FOLDER, measure.CALIB_DATA)
    assert (
        sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())
        < MOST_BYTES
    )


def test_the_demo_names_files_that_are_there() -> None:
    paths = demo.demo_paths()
    assert all(path.is_file() for path in (paths.reference, paths.candidate, paths.annotations, paths.task))
    assert any(paths.data.glob("*.jpg"))
    assert any(paths.calibration.glob("*.jpg"))


def test_the_shipped_priors_are_those_of_training() -> None:
    shipped = np.load(FOLDER / "tasks" / "sample_priors.npy", allow_pickle=False)
    np.testing.assert_array_equal(shipped, priors.prior_boxes())
    assert len(shipped) == 8500


def test_planting_again_gives_the_shipped_files(tmp_path: Path) -> None:
    (tmp_path / "candidates").mkdir()
    healthy = FOLDER / "candidates" / "detector_int8.onnx"
    (tmp_path / "candidates" / healthy.name).write_bytes(healthy.read_bytes())
    make_planted.main(tmp_path)
    for made in (tmp_path / "planted").glob("*.onnx"):
        assert onnx.load(made) == onnx.load(FOLDER / "planted" / made.name)


def test_answers_name_nodes_of_the_reference() -> None:
    for answer in json.loads((FOLDER / "planted" / "answers.json").read_text(encoding="utf-8")):
        nodes = {node.name for node in onnx.load(FOLDER / answer["reference"]).graph.node}
        assert answer["layer"] in nodes
        assert (FOLDER / answer["candidate"]).is_file()


def test_every_thing_is_learnt_by_its_best_prior() -> None:
    prior = priors.prior_boxes()
    boxes = np.array([[0.1, 0.1, 0.13, 0.14], [0.3, 0.2, 0.9, 0.95]], np.float32)
    assigned, target = priors.match(boxes, np.array([4, 1]), prior)
    assert set(target.tolist()) >= {0, 2, 5}
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    np.testing.assert_allclose(np.unique(assigned[target == 5], axis=0)[0, :2], centres[0], atol=1e-6)
    np.testing.assert_allclose(np.unique(assigned[target == 2], axis=0)[0, :2], centres[1], atol=1e-6)


def test_perfect_boxes_score_one() -> None:
    truth = json.loads((measure.CALIB_DATA / "evaluation.json").read_text(encoding="utf-8"))
    found = {image["id"]: [] for image in truth["images"]}
    for item in truth["annotations"]:
        found[item["image_id"]].append([*item["bbox"], 1.0, item["category_id"]])
    results = [np.array(rows, np.float64).reshape(-1, 6) for rows in found.values()]
    assert scoring.average_precision(truth, results)[0] == pytest.approx(1.0)


def test_pictures_become_the_same_input_for_product_and_training() -> None:
    task = read_task(FOLDER / "tasks" / "sample_detector.yaml")
    specs = (TensorSpec("images", "float32", (1, 3, priors.INPUT_SIZE, priors.INPUT_SIZE)),)
    data = samples.open_samples(measure.CALIB_DATA / "evaluation", specs, task=task, selection="1")
    by_hand = scoring.read_input(measure.CALIB_DATA / "evaluation" / data.names[0])
    np.testing.assert_allclose(data[0].feeds["images"], by_hand, atol=1e-6)
