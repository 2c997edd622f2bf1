from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.diagnoses.invalid_scale import ENTRY
from analyzers.suspicions import Source
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import constant, set_scale
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples


@pytest.mark.parametrize(
    ("scale", "fault"),
    [(np.nan, "NaN"), (np.inf, "infinite"), (-0.01, "negative"), (1e-40, "denormal"), (1e-30, ""), (0.0, "")],
)
def test_scales_that_no_arithmetic_survives_are_suspected(scale: float, fault: str, tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    set_scale(candidate, "r0", scale)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 1))))
    assert [(s.layers, s.evidence["fault"]) for s in found] == ([(("conv0",), fault)] if fault else [])


def test_the_biases_that_an_integer_operator_scales_with_it_are_lifted_too(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path, form="QOperator")
    set_scale(candidate, "c0", np.inf)
    (suspicion,) = ENTRY.find(gathered(reference, candidate, samples(model, 1)))
    assert suspicion.layers == ("conv0",)
    assert set(suspicion.sources) == {Source("store", "r0"), Source("bias", "dw")}


def test_a_weights_scale_is_looked_at_too(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    scales = constant(candidate, "w1_scale").copy()
    scales[3] = np.nan
    spoiled = onnx.load(candidate)
    for tensor in spoiled.graph.initializer:
        if tensor.name == "w1_scale":
            tensor.CopyFrom(onnx.numpy_helper.from_array(scales, tensor.name))
    onnx.save(spoiled, candidate)
    (suspicion,) = ENTRY.find(gathered(reference, candidate, samples(model, 1)))
    assert suspicion.layers == ("conv1",)
    assert suspicion.sources == (Source("weight", "conv1"),)
