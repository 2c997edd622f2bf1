"""Root mean square error in steps of the candidate's scale: tells rounding from everything else."""

from __future__ import annotations

import numpy as np

from analyzers.metrics import TensorMetric
from analyzers.moments import Moments, Values


def rmse_scale(moments: Moments) -> Values:
    """Return the RMS error over the scale.

    Returns:
        0 for equal tensors, ``1 / sqrt(12) = 0.289`` for ideal rounding; ``nan`` without a positive scale or
        without finite values.

    Source: uniform rounding noise, Bennett (1948), "Spectra of quantized signals".
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return np.sqrt(moments.scaled_noise / moments.count)


ENTRY = TensorMetric("rmse_scale", unit="steps", best=0.0, direction="lower", function=rmse_scale)
