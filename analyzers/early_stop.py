"""End a trial that cannot reach the target any more, on a part of the images.

Only clear misses end early: what reaches the target, or may, is always scored on the full set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.bench import spread
from analyzers.contracts import Metric
from analyzers.records import Array
from analyzers.resampling import resampled

SHARES = (0.25, 0.5)
FEWEST_IMAGES = 24  # on fewer images a paired drop scatters by points
RESAMPLES = 60
# So many standard deviations of the paired drop below the target, and never less than this.
DEVIATIONS = 5.0
MARGIN = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Stopping:
    """What a trial is held against while it runs.

    Attributes:
        metric: The task's.
        names: Samples of the full set.
        reference: What the metric kept of the reference on each of them.
        reference_score: The reference's score on the full set.
        target: Lowest score that the user accepts.
    """

    metric: Metric
    names: tuple[str, ...]
    reference: tuple[Array, ...]
    reference_score: float
    target: float

    def places(self) -> tuple[tuple[int, ...], ...]:
        """Return the places after which a trial is looked at: each part holds the ones before it."""
        count = len(self.names)
        parts: list[tuple[int, ...]] = []
        for share in SHARES:
            wanted = round(count * share)
            if wanted < FEWEST_IMAGES:
                continue
            known = parts[-1] if parts else ()
            more = [place for place in spread(count, wanted) if place not in known]
            parts.append(tuple(sorted([*known, *more][: max(wanted, len(known))])))
        return tuple(parts)

    def score_if_hopeless(self, places: Sequence[int], rows: Sequence[Array]) -> float | None:
        """Return the score that the part suggests if it clearly misses the target, else None.

        Args:
            places: Samples that were run.
            rows: What the metric kept of each.

        Returns:
            The reference's full score less the drop on this part.
        """
        names = [self.names[place] for place in places]
        theirs = [self.reference[place] for place in places]
        drop = self.metric.score(names, theirs).value - self.metric.score(names, rows).value
        allowed = self.reference_score - self.target
        if not drop - allowed > MARGIN:
            return None
        series = resampled(self.metric, names, theirs, resamples=RESAMPLES)
        drops = series - resampled(self.metric, names, rows, resamples=RESAMPLES)
        deviation = float(np.nanstd(drops))
        return self.reference_score - drop if drop - allowed > DEVIATIONS * deviation + MARGIN else None
