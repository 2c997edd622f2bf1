from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.per_tensor_weight_outlier_channel import ENTRY
from analyzers.records import Array
from tests.analyzers.weights import Spread, evidence, found


def louder(factor: float) -> Spread:
    def spread(weight: Array) -> Array:
        by = np.ones((len(weight), 1, 1, 1))
        by[5] = factor
        return weight * by

    return spread


@pytest.mark.parametrize(
    ("factor", "per_channel", "is_suspected"),
    [
        (200.0, False, True),
        (40.0, False, True),
        (4.0, False, False),
        (1.0, False, False),
        (200.0, True, False),
    ],
)
def test_a_loud_channel_starves_the_others_of_a_common_scale(
    factor: float, per_channel: bool, is_suspected: bool, tmp_path: Path
) -> None:
    seen = evidence(tmp_path, weights={"w1": louder(factor)}, per_channel=per_channel)
    suspected = found(ENTRY, seen)
    assert [s.layers for s in suspected] == ([("c1",)] if is_suspected else [])
    for suspicion in suspected:
        assert suspicion.evidence["channels"] == (5,)
        stored = suspicion.repairs[0].changes[0].quantization
        assert stored is not None
        assert (stored.axis, stored.scale.shape) == (0, (8,))
