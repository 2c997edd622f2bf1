from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from analyzers.diagnoses.bn_fold_wrong import ENTRY
from analyzers.suspicions import Suspicion
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient
from tests.analyzers.weights import Change, found
from tests.faults.folding import folded
from tests.networks import build, quantized, samples

NET = """
net (float[1,3,10,10] image) => (float[1,6,10,10] out)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [n0] y0 = BatchNormalization(x0, gamma0, beta0, mean0, var0)
    [r0] a0 = Relu(y0)
    [c1] x1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a0, w1)
    [n1] y1 = BatchNormalization(x1, gamma1, beta1, mean1, var1)
    [r1] out = Relu(y1)
}
"""
SHAPES = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (6, 8, 3, 3)}


def network() -> onnx.ModelProto:
    model = build(NET, SHAPES)
    random = np.random.default_rng(2)
    for i, size in enumerate((8, 6)):
        for name, array in {
            f"gamma{i}": random.uniform(0.5, 2.0, size),
            f"beta{i}": random.normal(size=size),
            f"mean{i}": random.normal(size=size),
            f"var{i}": random.uniform(0.2, 4.0, size),
        }.items():
            model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


def suspected(folder: Path, mistake: str, change: Change = lambda _: None) -> list[Suspicion]:
    model = network()
    feeds = samples(model, 2)
    (folder / "folded").mkdir()
    onnx.save(model, folder / "reference.onnx")
    spoiled = folded(model, {"c1": mistake} if mistake else {})
    _, candidate = quantized(spoiled, folder / "folded", feeds=feeds)
    patient = Patient(candidate)
    change(patient)
    patient.save()
    return found(ENTRY, gathered(folder / "reference.onnx", candidate, feeds))


@pytest.mark.parametrize(
    ("mistake", "role", "words"),
    [
        ("no_gamma", "weight", "the scale is missing from the factors"),
        ("no_variance", "weight", "the deviation is missing from the factors"),
        ("variance_for_deviation", "weight", "they were divided by the variance, not by its root"),
        ("twice", "weight", "the factors were applied twice"),
        ("no_mean", "bias", "the mean was not subtracted"),
        ("no_beta", "bias", "the offset was not added"),
    ],
)
def test_the_mistake_is_told(mistake: str, role: str, words: str, tmp_path: Path) -> None:
    (suspicion,) = suspected(tmp_path, mistake)
    assert suspicion.layers == ("c1",)
    assert suspicion.evidence[f"{role}_mistake"] == words
    assert [s.kind for s in suspicion.sources if s.kind != "store"] == [role]


def test_an_exact_fold_is_not_suspected(tmp_path: Path) -> None:
    assert suspected(tmp_path, "") == []


def test_one_wrong_scale_for_the_whole_weight_is_no_wrong_fold(tmp_path: Path) -> None:
    def change(patient: Patient) -> None:
        patient.put("w1_scale", patient.constant("w1_scale") * np.float32(2))

    assert suspected(tmp_path, "", change) == []
