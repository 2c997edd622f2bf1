"""Signal to quantization noise ratio."""

from __future__ import annotations

import numpy as np

from analyzers.metrics import TensorMetric
from analyzers.moments import Moments, Values


def sqnr_db(moments: Moments) -> Values:
    """Return ten times the decimal logarithm of reference energy over the energy of the difference.

    Returns:
        ``inf`` for equal tensors, ``-inf`` where noise stands on a zero signal, ``nan`` where both sides are
        zero or nothing is finite.

    Source: Gray and Neuhoff (1998), "Quantization", IEEE Transactions on Information Theory 44(6), eq. 3.
    """
    signal, noise = moments.reference_energy, moments.noise
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        ratio = 10.0 * (np.log10(signal) - np.log10(noise))
    return np.where((signal > 0) | (noise > 0), ratio, np.nan)


ENTRY = TensorMetric("sqnr_db", unit="dB", best=float("inf"), direction="higher", function=sqnr_db)
