"""Per-tensor metrics: pure functions of moments, one file each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from analyzers import registry
from analyzers.moments import Moments, Values


@dataclass(frozen=True, slots=True)
class TensorMetric:
    """One number about a tensor pair.

    Attributes:
        name: Its key in records and JSON.
        unit: "dB", "steps" or "" where it has the tensor's own unit or none.
        best: The value of equal tensors.
        direction: "higher" or "lower" is better, or "closer" to ``best``.
        function: Moments to values, one per group; nan where undefined.
    """

    name: str
    unit: str
    best: float
    direction: Literal["higher", "lower", "closer"]
    function: Callable[[Moments], Values]


@cache
def all_metrics() -> dict[str, TensorMetric]:
    """Return every metric of this folder by name."""
    return registry.discover(sys.modules[__name__], TensorMetric)


def value(metric: TensorMetric, whole: Moments) -> float:
    """Return a metric of a whole tensor."""
    return float(metric.function(whole))
