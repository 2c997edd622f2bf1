from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from analyzers.errors import TaskError
from analyzers.tasks.decoders.ssd import Ssd
from tests.analyzers.tasks.decoders.heads import IMAGE, uniform
from tests.analyzers.tasks.slow_detections import assert_same, slow_detections

LIMITS = {"score_threshold": 0.25, "nms_iou": 0.45, "max_detections": 30}
PRIORS = 80
CLASSES = 3


def priors() -> np.ndarray:
    return np.concatenate([uniform((PRIORS, 2), 0.0, 1.0), uniform((PRIORS, 2), 0.1, 0.5, seed=1)], axis=1)


def rows() -> np.ndarray:
    return uniform((1, PRIORS, 4), -2.0, 2.0, seed=2)


def logits(columns: int) -> np.ndarray:
    return uniform((1, PRIORS, columns), -3.0, 3.0, seed=3)


def probabilities(row: list[float], activation: str, background: str) -> list[float]:
    if activation == "softmax":
        total = sum(math.exp(v) for v in row)
        row = [math.exp(v) / total for v in row]
    elif activation == "sigmoid":
        row = [1 / (1 + math.exp(-v)) for v in row]
    return {"first": row[1:], "last": row[:-1], "none": row}[background]


@pytest.mark.parametrize("activation", ["softmax", "sigmoid", "none"])
@pytest.mark.parametrize("background", ["first", "last", "none"])
def test_it_finds_what_a_loop_over_priors_finds(activation: str, background: str) -> None:
    scores = logits(CLASSES + (background != "none"))
    candidates = []
    for (px, py, pw, ph), t, s in zip(priors().tolist(), rows()[0].tolist(), scores[0].tolist(), strict=True):
        x, y = px + t[0] * 0.1 * pw, py + t[1] * 0.1 * ph
        w, h = pw * math.exp(t[2] * 0.2), ph * math.exp(t[3] * 0.2)
        box = ((x - w / 2) * 96, (y - h / 2) * 64, (x + w / 2) * 96, (y + h / 2) * 64)
        candidates += [(box, v, label) for label, v in enumerate(probabilities(s, activation, background))]
    decoder = Ssd(priors="priors", activation=activation, background=background, classes=CLASSES, **LIMITS)  # type: ignore[arg-type]
    found = decoder({"boxes": rows(), "scores": scores, "priors": priors()[None]}, IMAGE)
    assert_same(found, slow_detections(candidates, IMAGE, **LIMITS))


def test_priors_come_from_an_output_or_a_file_in_either_form(tmp_path: Path) -> None:
    outputs = {"boxes": rows(), "scores": logits(4), "priors": priors()}
    expected = Ssd(priors="priors", **LIMITS)(outputs, IMAGE)
    p = priors().astype(np.float64)
    corners = np.concatenate([p[:, :2] - p[:, 2:] / 2, p[:, :2] + p[:, 2:] / 2], axis=1)
    np.save(tmp_path / "corners.npy", corners)
    found = Ssd(priors_file=tmp_path / "corners.npy", prior_format="xyxy", **LIMITS)(outputs, IMAGE)
    assert_same(found, expected)


def test_huge_logits_do_not_overflow() -> None:
    outputs = {"boxes": rows() * 1e6, "scores": logits(4) * 1e6, "priors": priors()}
    assert np.isfinite(Ssd(priors="priors")(outputs, IMAGE)).all()


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("boxes", (1, PRIORS - 1, 4), r"\(1, 80, 4\) for 80 priors"),
        ("scores", (1, PRIORS, 5), r"\(1, 80, 1 \+ 3\)"),
        ("scores", (PRIORS, 4), r"\(1, 80, 1 \+ 3\)"),
        ("priors", (PRIORS, 5), r"\(N, 4\)"),
        ("priors", (2, PRIORS, 4), r"\(N, 4\)"),
    ],
)
def test_another_shape_is_an_error_that_names_the_expected_one(
    name: str, shape: tuple[int, ...], expected: str
) -> None:
    outputs = {"boxes": rows(), "scores": logits(4), "priors": priors(), name: np.zeros(shape, np.float32)}
    with pytest.raises(TaskError, match=expected) as caught:
        Ssd(priors="priors", classes=CLASSES)(outputs, IMAGE)
    assert caught.value.code == "wrong_output_shape"


def test_a_file_that_holds_no_priors_is_refused(tmp_path: Path) -> None:
    for name, array in (("shape", np.zeros((4, 5))), ("text", np.array([["a", "b", "c", "d"]]))):
        np.save(tmp_path / f"{name}.npy", array)
        with pytest.raises(TaskError, match="priors"):
            Ssd(priors_file=tmp_path / f"{name}.npy")
    np.save(tmp_path / "object.npy", np.array([[1, 2, 3, None]], object), allow_pickle=True)
    with pytest.raises(TaskError, match="priors"):
        Ssd(priors_file=tmp_path / "object.npy")
    with pytest.raises(TaskError, match="either 'priors'"):
        Ssd()
