from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.activation_clipping import ENTRY
from analyzers.suspicions import Source
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import set_range, store_again, stored_range, times_range
from tests.networks import PLAIN, PLAIN_SHAPES, SILU, SILU_SHAPES, build, quantized, samples


@pytest.mark.parametrize(
    ("form", "factor", "layers"),
    [
        ("QDQ", 0.15, [("conv0",)]),
        ("QOperator", 0.15, [("conv0",)]),
        ("QDQ", 1.0, []),
        ("QDQ", 0.85, []),  # a percentile cut: a little is clipped, on purpose
        ("QDQ", 40.0, []),
    ],
)
def test_a_range_that_cuts_off_the_layers_own_values_is_suspected(
    form: str, factor: float, layers: list[tuple[str]], tmp_path: Path
) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path, form=form)
    times_range(candidate, {"QDQ": "r0", "QOperator": "c0"}[form], factor)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model))))
    assert [s.layers for s in found] == layers
    for suspicion in found:
        assert suspicion.sources == (Source("store", "r0"),)
        assert suspicion.is_fault
        share = suspicion.evidence["clipped_share_of_noise"]
        assert isinstance(share, float)
        assert share > 0.9


def test_the_repair_is_the_range_that_the_samples_have(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    right = stored_range(candidate, "r0")
    times_range(candidate, "r0", 0.15)
    (suspicion,) = ENTRY.find(gathered(reference, candidate, samples(model)))
    quantization = suspicion.repairs[0].changes[0].quantization
    assert quantization is not None
    assert float(quantization.scale) * 255 == pytest.approx(right[1] - right[0], rel=0.02)
    assert suspicion.repairs[-1].changes[0].quantization.dtype == "uint16"  # type: ignore[union-attr]


def test_layers_behind_a_clipped_one_are_judged_by_their_own_values(tmp_path: Path) -> None:
    """What comes behind ``conv0`` is wrong as well, but its range is right."""
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    times_range(candidate, "r0", 0.05)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model))))
    assert [s.layers for s in found] == [("conv0",)]


def test_the_one_sample_that_clips_is_named(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    quiet = samples(model, 5)
    reference, candidate = quantized(model, tmp_path, feeds=quiet)
    loud = [{k: v * (12 if i == 3 else 1) for k, v in feed.items()} for i, feed in enumerate(quiet)]
    found = list(ENTRY.find(gathered(reference, candidate, loud)))
    own = next(s for s in found if s.layers == ("conv0",))
    assert own.evidence["affected_samples"] == ("s3",)
    assert own.evidence["worst_sample"] == "s3"


def test_a_sigmoid_is_given_its_fixed_range(tmp_path: Path) -> None:
    model = build(SILU, SILU_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    set_range(candidate, "g0", 0.0, 0.1)
    found = [s for s in ENTRY.find(gathered(reference, candidate, samples(model))) if "g0" in s.message]
    (suspicion,) = found
    assert "0 .. 1" in suspicion.fix
    quantization = suspicion.repairs[0].changes[0].quantization
    assert quantization is not None
    assert float(quantization.scale) == pytest.approx(1 / 256)


def test_a_second_quantizer_on_an_edge_is_blamed_on_its_reader(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    store_again(candidate, "r0", "dw", 0.1)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model))))
    assert [s.layers for s in found] == [("dw",)]
    assert found[0].sources == (Source("store", "r0"),)


def test_an_average_pool_has_its_clipped_range_from_its_input(tmp_path: Path) -> None:
    text = """
    net (float[1,3,16,16] x) => (float[1,4,8,8] y)
    {
        [conv] c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0, b0)
        [pool] p = AveragePool<kernel_shape=[2,2], strides=[2,2]>(c)
        [head] y = Conv<kernel_shape=[1,1]>(p, w1, b1)
    }
    """
    model = build(text, {"w0": (4, 3, 3, 3), "b0": (4,), "w1": (4, 4, 1, 1), "b1": (4,)})
    reference, candidate = quantized(model, tmp_path)
    times_range(candidate, "c", 0.1)  # the stock quantizer gives both the same parameters
    (suspicion,) = ENTRY.find(gathered(reference, candidate, samples(model)))
    assert suspicion.layers == ("conv",)
    assert suspicion.sources == (Source("store", "c"), Source("store", "p"))
    scales = [c.quantization.scale for c in suspicion.repairs[0].changes if c.quantization is not None]
    assert len(scales) == 2
    assert np.unique(scales).size == 1
