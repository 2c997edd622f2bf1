from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.different_checkpoint import ENTRY
from analyzers.records import Array
from tests.analyzers.surgery import Patient
from tests.analyzers.weights import Change, evidence, found, values

RANDOM = np.random.default_rng(13)


def drifted(amount: float, *names: str) -> Change:
    def more_training(weight: Array) -> Array:
        return weight + amount * weight.std() * RANDOM.normal(size=weight.shape)

    def change(patient: Patient) -> None:
        for name in names:
            values(name, more_training)(patient)

    return change


def halved(patient: Patient) -> None:
    for name in ("w0", "w1", "wh"):
        patient.put(f"{name}_scale", patient.constant(f"{name}_scale") * np.float32(0.5))


@pytest.mark.parametrize(
    ("change", "is_suspected"),
    [
        (drifted(0.5, "w0", "w1", "wh"), True),
        (drifted(5.0, "w0", "w1", "wh"), True),
        (drifted(0.5, "w1"), False),
        (drifted(0.0, "w0", "w1", "wh"), False),
        (halved, False),
    ],
)
def test_a_network_whose_weights_are_others_was_made_from_another_checkpoint(
    change: Change, is_suspected: bool, tmp_path: Path
) -> None:
    suspected = found(ENTRY, evidence(tmp_path, change))
    assert len(suspected) == is_suspected
    for suspicion in suspected:
        assert suspicion.scope == "network"
        assert suspicion.layers == ()
        assert {s.name for s in suspicion.sources if s.kind == "weight"} == {"c0", "c1", "head"}
