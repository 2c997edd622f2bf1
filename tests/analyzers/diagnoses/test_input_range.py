"""Input stores that were calibrated on pictures of another normalization."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.input_range import find
from analyzers.records import Array
from analyzers.suspicions import Source, Suspicion
from tests.analyzers.gathered import gathered
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized

MEAN = np.array([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)
DEVIATION = np.array([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)


def _pictures() -> list[Array]:
    random = np.random.default_rng(0)
    return [random.uniform(size=(1, 3, 16, 16)) for _ in range(3)]


def _suspected(
    folder: Path, calibrated_on: Callable[[Array], Array], given: Callable[[Array], Array]
) -> list[Suspicion]:
    model = build(PLAIN, PLAIN_SHAPES)
    calibration = [{"image": calibrated_on(x).astype(np.float32)} for x in _pictures()]
    reference, candidate = quantized(model, folder, feeds=calibration)
    return list(
        find(gathered(reference, candidate, [{"image": given(x).astype(np.float32)} for x in _pictures()]))
    )


def _normalized(picture: Array) -> Array:
    return (picture - MEAN) / DEVIATION


@pytest.mark.parametrize(
    ("calibrated_on", "given", "stored_for", "looks_like"),
    [
        (_normalized, lambda x: x * 255, "normalized with ImageNet's", "from 0 to 255"),
        (lambda x: x * 255, _normalized, "from 0 to 255", "normalized with ImageNet's"),
        (lambda x: x * 255, lambda x: x, "from 0 to 255", "from 0 to 1"),
        (lambda x: x, lambda x: x * 255, "from 0 to 1", "from 0 to 255"),
        (lambda x: x, _normalized, "from 0 to 1", "normalized with ImageNet's"),
    ],
)
def test_another_normalization_is_named_on_both_sides(
    tmp_path: Path,
    calibrated_on: Callable[[Array], Array],
    given: Callable[[Array], Array],
    stored_for: str,
    looks_like: str,
) -> None:
    (found,) = _suspected(tmp_path, calibrated_on, given)
    assert (found.cause, found.layers) == ("preprocessing_normalization", ())
    assert found.sources == (Source("store", "image"),)
    assert stored_for in str(found.evidence["stored_for"])
    assert looks_like in str(found.evidence["data_look_like"])
    assert found.repairs


@pytest.mark.parametrize("normalize", [_normalized, lambda x: x, lambda x: x * 255])
def test_the_same_normalization_is_not_suspected(tmp_path: Path, normalize: Callable[[Array], Array]) -> None:
    assert _suspected(tmp_path, normalize, normalize) == []


@pytest.mark.parametrize(
    ("calibrated_on", "given"),
    [
        (lambda x: x * 0.3, lambda x: x),  # dim pictures: the range clips, but no normalization fits it
        (lambda x: x * 40, lambda x: x),  # far too wide, but by no usual factor
        (_normalized, lambda x: x * 2 - 1),  # another normalization, at a small cost
    ],
)
def test_a_range_that_no_usual_normalization_gives_is_left_to_others(
    tmp_path: Path, calibrated_on: Callable[[Array], Array], given: Callable[[Array], Array]
) -> None:
    assert _suspected(tmp_path, calibrated_on, given) == []
