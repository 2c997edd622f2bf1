from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.diagnoses.unequal_requantization import ENTRY
from analyzers.suspicions import Source
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import set_range, stored_range
from tests.networks import build, quantized, samples

SKIP = """
net (float[1,3,8,8] x) => (float[1,4,8,8] y)
{
    [left] a = Conv<kernel_shape=[1,1]>(x, w0)
    [right] r = Conv<kernel_shape=[1,1]>(x, w1)
    [quiet] b = Mul(r, factor)
    [sum] s = Add(a, b)
    [head] y = Conv<kernel_shape=[1,1]>(s, w2)
}
"""
SHAPES = {"w0": (4, 3, 1, 1), "w1": (4, 3, 1, 1), "w2": (4, 4, 1, 1)}


def skip(factor: float) -> onnx.ModelProto:
    model = build(SKIP, SHAPES)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(factor), "factor"))
    return model


@pytest.mark.parametrize(
    ("factor", "is_forced", "sources"),
    [
        (0.03, True, (Source("store", "b"), Source("store", "s"))),
        (0.03, False, None),  # a scale of its own
        (0.5, True, None),  # of like range
        (1e-3, False, (Source("store", "s"),)),
    ],
)
def test_a_small_summand_is_suspected_where_it_is_lost(
    factor: float, is_forced: bool, sources: tuple[Source, ...] | None, tmp_path: Path
) -> None:
    model = skip(factor)
    reference, candidate = quantized(model, tmp_path)
    if is_forced:
        set_range(candidate, "b", *stored_range(candidate, "a"))
    found = list(ENTRY.find(gathered(reference, candidate, samples(model))))
    assert [s.sources for s in found] == ([] if sources is None else [sources])
    assert all(s.layers == ("sum",) and s.evidence["small"] == "b" for s in found)
