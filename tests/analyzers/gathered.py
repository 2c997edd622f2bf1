"""Real evidence of a reference and a candidate on disk, for tests of what looks at it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from analyzers.comparison import compare_in_full
from analyzers.evidence import Evidence
from analyzers.gathering import gather
from analyzers.project import open_models
from analyzers.records import Array
from analyzers.steps import finish
from tests.analyzers.sets import MemorySamples


def gathered(
    reference: Path,
    candidate: Path,
    feeds: Sequence[Mapping[str, Array]],
    *,
    calibration: Sequence[Mapping[str, Array]] | None = None,
) -> Evidence:
    """Compare the two on these feeds, take their layers apart, and return the evidence."""
    pair = open_models(reference, candidate)
    samples = MemorySamples([dict(feed) for feed in feeds])
    compared = finish(compare_in_full(pair, samples))
    known = None if calibration is None else MemorySamples([dict(feed) for feed in calibration])
    return finish(gather(pair, compared, samples, calibration=known))
