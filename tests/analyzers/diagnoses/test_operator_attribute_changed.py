from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.operator_attribute_changed import ENTRY
from tests.analyzers.gathered import gathered
from tests.analyzers.surgery import Patient
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples

NET = """
net (float[1,4,10,10] image) => (float[1,4,20,20] out, float[1,36] probabilities)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [act] a0 = LeakyRelu<alpha=0.1>(x0)
    [pool] p0 = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2], count_include_pad=1>(a0)
    [up] u0 = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(a0, , scales)
    [c1] out = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(u0, w1, b1)
    [c2] x2 = Conv<kernel_shape=[1,1], strides=[1,1]>(p0, w2)
    [crop] k = Slice(x2, from, to, axes)
    [soft] t = Softmax<axis=1>(k)
    [flat] probabilities = Flatten(t)
}
"""
SHAPES = {"w0": (4, 4, 3, 3), "b0": (4,), "w1": (4, 4, 3, 3), "b1": (4,), "w2": (4, 4, 1, 1)}
SCALES = (
    """<float[4] scales = {1,1,2,2}, int64[2] from = {0,0}, int64[2] to = {3,3}, int64[2] axes = {2,3}>"""
)


@pytest.mark.parametrize(
    ("node", "attributes", "layer", "words"),
    [
        ("up", {"coordinate_transformation_mode": "asymmetric"}, "up", "half_pixel became asymmetric"),
        ("up", {"coordinate_transformation_mode": "align_corners"}, "up", "align_corners"),
        ("act", {"alpha": 0.4}, "act", "alpha"),
        ("pool", {"count_include_pad": 0}, "pool", "count_include_pad 1 became 0"),
        ("c1", {"dilations": [2, 2], "pads": [2, 2, 2, 2]}, "c1", "dilations"),
        ("soft", {"axis": 3}, "soft", "axis 1 became 3"),
    ],
)
def test_a_changed_attribute_is_named(
    node: str, attributes: dict[str, object], layer: str, words: str, tmp_path: Path
) -> None:
    reference, candidate = _made(tmp_path)
    patient = Patient(candidate)
    patient.tell(node, **attributes)
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(_network(), 2))))
    assert [s.layers for s in found] == [(layer,)]
    assert words in found[0].message


@pytest.mark.parametrize(
    ("node", "attributes"),
    [
        ("c0", {"auto_pad": "SAME_UPPER", "pads": [0, 0, 0, 0]}),
        ("c2", {"dilations": [1, 1], "group": 1, "pads": [0, 0, 0, 0]}),
        ("up", {"nearest_mode": "floor", "cubic_coeff_a": -0.5}),
        ("soft", {"axis": -3}),
        ("pool", {"ceil_mode": 0}),
    ],
)
def test_another_way_to_say_the_same_is_no_change(
    node: str, attributes: dict[str, object], tmp_path: Path
) -> None:
    reference, candidate = _made(tmp_path)
    patient = Patient(candidate)
    if "auto_pad" in attributes:
        patient.tell(node, auto_pad="SAME_UPPER")
        kept = [a for a in patient.node(node).attribute if a.name != "pads"]
        del patient.node(node).attribute[:]
        patient.node(node).attribute.extend(kept)
    else:
        patient.tell(node, **attributes)
    patient.save()
    assert not list(ENTRY.find(gathered(reference, candidate, samples(_network(), 2))))


@pytest.mark.parametrize(
    ("factor", "scale", "is_changed"), [(0.5, 1.0, True), (0.5, 2.0, False), (1.0, 0.5, False)]
)
def test_a_factor_is_changed_where_the_weights_do_not_make_up_for_it(
    factor: float, scale: float, is_changed: bool, tmp_path: Path
) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    patient = Patient(candidate)
    patient.tell("head", alpha=factor)
    patient.put("wh_scale", (patient.constant("wh_scale") * scale).astype(np.float32))
    patient.save()
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert [s.layers for s in found] == ([("head",)] if is_changed else [])


def test_an_attribute_without_effect_on_these_values_is_no_fault(tmp_path: Path) -> None:
    reference, candidate = _made(tmp_path)
    patient = Patient(candidate)
    patient.tell("act", alpha=0.1004)
    patient.save()
    assert not list(ENTRY.find(gathered(reference, candidate, samples(_network(), 2))))


def _network():  # type: ignore[no-untyped-def]
    text = NET.replace("out, float[1,36] probabilities)\n{", f"out, float[1,36] probabilities)\n{SCALES}\n{{")
    return build(text, SHAPES, opset=13)


def _made(folder: Path) -> tuple[Path, Path]:
    return quantized(_network(), folder)
