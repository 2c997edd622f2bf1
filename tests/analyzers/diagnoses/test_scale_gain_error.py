from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.scale_gain_error import ENTRY
from analyzers.suspicions import Source
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import constant, read_with, set_scale, store_again
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples


@pytest.mark.parametrize(
    ("gain", "layers"), [(2.0, [("conv0",)]), (0.8, [("conv0",)]), (1.0, []), (1.002, [])]
)
def test_a_store_read_with_another_scale_is_suspected(
    gain: float, layers: list[tuple[str]], tmp_path: Path
) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    read_with(candidate, "r0", "scale", np.asarray(constant(candidate, "r0_scale") * np.float32(gain)))
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 1))))
    assert [s.layers for s in found] == layers
    for suspicion in found:
        assert suspicion.evidence["gain"] == pytest.approx(gain)
        assert suspicion.evidence["readers"] == ("dw",)


def test_a_pass_through_operator_is_blamed_for_its_own_store(tmp_path: Path) -> None:
    """The stock quantizer gives a MaxPool the parameters of its input; here its reader takes others."""
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    read_with(candidate, "k", "scale", np.asarray(constant(candidate, "k_scale") * np.float32(2)))
    (suspicion,) = ENTRY.find(gathered(reference, candidate, samples(model, 1)))
    assert suspicion.sources[0] in (Source("store", "k"), Source("store", "p"))


def test_a_wide_range_that_both_ends_agree_on_is_no_gain(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    set_scale(candidate, "r0", 2 * float(constant(candidate, "r0_scale")))
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model, 1))))


def test_a_second_quantizer_on_an_edge_is_no_gain(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    store_again(candidate, "r0", "dw", 2.0)
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model, 1))))
