from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnoses.channel_garbage import ENTRY
from analyzers.records import Array
from tests.analyzers.weights import Change, evidence, found, integers

RANDOM = np.random.default_rng(7)


def channels(chosen: list[int], *, is_zero: bool) -> Change:
    def change(stored: Array) -> Array:
        result = stored.copy()
        result[chosen] = 0 if is_zero else RANDOM.integers(-127, 128, result[chosen].shape)
        return result

    return integers("w1", change)


@pytest.mark.parametrize(
    ("chosen", "is_zero", "cause"),
    [
        ([5], False, "channel_garbage"),
        ([1, 6], False, "channel_garbage"),
        ([0, 3, 4], True, "channel_dropped"),
    ],
)
def test_the_channels_are_named(chosen: list[int], is_zero: bool, cause: str, tmp_path: Path) -> None:
    (suspicion,) = found(ENTRY, evidence(tmp_path, channels(chosen, is_zero=is_zero)))
    assert suspicion.cause == cause
    assert suspicion.layers == ("c1",)
    assert suspicion.evidence["channels"] == tuple(chosen)


def sparse(stored: Array) -> Array:
    """Spoil some values of every channel."""
    return np.where(RANDOM.uniform(size=stored.shape) < 0.1, -stored, stored)


@pytest.mark.parametrize(
    "change", [channels([], is_zero=True), channels(list(range(8)), is_zero=False), integers("w1", sparse)]
)
def test_no_channel_and_every_channel_are_not_single_ones(change: Change, tmp_path: Path) -> None:
    assert found(ENTRY, evidence(tmp_path, change)) == []
