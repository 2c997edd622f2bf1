from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.zero_point_mismatch import ENTRY
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import constant, read_with
from tests.networks import SILU, SILU_SHAPES, build, quantized, samples


@pytest.mark.parametrize("shift", [128, 20, 0])
def test_a_store_read_with_another_zero_point_is_suspected(shift: int, tmp_path: Path) -> None:
    model = build(SILU, SILU_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    zero = int(constant(candidate, "x1_zero_point"))
    other = zero + shift if zero + shift < 256 else zero - shift
    read_with(candidate, "x1", "zero_point", np.array(other, np.uint8))
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 1))))
    assert [s.layers for s in found] == ([("c1",)] if shift else [])
    for suspicion in found:
        offset = shift * float(constant(candidate, "x1_scale"))
        assert suspicion.evidence["offset_steps"] == shift
        assert suspicion.evidence["offset"] == pytest.approx(offset)
        assert ("signed" in suspicion.message) is (shift == 128)
        quantization = suspicion.repairs[0].changes[0].quantization
        assert quantization is not None
        assert int(quantization.zero_point) == zero
