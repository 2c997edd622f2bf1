from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.diagnoses.postprocessing_quantized import ENTRY
from tests.analyzers.gathered import gathered
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples

DETECTOR = """
net (float[1,4,8,8] image) => (float[1,4,8,8] boxes, float[1,2,8,8] scores)
<float[1] stride = {%s}>
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [box] b = Conv<kernel_shape=[1,1]>(x0, w1, b1)
    [xy] l = Slice(b, n0, n2, n1)
    [wh] h = Slice(b, n2, n4, n1)
    [grow] e = Exp(h)
    [join] j = Concat<axis=1>(l, e)
    [pixels] boxes = Mul(j, stride)
    [cls] c = Conv<kernel_shape=[1,1]>(x0, w2, b2)
    [prob] scores = Sigmoid(c)
}
"""
SLICES = "int64[1] n0 = {0}, int64[1] n1 = {1}, int64[1] n2 = {2}, int64[1] n4 = {4}, "
SHAPES = {
    "w0": (6, 4, 3, 3), "b0": (6,), "w1": (4, 6, 1, 1), "b1": (4,), "w2": (2, 6, 1, 1), "b2": (2,),
}  # fmt: skip


@pytest.mark.parametrize(
    ("curve", "stride", "exclude", "is_suspected"),
    [
        ("Exp", "64.0", [], True),
        ("Sigmoid", "64.0", [], True),
        ("Sigmoid", "1.0", [], False),
        ("Exp", "64.0", ["grow", "join", "pixels", "prob"], False),
    ],
)
def test_a_decoder_in_integers_is_suspected_as_a_whole(
    curve: str, stride: str, exclude: list[str], is_suspected: bool, tmp_path: Path
) -> None:
    text = (DETECTOR % stride).replace("<float[1]", f"<{SLICES}float[1]").replace("Exp(h)", f"{curve}(h)")
    model = build(text, SHAPES)
    reference, candidate = quantized(model, tmp_path, exclude=exclude)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model))))
    assert len(found) == is_suspected
    if found:
        assert {"boxes", "scores"} <= {s.name for s in found[0].sources}
        assert not {"b", "c"} & {s.name for s in found[0].sources}


def test_a_classifier_has_no_such_tail(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = quantized(model, tmp_path)
    assert not list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
