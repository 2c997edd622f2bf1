"""Mean error: a shift of the whole tensor, which adds up through the layers after it."""

from __future__ import annotations

import numpy as np

from analyzers.metrics import TensorMetric
from analyzers.moments import Moments, Values


def mean_error(moments: Moments) -> Values:
    """Return the mean of candidate minus reference; ``nan`` without finite values."""
    return np.where(moments.count > 0, moments.candidate_mean - moments.reference_mean, np.nan)


ENTRY = TensorMetric("mean_error", unit="", best=0.0, direction="closer", function=mean_error)
