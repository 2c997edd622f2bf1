"""Cosine similarity: direction only, blind to scale and to small parts."""

from __future__ import annotations

import numpy as np

from analyzers.metrics import TensorMetric
from analyzers.moments import Moments, Values


def cosine(moments: Moments) -> Values:
    """Return the cosine of the angle between the two sides.

    Returns:
        -1..1; nan where a side has no direction: all zero, empty, or both sides constant (any two positive
        constants have cosine 1).
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        norms = np.sqrt(moments.reference_energy) * np.sqrt(moments.candidate_energy)
        ratio = np.clip(moments.inner_product / norms, -1.0, 1.0)
    return np.where((norms > 0) & ~moments.is_constant, ratio, np.nan)


ENTRY = TensorMetric("cosine", unit="", best=1.0, direction="higher", function=cosine)
