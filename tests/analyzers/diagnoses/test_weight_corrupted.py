from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.weight_corrupted import ENTRY
from analyzers.records import Array
from tests.analyzers.weights import Change, evidence, found, integers, values

RANDOM = np.random.default_rng(5)


def flipped(bit: int, share: float) -> Change:
    def flip(stored: Array) -> Array:
        mask = np.where(RANDOM.uniform(size=stored.shape) < share, 1 << bit, 0).astype(np.uint8)
        return (stored.view(np.uint8) ^ mask).view(np.int8)

    return integers("w1", flip)


def another_run(stored: Array) -> Array:
    return 0.3 * stored + RANDOM.normal(size=stored.shape) * stored.std()


def neighbours(stored: Array) -> Array:
    return np.clip(stored.astype(int) + RANDOM.integers(-1, 2, stored.shape) // 2, -127, 127)


@pytest.mark.parametrize(
    ("change", "is_suspected"),
    [
        (flipped(6, 0.1), True),
        (flipped(7, 0.01), True),
        (integers("w1", lambda q: np.roll(q.ravel(), 16).reshape(q.shape)), True),
        (values("w1", another_run), True),
        (flipped(0, 0.3), False),
        (integers("w1", neighbours), False),
        (integers("w1", lambda q: q), False),
    ],
)
def test_weights_that_rounding_does_not_explain_are_suspected(
    change: Change, is_suspected: bool, tmp_path: Path
) -> None:
    suspected = found(ENTRY, evidence(tmp_path, change))
    assert [s.layers for s in suspected] == ([("c1",)] if is_suspected else [])
    for suspicion in suspected:
        assert [(s.kind, s.name) for s in suspicion.sources] == [("weight", "c1")]
        assert suspicion.is_fault


def test_a_buffer_that_was_read_too_late_is_told(tmp_path: Path) -> None:
    change = integers("w1", lambda q: np.roll(q.ravel(), 16).reshape(q.shape))
    (suspicion,) = found(ENTRY, evidence(tmp_path, change))
    assert suspicion.evidence["relation"] == "moved by 16 elements along its buffer"
