from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.constant_errors import misfits
from analyzers.diagnoses import invalid_scale
from analyzers.records import Array
from analyzers.suspicions import Source
from analyzers.wrong_constants import sources_of, wrong
from tests.analyzers.surgery import Patient
from tests.analyzers.weights import SHAPES, Change, evidence

NAMES = ("w0", "w1", "wh")


def requantized(bits: int, *, is_signed: bool = True, is_symmetric: bool = True, cut: float = 1.0) -> Change:
    """Quantize all weights honestly, in another way."""

    def change(patient: Patient) -> None:
        for name in NAMES:
            real = original(patient, name)
            rows = real.reshape(len(real), -1)
            high = np.maximum(rows.max(axis=1), 0)
            low = np.minimum(rows.min(axis=1), 0)
            if is_symmetric:
                high = np.maximum(high, -low)
                low = -high
            levels = 2**bits - (2 if is_symmetric else 1)
            scale = (high - low) * cut / levels
            first = -(levels // 2) - (not is_symmetric) if is_signed else 0
            zero = np.rint(first - low * cut / scale)
            shape = (-1, *(1,) * (real.ndim - 1))
            codes = np.clip(np.rint(real / scale.reshape(shape)) + zero.reshape(shape), first, first + levels)
            dtype = np.int8 if is_signed else np.uint8
            patient.put(f"{name}_scale", scale.astype(np.float32))
            patient.put(f"{name}_zero_point", zero.astype(dtype))
            patient.put(f"{name}_quantized", codes.astype(dtype))

    return change


def original(patient: Patient, name: str) -> Array:
    stored, scale = patient.constant(f"{name}_quantized"), patient.constant(f"{name}_scale")
    return np.asarray(stored * scale.reshape(-1, *(1,) * (stored.ndim - 1)), dtype=np.float64)


def largest_to_minus_eight(patient: Patient) -> None:
    """Quantize to four bits as onnxruntime does: the largest value becomes -8, whatever its sign."""
    for name in NAMES:
        real = original(patient, name)
        rows = real.reshape(len(real), -1)
        scale = rows[np.arange(len(rows)), np.abs(rows).argmax(axis=1)] / -8
        codes = np.clip(np.rint(rows / scale[:, None]), -8, 7).reshape(real.shape)
        patient.put(f"{name}_scale", scale.astype(np.float32))
        patient.put(f"{name}_quantized", codes.astype(np.int8))


def corrected(patient: Patient) -> None:
    """Move each bias by a little, as bias correction does."""
    scale = patient.constant("b1_quantized_scale")
    moved = patient.constant("b1_quantized") + np.linspace(-0.01, 0.01, scale.size) / scale
    patient.put("b1_quantized", np.rint(moved).astype(np.int32))


def halves(patient: Patient) -> None:
    """Keep the weights in half precision, without quantizers."""
    for name in NAMES:
        patient.put(name, original(patient, name).astype(np.float16).astype(np.float32))
        reader = {"w0": "c0", "w1": "c1", "wh": "head"}[name]
        patient.node(reader).input[1] = name


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        requantized(8, is_signed=False),
        requantized(8, is_signed=False, is_symmetric=False),
        requantized(8, is_symmetric=False),
        requantized(4),
        requantized(4, is_signed=False, is_symmetric=False),
        requantized(8, cut=0.9),
        requantized(4, cut=0.9),
        largest_to_minus_eight,
        corrected,
        halves,
    ],
)
def test_honest_quantization_is_not_wrong(change: Change, tmp_path: Path) -> None:
    seen = evidence(tmp_path, change)
    assert len(misfits(seen)) == len(SHAPES)
    assert wrong(seen) == []
    assert list(invalid_scale.ENTRY.find(seen)) == []


def test_what_is_cut_off_counts_as_clipped_not_as_wrong(tmp_path: Path) -> None:
    seen = evidence(tmp_path, requantized(8, cut=0.9))
    clipped = {m.constant.node: m.clipped for m in misfits(seen) if m.constant.role == "weight"}
    assert 0 < clipped["c1"] < 0.05


@pytest.mark.parametrize("is_calibrated_behind", [True, False])
def test_ranges_that_a_wrong_weight_misled_are_lifted_with_it(
    is_calibrated_behind: bool, tmp_path: Path
) -> None:
    """A weight that was too small already when the ranges were measured, or only afterwards."""

    def shrink(patient: Patient) -> None:
        patient.put("w1_scale", patient.constant("w1_scale") * np.float32(0.2))

    def calibrate(patient: Patient) -> None:
        for tensor in ("a1", "g"):
            patient.put(f"{tensor}_scale", patient.constant(f"{tensor}_scale") * np.float32(0.25))

    def change(patient: Patient) -> None:
        shrink(patient)
        if is_calibrated_behind:
            calibrate(patient)

    sources = sources_of(evidence(tmp_path, change), "c1")
    stores = {s.name for s in sources if s.kind == "store"}
    assert [s for s in sources if s.kind == "weight"] == [Source("weight", "c1")]
    assert stores == ({"a1", "g"} if is_calibrated_behind else set())
