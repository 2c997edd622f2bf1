from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.range_too_wide import ENTRY
from analyzers.suspicions import Source
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import stored_range, times_range
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples


@pytest.mark.parametrize(
    ("factor", "layers"),
    [
        (30.0, [("conv0",)]),
        (1.0, []),
        (4.0, []),  # a symmetric store with a power-of-two scale wastes as much
        (0.1, []),
    ],
)
def test_a_range_far_wider_than_the_values_is_suspected(
    factor: float, layers: list[tuple[str]], tmp_path: Path
) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    right = stored_range(candidate, "r0")
    times_range(candidate, "r0", factor)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model))))
    assert [s.layers for s in found] == layers
    for suspicion in found:
        assert suspicion.sources == (Source("store", "r0"),)
        assert suspicion.evidence["used_fraction"] == pytest.approx(1 / factor, rel=0.1)
        quantization = suspicion.repairs[0].changes[0].quantization
        assert quantization is not None
        assert float(quantization.scale) * 255 == pytest.approx(right[1] - right[0], rel=0.02)


def test_where_all_ranges_are_as_wide_no_layer_stands_out(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    for tensor in ("image", "r0", "k", "r1", "g", "scores"):
        times_range(candidate, tensor, 20.0)
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model))))


def test_a_few_far_values_that_set_the_range_are_suspected_with_a_percentile(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    feeds = samples(model)
    for feed in feeds:
        feed["image"] *= np.float32(0.02)
    feeds[0]["image"][0, 0, 0, 0] = 3.0
    reference, candidate = quantized(model, tmp_path, feeds=feeds)
    (suspicion,) = (s for s in ENTRY.find(gathered(reference, candidate, feeds)) if s.layers == ("<input>",))
    largest, p999 = suspicion.evidence["largest"], suspicion.evidence["p999"]
    assert isinstance(largest, float)
    assert isinstance(p999, float)
    assert largest >= 4 * p999
    assert "99.9 %" in suspicion.repairs[0].how
