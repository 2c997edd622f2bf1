from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.bias_shift import ENTRY
from tests.analyzers.surgery import Patient
from tests.analyzers.weights import Change, evidence, found

LARGE = {"b1": lambda b: np.linspace(-2, 2, b.size)}


def shifted(by: float) -> Change:
    def change(patient: Patient) -> None:
        scale = patient.constant("b1_quantized_scale")
        moved = patient.constant("b1_quantized") + by / scale
        patient.put("b1_quantized", np.rint(moved).astype(np.int32))

    return change


def forgotten(patient: Patient) -> None:
    del patient.node("c1").input[2:]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (shifted(1.0), "bias"),
        (shifted(-0.5), "bias"),
        (forgotten, "layer"),
        (shifted(0.02), None),
        (shifted(0.0), None),
    ],
)
def test_a_bias_that_is_not_the_references_is_suspected(
    change: Change, kind: str | None, tmp_path: Path
) -> None:
    suspected = [s for s in found(ENTRY, evidence(tmp_path, change, weights=LARGE)) if s.is_fault]
    assert [s.layers for s in suspected] == ([] if kind is None else [("c1",)])
    for suspicion in suspected:
        assert [(s.kind, s.name) for s in suspicion.sources] == [(kind, "c1")]


def floored(patient: Patient) -> None:
    """Quantize a weight to steps of 16, rounding down."""
    weight = patient.constant("w1_quantized").astype(int)
    patient.put("w1_quantized", np.clip(weight // 16, -128, 127).astype(np.int8))
    patient.put("w1_scale", patient.constant("w1_scale") * np.float32(16))


def rounded(patient: Patient) -> None:
    """Quantize it as coarsely, to the nearest."""
    weight = patient.constant("w1_quantized").astype(float)
    patient.put("w1_quantized", np.rint(weight / 16).astype(np.int8))
    patient.put("w1_scale", patient.constant("w1_scale") * np.float32(16))


def test_rounding_down_does_not_average_out_and_is_corrected_by_the_bias(tmp_path: Path) -> None:
    (suspicion,) = found(ENTRY, evidence(tmp_path, floored))
    assert [(s.kind, s.name) for s in suspicion.sources] == [("weight", "c1")]
    assert suspicion.repairs[0].changes[0].source.kind == "bias"
    assert suspicion.repairs[0].changes[0].array is not None


def test_fine_rounding_is_no_shift(tmp_path: Path) -> None:
    assert found(ENTRY, evidence(tmp_path, lambda _: None)) == []
