"""The score against cost curve: what each number of layers can buy."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.fallback.islands import count_islands
from analyzers.records import FrontPoint, Layer, Trial


def front_of(layers: Sequence[Layer], trials: Sequence[Trial], *, samples: int) -> tuple[FrontPoint, ...]:
    """Return the trials that no trial with fewer or as many layers beats, smallest first.

    Among equals in layers and score the one with fewer islands stays, then the earlier one. Trials that
    overflow, or that saw only part of the samples, are no points.
    """
    points = [
        FrontPoint(
            fallback=trial.fallback,
            score=trial.score,
            layers=len(trial.fallback),
            islands=count_islands(layers, frozenset(trial.fallback)),
        )
        for trial in trials
        if trial.samples == samples and not trial.overflow and trial.score == trial.score
    ]
    points.sort(key=lambda p: (p.layers, -p.score, p.islands))
    front: list[FrontPoint] = []
    for point in points:
        if not front or point.score > front[-1].score:
            front.append(point)
    return tuple(front)
