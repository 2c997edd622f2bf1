"""Norm of the candidate over norm of the reference: sees the gain errors that cosine cannot see."""

from __future__ import annotations

import numpy as np

from analyzers.metrics import TensorMetric
from analyzers.moments import Moments, Values


def norm_ratio(moments: Moments) -> Values:
    """Return the ratio of Euclidean norms.

    Returns:
        1 for equal tensors, 0 where the candidate is zero, ``inf`` where only the reference is, ``nan`` where
        both are or nothing is finite.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return np.sqrt(moments.candidate_energy) / np.sqrt(moments.reference_energy)


ENTRY = TensorMetric("norm_ratio", unit="", best=1.0, direction="closer", function=norm_ratio)
