from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.diagnoses.error_amplification import ENTRY
from analyzers.suspicions import Source
from tests.analyzers.gathered import gathered
from tests.networks import build, quantized, samples

NET = """
net (float[1,4,8,8] image) => (float[1,4,8,8] out)
<float[1] large = {%s}>
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [lift] y0 = Add(x0, large)
    [pool] p0 = MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>(y0)
    [lower] z0 = Sub(p0, large)
    [c1] out = Conv<kernel_shape=[1,1]>(z0, w1, b1)
}
"""
SHAPES = {"w0": (4, 4, 3, 3), "b0": (4,), "w1": (4, 4, 1, 1), "b1": (4,)}


@pytest.mark.parametrize(("large", "amplifier"), [("60.0", "lower"), ("1.0", None), ("0.0", None)])
def test_a_difference_of_large_values_amplifies_their_rounding(
    large: str, amplifier: str | None, tmp_path: Path
) -> None:
    model = build(NET % large, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert [s.evidence["amplifier"] for s in found] == ([] if amplifier is None else [amplifier])
    if amplifier is not None:
        assert found[0].layers == ("pool",), "what is to be protected is what the layer reads"
        assert found[0].sources == (Source("store", "p0"),)
