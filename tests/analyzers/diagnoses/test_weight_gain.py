from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.weight_gain import ENTRY
from tests.analyzers.surgery import Patient
from tests.analyzers.weights import Change, evidence, found


def scaled(*factors: float) -> Change:
    def change(patient: Patient) -> None:
        scale = patient.constant("w1_scale")
        by = np.ones(len(scale), np.float32)
        by[: len(factors)] = factors
        patient.put("w1_scale", (scale * (by if len(factors) > 1 else factors[0])).astype(np.float32))

    return change


@pytest.mark.parametrize(
    ("change", "gain", "channels"),
    [
        (scaled(2.0), 2.0, ()),
        (scaled(0.4), 0.4, ()),
        (scaled(1.0, 3.0, 1.0, 3.0), 3.0, (1, 3)),
    ],
)
def test_a_factor_is_told_with_its_channels(
    change: Change, gain: float, channels: tuple[int, ...], tmp_path: Path
) -> None:
    (suspicion,) = found(ENTRY, evidence(tmp_path, change))
    assert suspicion.cause == "scale_gain_error"
    assert suspicion.layers == ("c1",)
    assert suspicion.evidence["gain"] == pytest.approx(gain, rel=0.02)
    assert suspicion.evidence["channels"] == channels


@pytest.mark.parametrize("factor", [1.0, 1.005])
def test_a_scale_with_few_digits_is_no_gain(factor: float, tmp_path: Path) -> None:
    assert found(ENTRY, evidence(tmp_path, scaled(factor))) == []


def test_a_lost_channel_is_no_gain(tmp_path: Path) -> None:
    def change(patient: Patient) -> None:
        weight = patient.constant("w1_quantized").copy()
        weight[2] = 0
        patient.put("w1_quantized", weight)

    assert found(ENTRY, evidence(tmp_path, change)) == []


def test_a_scale_that_cuts_off_many_weights_is_told(tmp_path: Path) -> None:
    def change(patient: Patient) -> None:
        weight, scale = patient.constant("w1_quantized"), patient.constant("w1_scale")
        patient.put("w1_quantized", np.clip(weight.astype(int) * 8, -127, 127).astype(np.int8))
        patient.put("w1_scale", (scale / 8).astype(np.float32))

    (suspicion,) = found(ENTRY, evidence(tmp_path, change))
    assert "cut off" in suspicion.message
