from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.activation_function_lost import ENTRY
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples

LOUD = 8.0  # inputs that reach the upper bound


@pytest.mark.parametrize(
    ("top", "is_lost"),
    [(12.0, True), (8.0, True), (6.0, False), (6.01, False), (3.0, False)],
)
def test_a_clip_is_lost_where_the_range_ends_above_it(top: float, is_lost: bool, tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    feeds = [{k: v * LOUD for k, v in feed.items()} for feed in samples(model, 2)]
    reference, candidate = quantized(model, tmp_path, feeds=feeds)
    patient = Patient(candidate)
    if "clip" in {n.name for n in patient.graph.node}:
        patient.bypass("clip")
    patient.put("k_scale", np.array(top / 255, dtype=np.float32))
    patient.put("k_zero_point", np.array(0, dtype=np.uint8))
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, feeds)))
    assert [s.layers for s in found] == ([("clip",)] if is_lost else [])
    if is_lost:
        assert found[0].evidence["bounds"] == (0.0, 6.0)
        assert found[0].repairs[0].changes[0].quantization is not None


def test_a_relu_is_lost_where_the_range_begins_below_it(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    scale = patient.constant("r1_scale")
    patient.put("r1_scale", np.array(2 * scale, dtype=np.float32))
    patient.put("r1_zero_point", np.array(128, dtype=np.uint8))
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert [s.layers for s in found] == [("relu1",)]


def test_an_activation_that_no_range_can_replace_is_lost_when_it_is_gone(tmp_path: Path) -> None:
    text = PLAIN.replace("r1 = Relu(c1)", "r1 = LeakyRelu<alpha=0.1>(c1)")
    model = build(text, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    patient.bypass("relu1")
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert [s.layers for s in found] == [("relu1",)]
