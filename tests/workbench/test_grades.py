from __future__ import annotations

import math

import numpy as np
import pytest

from workbench.grades import GRADES, NOT_COMPARED, grade_of_cosine, grade_of_sqnr, nines, sqnr_of_cosine

# Machado, Oliveira and Fernandes 2009, severity 1.
VISIONS = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


@pytest.mark.parametrize(
    ("cosine", "word"),
    [(-1.0, "broken"), (0.0, "broken"), (0.9, "bad"), (0.98, "bad"), (0.99, "watch"), (0.9995, "good"),
     (0.99995, "match"), (1.0, "match"), (math.nan, "not compared")],
)  # fmt: skip
def test_a_cosine_has_one_of_five_grades_or_none(cosine: float, word: str) -> None:
    assert grade_of_cosine(cosine).word == word


def test_sqnr_and_cosine_grade_pure_noise_alike() -> None:
    for cosine in (0.5, 0.91, 0.985, 0.992, 0.9991, 0.99999):
        assert grade_of_sqnr(sqnr_of_cosine(cosine)) == grade_of_cosine(cosine)
    assert grade_of_sqnr(math.inf).word == "match"
    assert grade_of_sqnr(math.nan) is NOT_COMPARED


def test_the_sqnr_of_the_threshold_is_that_of_the_design() -> None:
    assert sqnr_of_cosine(0.99) == pytest.approx(16.9, abs=0.05)
    assert sqnr_of_cosine(0.999) == pytest.approx(27.0, abs=0.05)


def test_nines_count_nines_and_end_at_six() -> None:
    assert nines(0.99) == pytest.approx(2)
    assert nines(0.9999) == pytest.approx(4)
    assert nines(1.0) == 6
    assert nines(-0.5) == 0
    assert math.isnan(nines(math.nan))


@pytest.mark.parametrize("vision", VISIONS)
def test_any_two_grades_can_be_told_apart_by_everyone(vision: str) -> None:
    labs = [_lab(VISIONS[vision] @ _linear(g.color)) for g in GRADES]
    apart = [float(np.linalg.norm(a - b)) for i, a in enumerate(labs) for b in labs[:i]]
    assert min(apart) >= 22


def test_words_on_grades_can_be_read() -> None:
    for grade in GRADES:
        fill, ink = _luminance(grade.color), _luminance(grade.ink)
        light, dark = max(fill, ink), min(fill, ink)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def _linear(color: str) -> np.ndarray:
    values = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _luminance(color: str) -> float:
    return float(_linear(color) @ np.array([0.2126, 0.7152, 0.0722]))


def _lab(linear: np.ndarray) -> np.ndarray:
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    ratio = to_xyz @ linear / np.array([0.95047, 1.0, 1.08883])
    f = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
