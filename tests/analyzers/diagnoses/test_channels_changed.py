from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses import weight_corrupted
from analyzers.diagnoses.channels_changed import ENTRY
from analyzers.records import Array
from tests.analyzers.surgery import Patient
from tests.analyzers.weights import evidence, found

ORDER = np.array([3, 0, 7, 1, 2, 6, 4, 5])
FACTORS = np.array([0.5, 2.0, 1.0, 4.0, 0.25, 1.5, 1.0, 0.8], np.float32)


def permuted(patient: Patient) -> None:
    for name in ("w0_quantized", "w0_scale", "b0_quantized", "b0_quantized_scale"):
        patient.put(name, patient.constant(name)[ORDER])


def taken_so(patient: Patient) -> None:
    patient.put("w1_quantized", np.ascontiguousarray(patient.constant("w1_quantized")[:, ORDER]))


def scaled(patient: Patient) -> None:
    for name in ("w0_scale", "b0_quantized_scale"):
        patient.put(name, patient.constant(name) * FACTORS)


def divided(patient: Patient) -> None:
    stored, scale = patient.constant("w1_quantized"), patient.constant("w1_scale")
    real = stored * scale.reshape(-1, 1, 1, 1) / FACTORS.reshape(1, -1, 1, 1)
    new: Array = (np.abs(real).reshape(8, -1).max(axis=1) / 127).astype(np.float32)
    patient.put("w1_scale", new)
    patient.put("w1_quantized", np.rint(real / new.reshape(-1, 1, 1, 1)).astype(np.int8))


@pytest.mark.parametrize(
    ("steps", "is_compensated"),
    [
        ((permuted, taken_so), True),
        ((scaled, divided), True),
        ((permuted,), False),
        ((permuted, divided), False),
        ((), False),
    ],
)
def test_changes_that_cancel_are_noted_and_nobody_is_suspected(
    steps: tuple[object, ...], is_compensated: bool, tmp_path: Path
) -> None:
    def change(patient: Patient) -> None:
        for step in steps:
            step(patient)  # type: ignore[operator]

    seen = evidence(tmp_path, change)
    notes = found(ENTRY, seen)
    assert [(s.layers, s.unproved, s.sources) for s in notes] == (
        [(("c0",), "info", ())] if is_compensated else []
    )
    assert bool(found(weight_corrupted.ENTRY, seen)) == (not is_compensated and bool(steps))
