from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.bias_int32_overflow import ENTRY
from tests.analyzers.surgery import Patient
from tests.analyzers.weights import Change, evidence, found

TOP = 2**31 - 1


def tiny(factor: float, *, is_wrapped: bool = False) -> Change:
    """Shrink the weight scale of channels 2 and 4, and quantize the bias with what results."""

    def change(patient: Patient) -> None:
        weight, bias = patient.constant("w1_scale").copy(), patient.constant("b1_quantized_scale").copy()
        real = patient.constant("b1_quantized") * bias
        for scale in (weight, bias):
            scale[[2, 4]] *= np.float32(factor)
        levels = np.rint(real / bias.astype(np.float64))
        held = ((levels + 2**31) % 2**32) - 2**31 if is_wrapped else np.clip(levels, -TOP - 1, TOP)
        patient.put("w1_scale", weight)
        patient.put("b1_quantized_scale", bias)
        patient.put("b1_quantized", held.astype(np.int32))

    return change


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_biases_beyond_their_integers_are_suspected(is_wrapped: bool, tmp_path: Path) -> None:
    large = {"b1": lambda b: np.abs(b) + 3.0}
    seen = evidence(tmp_path, tiny(1e-9, is_wrapped=is_wrapped), weights=large)
    (suspicion,) = found(ENTRY, seen)
    assert suspicion.layers == ("c1",)
    assert suspicion.evidence["channels"] == (2, 4)
    assert suspicion.evidence["is_saturated"] is not is_wrapped


@pytest.mark.parametrize("factor", [1.0, 1e-3])
def test_biases_that_fit_are_not_suspected(factor: float, tmp_path: Path) -> None:
    large = {"b1": lambda b: np.abs(b) + 3.0}
    assert found(ENTRY, evidence(tmp_path, tiny(factor), weights=large)) == []
