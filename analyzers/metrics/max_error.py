"""Largest absolute difference."""

from __future__ import annotations

import numpy as np

from analyzers.metrics import TensorMetric
from analyzers.moments import Moments, Values


def max_error(moments: Moments) -> Values:
    """Return the largest absolute difference at finite positions; ``nan`` without any."""
    return np.where(moments.count > 0, moments.max_error, np.nan)


ENTRY = TensorMetric("max_error", unit="", best=0.0, direction="lower", function=max_error)
