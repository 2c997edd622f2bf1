from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.shared_bias_scale_mismatch import ENTRY
from tests.analyzers.surgery import Patient
from tests.analyzers.weights import Change, evidence, found

NET = """
net (float[1,3,10,10] image) => (float[1,8,10,10] out)
{
    [stem] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [r0] a0 = Relu(x0)
    [one] x1 = Conv<kernel_shape=[1,1]>(a0, w1, b1)
    [r1] a1 = Relu(x1)
    [two] x2 = Conv<kernel_shape=[1,1]>(a1, w2, b2)
    [r2] a2 = Relu(x2)
    [three] x3 = Conv<kernel_shape=[1,1]>(a2, w3, b3)
    [r3] out = Relu(x3)
}
"""
SHAPES = {"w0": (8, 3, 3, 3), "b0": (8,)} | {f"w{i}": (8, 8, 1, 1) for i in (1, 2, 3)}
SHAPES |= {f"b{i}": (8,) for i in (1, 2, 3)}
LARGE = {f"b{i}": (lambda b: np.linspace(-1, 1, b.size)) for i in (1, 2, 3)}


def shared(*others: int, is_rescaled: bool = False) -> Change:
    """Let other layers read the integers of the bias of ``one``, each with its own scale."""

    def change(patient: Patient) -> None:
        integers = patient.constant("b1_quantized")
        real = integers * patient.constant("b1_quantized_scale")
        for i in others:
            if is_rescaled:
                levels = np.rint(real / patient.constant(f"b{i}_quantized_scale"))
                patient.put(f"b{i}_quantized", levels.astype(np.int32))
            else:
                patient.node(f"b{i}_DequantizeLinear").input[0] = "b1_quantized"

    return change


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (shared(2, 3), ("two", "three")),
        (shared(3), ("three",)),
        (shared(2, 3, is_rescaled=True), ()),
        (shared(), ()),
    ],
)
def test_readers_with_other_scales_are_named_together(
    change: Change, names: tuple[str, ...], tmp_path: Path
) -> None:
    seen = evidence(tmp_path, change, weights=LARGE, text=NET, shapes=SHAPES)
    suspected = found(ENTRY, seen)
    assert [s.layers for s in suspected] == ([names] if names else [])
    for suspicion in suspected:
        assert suspicion.evidence["quantized_for"] == "one"
        assert {s.name for s in suspicion.sources} == set(names)
