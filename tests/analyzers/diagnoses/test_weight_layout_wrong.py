from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.weight_layout_wrong import ENTRY
from tests.analyzers.weights import Change, evidence, found, integers, values

ORDER = [3, 0, 7, 1, 2, 6, 4, 5]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (values("w1", lambda w: w.swapaxes(2, 3)), "transposed: height and width are swapped"),
        (integers("w1", lambda q: q.swapaxes(2, 3)), "transposed: height and width are swapped"),
        (values("w1", lambda w: w.swapaxes(0, 1)), "transposed: out and in are swapped"),
        (integers("w1", lambda q: q.swapaxes(0, 1)), "transposed: out and in are swapped"),
        (values("w1", lambda w: w[:, :, ::-1, ::-1]), "turned round along height and width"),
        (values("w1", lambda w: w[:, ::-1]), "turned round along in"),
        (integers("w1", lambda q: q[ORDER]), "permuted along out: 8 of 8 are at other places"),
        (
            values("w1", lambda w: w.transpose(0, 2, 3, 1).reshape(w.shape)),
            "laid out in the order (out, height, width, in) but read as (out, in, height, width)",
        ),
    ],
)
def test_the_relation_to_the_reference_is_named(change: Change, words: str, tmp_path: Path) -> None:
    (suspicion,) = found(ENTRY, evidence(tmp_path, change))
    assert suspicion.layers == ("c1",)
    assert suspicion.evidence["relation"] == words
    assert suspicion.repairs[0].changes[0].quantization is not None


@pytest.mark.parametrize(
    "change",
    [
        integers("w1", lambda q: q),
        integers("w1", lambda q: np.random.default_rng(0).permuted(q.ravel()).reshape(q.shape)),
        values("w1", lambda w: 0.5 * w.swapaxes(2, 3) + 0.5 * w),
    ],
)
def test_values_in_no_order_are_no_layout(change: Change, tmp_path: Path) -> None:
    assert found(ENTRY, evidence(tmp_path, change)) == []
