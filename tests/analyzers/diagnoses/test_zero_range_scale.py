from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.diagnoses.zero_range_scale import ENTRY
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import set_scale
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples

DEAD = """
net (float[1,3,8,8] x) => (float[1,4,8,8] y)
{
    [main] m = Conv<kernel_shape=[1,1]>(x, w0)
    [alarm] a = Conv<kernel_shape=[1,1]>(x, w1, low)
    [alarm_relu] r = Relu(a)
    [sum] s = Add(m, r)
    [head] y = Conv<kernel_shape=[1,1]>(s, w2)
}
"""
DEAD_SHAPES = {"w0": (4, 3, 1, 1), "w1": (4, 3, 1, 1), "w2": (4, 4, 1, 1), "low": (4,)}


@pytest.mark.parametrize(
    ("scale", "layers"),
    [(0.0, [("conv0",)]), (1e-9, [("conv0",)]), (None, []), (2e-3, [])],
)
def test_a_store_without_a_range_is_suspected(
    scale: float | None, layers: list[tuple[str]], tmp_path: Path
) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    if scale is not None:
        set_scale(candidate, "r0", scale)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model))))
    assert [s.layers for s in found] == layers
    assert all(s.is_fault and s.repairs for s in found)


def test_a_zero_scale_on_a_tensor_that_is_zero_does_no_harm(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    set_scale(candidate, "image", 0.0)
    feeds = [{k: v * 0 for k, v in feed.items()} for feed in samples(model)]
    assert not [s for s in ENTRY.find(gathered(reference, candidate, feeds)) if s.layers == ("<input>",)]


def test_a_branch_that_never_was_active_in_the_calibration_is_suspected(tmp_path: Path) -> None:
    model = build(DEAD, DEAD_SHAPES)
    for tensor in model.graph.initializer:
        if tensor.name == "low":
            tensor.float_data[:] = []
            tensor.raw_data = b"\x00\x00\x40\xc0" * 4  # -3: only loud inputs activate the branch
    quiet = [{k: v * 0.1 for k, v in feed.items()} for feed in samples(model)]
    loud = [{k: v * 2 for k, v in feed.items()} for feed in samples(model)]
    reference, candidate = quantized(model, tmp_path, feeds=quiet)
    found = [s.layers for s in ENTRY.find(gathered(reference, candidate, loud, calibration=quiet))]
    assert found == [("alarm",)]
    assert not list(ENTRY.find(gathered(reference, candidate, loud, calibration=loud)))
