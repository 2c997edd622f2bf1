from __future__ import annotations

from pathlib import Path

import numpy as np

from analyzers.diagnoses.normalization_sensitive import ENTRY
from analyzers.normalizations import normalizations
from analyzers.project import open_models
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient
from tests.networks import ATTENTION, ATTENTION_SHAPES, PLAIN, PLAIN_SHAPES, build, quantized, samples

WRITTEN_OUT = """
net (float[1,8,16] tokens) => (float[1,8,16] out)
{
    [fc] x = MatMul(tokens, w0)
    [mean] m = ReduceMean<axes=[2]>(x)
    [centre] d = Sub(x, m)
    [square] q = Pow(d, two)
    [variance] v = ReduceMean<axes=[2]>(q)
    [stable] e = Add(v, tiny)
    [root] r = Sqrt(e)
    [divide] n = Div(d, r)
    [head] out = MatMul(n, w1)
}
"""
CONSTANTS = "<float[1] two = {2.0}, float[1] tiny = {0.00001}>"
SHAPES = {"w0": (16, 16), "w1": (16, 16)}


def test_stores_between_the_operators_of_a_normalization_are_suspected_together(tmp_path: Path) -> None:
    model = build(WRITTEN_OUT.replace("out)\n{", f"out)\n{CONSTANTS}\n{{"), SHAPES)
    reference, candidate = quantized(model, tmp_path)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert [len(s.sources) for s in found] == [len(found[0].sources), *(1 for _ in found[0].sources)]
    assert found[0].evidence["source"] == "x"
    named = {s.name for s in found[0].sources}
    assert named
    assert named <= {"m", "d", "q", "v", "e", "r"}, "what goes in and what comes out is not inside"


def test_a_normalization_whose_inside_stays_in_float_is_fine(tmp_path: Path) -> None:
    model = build(WRITTEN_OUT.replace("out)\n{", f"out)\n{CONSTANTS}\n{{"), SHAPES)
    inside = ["mean", "centre", "square", "variance", "stable", "root", "divide"]
    reference, candidate = quantized(model, tmp_path, exclude=inside)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert not [s for s in found if s.evidence["stored"] != ("x",)]


def test_a_softmax_that_loses_much_is_suspected_with_what_it_reads(tmp_path: Path) -> None:
    model = build(ATTENTION, ATTENTION_SHAPES)
    feeds = [{k: 3 * v for k, v in feed.items()} for feed in samples(model, 2)]
    reference, candidate = quantized(model, tmp_path, feeds=feeds)
    assert not list(ENTRY.find(gathered(reference, candidate, feeds)))
    patient = Patient(candidate)
    patient.put("s_scale", np.array(patient.constant("s_scale") * 8, dtype=np.float32))
    patient.put("s_zero_point", np.array(128, dtype=np.uint8))
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, feeds)))
    assert [(s.layers, s.sources[0].name) for s in found] == [(("scores",), "s")]


def test_a_network_without_normalizations_has_none(tmp_path: Path) -> None:
    reference, candidate = quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)
    assert not list(normalizations(open_models(reference, candidate)))
