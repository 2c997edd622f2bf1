from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.weight_range import ENTRY
from tests.analyzers.surgery import Patient
from tests.analyzers.weights import Change, evidence, found


def coarser(factor: int, channels: slice) -> Change:
    """Make the scales of some channels larger and quantize their values with them."""

    def change(patient: Patient) -> None:
        weight, scale = patient.constant("w1_quantized"), patient.constant("w1_scale").copy()
        weight = weight.astype(np.float64)
        scale[channels] *= factor
        weight[channels] /= factor
        patient.put("w1_scale", scale)
        patient.put("w1_quantized", np.rint(weight).astype(np.int8))

    return change


@pytest.mark.parametrize(
    ("factor", "channels", "named"),
    [
        (60, slice(2, 4), (2, 3)),
        (1000, slice(0, 1), (0,)),
        (2, slice(None), None),
        (4, slice(None), None),
        (1, slice(None), None),
    ],
)
def test_scales_far_above_the_largest_weight_are_suspected(
    factor: int, channels: slice, named: tuple[int, ...] | None, tmp_path: Path
) -> None:
    suspected = found(ENTRY, evidence(tmp_path, coarser(factor, channels)))
    assert [s.evidence["channels"] for s in suspected] == ([] if named is None else [named])
