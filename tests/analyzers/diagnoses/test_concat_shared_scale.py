from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.diagnoses.concat_shared_scale import ENTRY
from analyzers.suspicions import Source
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import set_range, stored_range
from tests.networks import build, quantized, samples

HEAD = """
net (float[1,3,8,8] image) => (float[1,64,6] out)
{
    [boxes] b = Conv<kernel_shape=[1,1]>(image, wb)
    [decode] d = Mul(b, stride)
    [scores] s = Conv<kernel_shape=[1,1]>(image, ws)
    [sigmoid] p = Sigmoid(s)
    [flat_boxes] fb = Reshape(d, box_shape)
    [flat_scores] fs = Reshape(p, score_shape)
    [turn_boxes] tb = Transpose<perm=[0,2,1]>(fb)
    [turn_scores] ts = Transpose<perm=[0,2,1]>(fs)
    [join] out = Concat<axis=2>(tb, ts)
}
"""


def head(stride: float, folder: Path) -> tuple[Path, Path, list[dict[str, object]]]:
    model = build(HEAD, {"wb": (4, 3, 1, 1), "ws": (2, 3, 1, 1)})
    for name, values in {
        "stride": np.float32(stride),
        "box_shape": np.array([1, 4, 64]),
        "score_shape": np.array([1, 2, 64]),
    }.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(values), name))
    reference, candidate = quantized(model, folder)
    return reference, candidate, samples(model)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("stride", "is_suspected", "is_erased"), [(600.0, True, True), (60.0, True, False), (1.0, False, False)]
)
def test_boxes_and_scores_under_one_scale_are_suspected(
    stride: float, is_suspected: bool, is_erased: bool, tmp_path: Path
) -> None:
    reference, candidate, feeds = head(stride, tmp_path)
    found = list(ENTRY.find(gathered(reference, candidate, feeds)))  # type: ignore[arg-type]
    assert [s.layers for s in found] == ([("join",)] if is_suspected else [])
    for suspicion in found:
        assert suspicion.sources == (Source("store", "out"),)
        assert suspicion.evidence["erased"] is is_erased
        assert suspicion.evidence["starved"] == ("ts",)
        assert "'tb'" in suspicion.message


def test_inputs_that_were_forced_to_the_joint_scale_are_lifted_with_it(tmp_path: Path) -> None:
    reference, candidate, feeds = head(600.0, tmp_path)
    for tensor in ("p", "d"):
        set_range(candidate, tensor, *stored_range(candidate, "out"))
    (suspicion,) = ENTRY.find(gathered(reference, candidate, feeds))  # type: ignore[arg-type]
    assert suspicion.layers == ("join",)
    assert suspicion.sources == (Source("store", "out"), Source("store", "p"))
    assert suspicion.evidence["forced_inputs"] == ("p",)
    assert "scale of its own" in suspicion.repairs[0].how
