"""How far a score would move on other images: paired resamples of the images that were scored.

Raw AP of a resample is biased (rare classes drop out), so only *drops* against the reference on the same
resample are looked at, shifted so that their mean is the drop that was measured on the full set.
Source: B. Efron, "Bootstrap methods: another look at the jackknife", 1979, on paired differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from analyzers.contracts import Metric
from analyzers.records import Array
from analyzers.tasks.matches import ImageMatches, prepared_precision
from analyzers.tasks.metrics.average_precision import AveragePrecision

RESAMPLES = 400
PROVEN_SHARE = 0.95
_SEED = 20240
# Fewer images than this say nothing about others.
FEWEST_IMAGES = 8

Series = NDArray[np.float64]
"""The score of one trial on every resample, ``(RESAMPLES,)``."""


def weights_of(images: int, *, resamples: int = RESAMPLES) -> NDArray[np.float64]:
    """Return how often each image counts in each resample, ``(resamples, images)``; always the same ones."""
    random = np.random.default_rng([_SEED, images])
    return random.multinomial(images, np.full(images, 1 / images), size=resamples).astype(np.float64)


def resampled(
    metric: Metric, names: Sequence[str], observations: Sequence[Array], *, resamples: int = RESAMPLES
) -> Series:
    """Return the score of a trial on every resample, from what the metric kept of each image."""
    weights = weights_of(len(names), resamples=resamples)
    score = _scorer(metric, names, observations)
    return np.array([score(row) for row in weights])


def missing_share(reference: Series, trial: Series, *, full_drop: float, allowed_drop: float) -> float:
    """Return the share of resamples on which a trial falls by more than is allowed.

    Args:
        reference: The reference's scores on the resamples.
        trial: The trial's.
        full_drop: What the trial falls by on the full set: where the resamples are centred.
        allowed_drop: The largest drop that reaches the target.

    Returns:
        0..1, or ``nan`` where no resample is defined.
    """
    drops = reference - trial
    drops = drops[np.isfinite(drops)]
    if not drops.size:
        return float("nan")
    centred = drops - drops.mean() + full_drop
    return float((centred > allowed_drop).mean())


def interval(
    reference: Series, trial: Series, *, full_drop: float, share: float = 0.95
) -> tuple[float, float]:
    """Return the interval that holds this share of the drops, centred on the full set's."""
    drops = reference - trial
    drops = drops[np.isfinite(drops)]
    if not drops.size:
        return float("nan"), float("nan")
    centred = drops - drops.mean() + full_drop
    low, high = np.quantile(centred, ((1 - share) / 2, (1 + share) / 2))
    return float(low), float(high)


def _scorer(
    metric: Metric, names: Sequence[str], observations: Sequence[Array]
) -> Callable[[NDArray[np.float64]], float]:
    if isinstance(metric, AveragePrecision) and metric.value == "AP":
        matched = metric.matches(names, observations)
        if len(matched) == len(names):
            return _ap_scorer(matched)
    repeated = [np.asarray(o) for o in observations]

    def score(weights: NDArray[np.float64]) -> float:
        chosen = np.repeat(np.arange(len(names)), weights.astype(np.int64)).tolist()
        return metric.score([names[i] for i in chosen], [repeated[i] for i in chosen]).value

    return score


def _ap_scorer(matched: Sequence[ImageMatches]) -> Callable[[NDArray[np.float64]], float]:
    return prepared_precision(matched)
