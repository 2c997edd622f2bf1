from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from analyzers.diagnoses.activation_in_pieces import ENTRY
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient
from tests.networks import build, quantized, samples

DEEP = """
net (float[1,6,8,8] x0) => (float[1,6,8,8] x4)
{
    %s
}
"""
BLOCK = """
    [c{0}] y{0} = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x{0}, w{0}, b{0})
    [s{0}] g{0} = Sigmoid(y{0})
    [m{0}] x{1} = Mul(y{0}, g{0})
"""


def network() -> onnx.ModelProto:
    text = DEEP % "".join(BLOCK.format(i, i + 1) for i in range(4))
    shapes: dict[str, tuple[int, ...]] = {f"w{i}": (6, 6, 3, 3) for i in range(4)}
    return build(text, shapes | {f"b{i}": (6,) for i in range(4)})


def test_quantizers_inside_of_many_activations_are_a_matter_of_the_network(tmp_path: Path) -> None:
    model = network()
    reference, candidate = quantized(model, tmp_path)
    _coarsen(candidate, [f"y{i}" for i in range(4)])
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    whole = [s for s in found if s.scope == "network"]
    assert len(whole) == 1
    assert {s.name for s in whole[0].sources} >= {f"g{i}" for i in range(4)}
    assert whole[0].layers == ()


def test_a_coarse_piece_is_named_with_its_layer(tmp_path: Path) -> None:
    model = network()
    reference, candidate = quantized(model, tmp_path)
    _coarsen(candidate, ["y2"])
    found = [s for s in ENTRY.find(gathered(reference, candidate, samples(model, 2))) if s.scope == "layer"]
    assert ("c2",) in [s.layers for s in found]
    piece = next(s for s in found if s.layers == ("c2",))
    assert {s.name for s in piece.sources} == {"y2", "g2"}


def test_an_activation_without_quantizers_inside_is_fine(tmp_path: Path) -> None:
    model = network()
    reference, candidate = quantized(model, tmp_path, exclude=[f"{n}{i}" for i in range(4) for n in "csm"])
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))


def test_a_piece_with_a_fault_of_its_own_is_left_to_others(tmp_path: Path) -> None:
    model = network()
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    patient.put("g1_scale", np.array(patient.constant("g1_scale") / 4, dtype=np.float32))
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    whole = next(s for s in found if s.scope == "network")
    assert "g1" not in {s.name for s in whole.sources}
    assert "g2" in {s.name for s in whole.sources}


def test_ranges_that_rare_values_stretch_are_suspected_together(tmp_path: Path) -> None:
    model = network()
    feeds = samples(model, 8)
    feeds[0]["x0"][0, :, 0, 0] *= 60
    reference, candidate = quantized(model, tmp_path, feeds=feeds)
    found = [s for s in ENTRY.find(gathered(reference, candidate, feeds)) if s.layers == ("c0",)]
    assert {"y0", "g0", "x1"} in [{s.name for s in f.sources} for f in found]


def _coarsen(candidate: Path, tensors: list[str]) -> None:
    """Store tensors with half the levels, as a range from loud calibration samples does."""
    patient = Patient(candidate)
    for tensor in tensors:
        zero = patient.constant(f"{tensor}_zero_point")
        patient.put(f"{tensor}_scale", np.array(patient.constant(f"{tensor}_scale") * 3, dtype=np.float32))
        patient.put(f"{tensor}_zero_point", np.array(zero // 3 + 85, dtype=np.uint8))
    patient.save()
