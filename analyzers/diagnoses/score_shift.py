"""Scores that keep their order and come out lower or higher throughout."""

from __future__ import annotations

import math
from collections.abc import Iterator

from analyzers import moments
from analyzers.evidence import Evidence
from analyzers.moments import Moments
from analyzers.suspicions import Detector, Suspicion

# What users see of a deployed detector: boxes as before, confidences 0.05 lower.
SHIFT = 0.03
# The order of the scores is kept.
CORRELATION = 0.98
_PROBABILITY = 1.02  # with what rounding adds


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Say which outputs between 0 and 1 are a straight line of the reference's, but not the same one."""
    for name in evidence.pair.reference.outputs:
        measured = evidence.measured.get(name)
        if measured is None:
            continue
        parts = [(name, measured.pooled.whole)]
        parts += [
            (part.name or name, found)
            for part, found in zip(measured.slices, measured.pooled.slices, strict=True)
        ]
        for part, found in parts:
            line = _line(found)
            if line is not None:
                yield _suspicion(name, part, *line)
                break


def _line(found: Moments) -> tuple[float, float, float] | None:
    """Return shift at the highest score, slope and correlation; None where these are no shifted scores."""
    t = found.table
    low, high = float(t[moments.REFERENCE_MIN]), float(t[moments.REFERENCE_MAX])
    spread, other = float(t[moments.REFERENCE_SPREAD]), float(t[moments.CANDIDATE_SPREAD])
    if not (low >= 0 and 0.1 < high <= _PROBABILITY and spread > 0 and other > 0):
        return None
    slope = float(t[moments.CO_SPREAD]) / spread
    correlation = float(t[moments.CO_SPREAD]) / math.sqrt(spread * other)
    offset = float(found.candidate_mean) - slope * float(found.reference_mean)
    shift = offset + (slope - 1) * high
    return (shift, slope, correlation) if correlation >= CORRELATION and abs(shift) >= SHIFT else None


def _suspicion(output: str, part: str, shift: float, slope: float, correlation: float) -> Suspicion:
    where = f"output '{output}'" if part == output else f"part '{part}' of output '{output}'"
    direction = "lower" if shift < 0 else "higher"
    return Suspicion(
        cause="score_shift",
        layers=(),
        sources=(),
        message=(
            f"The scores of {where} keep their order (correlation {correlation:.3f}) but the highest come "
            f"out {abs(shift):.3f} {direction}"
        ),
        evidence={
            "output": output,
            "part": part,
            "shift_at_highest": shift,
            "slope": slope,
            "correlation": correlation,
        },
        fix=(
            f"{'Lower' if shift < 0 else 'Raise'} the confidence threshold by that much; no layer in FP16 "
            "for it"
        ),
        unproved="info",
    )


ENTRY = Detector(
    name="score_shift",
    looks_at="outputs between 0 and 1: whether scores keep their order and shift",
    causes=("score_shift",),
    find=find,
)
