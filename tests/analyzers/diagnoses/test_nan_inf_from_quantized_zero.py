from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.nan_inf_from_quantized_zero import ENTRY
from analyzers.suspicions import Source
from tests.analyzers.gathered import gathered
from tests.networks import build, quantized, samples

RATIO = """
net (float[1,6,8] x) => (float[1,6,8] y)
{
    [num] n = MatMul(x, wn)
    [den] d = MatMul(x, wd)
    [loud] e = Sigmoid(d)
    %s
}
"""
DIVIDED = "[ratio] y = Div(n, e)"
LOGARITHM = "[log] l = Log(e) [sum] y = Add(n, l)"
ADDED = "[sum] y = Add(n, e)"


@pytest.mark.parametrize(
    ("tail", "loudness", "first"),
    [(DIVIDED, 3.0, "ratio"), (LOGARITHM, 3.0, "log"), (DIVIDED, 0.1, None), (ADDED, 3.0, None)],
)
def test_the_layer_that_makes_the_zeros_is_blamed(
    tail: str, loudness: float, first: str | None, tmp_path: Path
) -> None:
    model = build(RATIO % tail, {"wn": (8, 8), "wd": (8, 8)})
    feeds = [{k: v * np.float32(loudness) for k, v in feed.items()} for feed in samples(model)]
    reference, candidate = quantized(model, tmp_path, feeds=feeds, exclude=["ratio", "log", "sum"])
    found = list(ENTRY.find(gathered(reference, candidate, feeds)))
    assert [s.sources for s in found] == ([] if first is None else [(Source("store", "e"),)])
    for suspicion in found:
        assert suspicion.layers == ("loud",)
        assert suspicion.evidence["first_broken"] == first
        zeros, smallest, half = (
            suspicion.evidence[k] for k in ("new_zeros", "smallest_magnitude", "half_step")
        )
        assert isinstance(zeros, int)
        assert zeros > 0
        assert isinstance(smallest, float)
        assert isinstance(half, float)
        assert smallest < half
