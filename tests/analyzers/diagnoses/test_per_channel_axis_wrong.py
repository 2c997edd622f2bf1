from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.per_channel_axis_wrong import ENTRY
from analyzers.records import Array
from tests.analyzers.surgery import Patient
from tests.analyzers.weights import evidence, found


def spread(weight: Array) -> Array:
    """Give the output channels very different sizes."""
    sizes = 2.0 ** np.arange(len(weight))
    return weight * (sizes / sizes.mean()).reshape(-1, *(1,) * (weight.ndim - 1))


def on_axis(axis: int) -> object:
    def change(patient: Patient) -> None:
        patient.tell("w1_DequantizeLinear", axis=axis)

    return change


@pytest.mark.parametrize(("axis", "is_suspected"), [(1, True), (0, False)])
def test_scales_on_the_other_axis_are_suspected(axis: int, is_suspected: bool, tmp_path: Path) -> None:
    suspected = found(ENTRY, evidence(tmp_path, on_axis(axis), weights={"w1": spread}))  # type: ignore[arg-type]
    assert [s.layers for s in suspected] == ([("c1",)] if is_suspected else [])
    for suspicion in suspected:
        assert (suspicion.evidence["axis"], suspicion.evidence["right_axis"]) == (1, 0)


def test_scales_that_are_wrong_on_every_axis_are_another_fault(tmp_path: Path) -> None:
    def change(patient: Patient) -> None:
        patient.put("w1_scale", patient.constant("w1_scale")[::-1].copy())

    assert found(ENTRY, evidence(tmp_path, change, weights={"w1": spread})) == []
