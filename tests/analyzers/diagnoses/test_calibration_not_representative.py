from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.calibration_not_representative import ENTRY
from analyzers.records import Array
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import times_range
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples

UNBOUNDED = """
net (float[1,3,12,12] image) => (float[1,6,4,4] out)
{
    [conv0] c0 = Conv<kernel_shape=[3,3]>(image, w0)
    [relu0] r0 = Relu(c0)
    [conv1] c1 = Conv<kernel_shape=[3,3]>(r0, w1)
    [relu1] r1 = Relu(c1)
    [conv2] c2 = Conv<kernel_shape=[3,3]>(r1, w2)
    [relu2] r2 = Relu(c2)
    [pool] p = AveragePool<kernel_shape=[3,3]>(r2)
    [head] out = Conv<kernel_shape=[1,1]>(p, w3)
}
"""
SHAPES = {"w0": (6, 3, 3, 3), "w1": (6, 6, 3, 3), "w2": (6, 6, 3, 3), "w3": (6, 6, 1, 1)}


def times(feeds: Sequence[Mapping[str, Array]], factor: float) -> list[dict[str, Array]]:
    return [{k: v * np.float32(factor) for k, v in feed.items()} for feed in feeds]


@pytest.mark.parametrize(
    ("factor", "direction"),
    [
        (0.05, "too narrow"),
        (300.0, "too wide"),
        (1.0, None),
        (0.7, None),
        (10.0, None),  # every layer loses a little, and none by itself is bad
    ],
)
def test_calibration_on_other_data_is_suspected_as_a_whole(
    factor: float, direction: str | None, tmp_path: Path
) -> None:
    model = build(UNBOUNDED, SHAPES)
    feeds = samples(model)
    other = times(feeds, factor)
    reference, candidate = quantized(model, tmp_path, feeds=other)
    found = list(ENTRY.find(gathered(reference, candidate, feeds, calibration=other)))
    assert [s.evidence["direction"] for s in found] == ([direction] if direction else [])
    for suspicion in found:
        assert suspicion.scope == "network"
        assert suspicion.layers == ()
        assert len(suspicion.sources) >= 5
        assert suspicion.evidence["median_calibrated_over_seen"] == pytest.approx(factor, rel=0.2)
        assert "ecalibrat" in suspicion.fix
        assert len(suspicion.repairs[0].changes) >= 5


@pytest.mark.parametrize("spoiled", [["r0"], ["r0", "r1"]])
def test_one_or_two_wrong_ranges_are_no_matter_of_the_calibration(spoiled: list[str], tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    for tensor in spoiled:
        times_range(candidate, tensor, 0.05)
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model))))


def test_the_range_of_an_input_tells_by_itself(tmp_path: Path) -> None:
    """Behind a bounded activation all ranges look alike, whatever the data were."""
    model = build(PLAIN, PLAIN_SHAPES)
    feeds = samples(model)
    reference, candidate = quantized(model, tmp_path)
    times_range(candidate, "image", 400.0)
    (suspicion,) = ENTRY.find(gathered(reference, candidate, feeds))
    assert [source.name for source in suspicion.sources] == ["image"]
    assert not list(ENTRY.find(gathered(reference, candidate, feeds, calibration=feeds)))
