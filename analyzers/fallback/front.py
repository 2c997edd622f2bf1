"""The score against cost curve: what each cost can buy, and where more of it buys little."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.records import FrontPoint, Trial

_LIMIT = 200.0  # infinite decibels have a place on the curve too
_FEWEST_POINTS = 3  # two points have no bend between them


def front_of(trials: Sequence[Trial]) -> tuple[FrontPoint, ...]:
    """Return the trials that no cheaper or equally cheap trial beats, cheapest first.

    Among equals in cost and score the one with fewer layers stays, then the earlier one. Trials that overflow
    are no points. Those that ended early miss the target, but they may be much for little: they are points
    that say on how many samples.
    """
    points = [point_of(t) for t in trials if not t.overflow and t.score == t.score]
    points.sort(key=lambda p: (p.cost, -p.score, p.layers))
    front: list[FrontPoint] = []
    for point in points:
        if not front or point.score > front[-1].score:
            front.append(point)
    return tuple(front)


def point_of(trial: Trial) -> FrontPoint:
    """Return a priced trial as a point."""
    return FrontPoint(
        fallback=trial.fallback,
        score=trial.score,
        layers=trial.layers,
        islands=trial.islands,
        macs_fraction=trial.macs_fraction,
        weight_bytes=trial.weight_bytes,
        converted_bytes=trial.converted_bytes,
        cost=trial.cost,
        samples=trial.samples,
    )


def knee_of(front: Sequence[FrontPoint]) -> FrontPoint | None:
    """Return the point that lies farthest above the line from the first to the last one.

    Source: the knee of a concave curve as in Satopaa et al., "Finding a Kneedle in a Haystack", 2011, without
    smoothing, since the points are few and exact. None if no point lies above the line.
    """
    if len(front) < _FEWEST_POINTS:
        return None
    first, last = front[0], front[-1]
    width = last.cost - first.cost
    low, high = _finite(first.score), _finite(last.score)
    if not width > 0 or not high > low:
        return None

    def height(point: FrontPoint) -> float:
        return (_finite(point.score) - low) / (high - low) - (point.cost - first.cost) / width

    best = max(front, key=height)  # the cheapest of equals
    return best if height(best) > 0 else None


def _finite(score: float) -> float:
    return max(-_LIMIT, min(_LIMIT, score))
