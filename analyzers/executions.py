"""How far the candidate's own file depends on how it is executed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from analyzers import measure, moments
from analyzers.backends.onnxruntime import open_session
from analyzers.contracts import Runner, SampleSet
from analyzers.errors import BackendError, SampleError
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.moments import Moments
from analyzers.project import Pair
from analyzers.records import Array
from analyzers.trace import candidate_feeds

MOST_SAMPLES = 2  # kernels that saturate or fuse do so on every sample


def measure_executions(pair: Pair, samples: SampleSet) -> dict[str, float]:
    """Return the lowest SQNR of the candidate's outputs, in dB, by how its file is run.

    Returns:
        "as-executed": default optimizations with exact integer kernels; "literal": quantizers computed in
        float as they stand; "plain": onnxruntime's own defaults on this machine. Empty where outputs are
        integers, or the file reads something else than the samples hold.
    """
    reference = open_session(pair.reference.path)
    runners: dict[str, Runner] = {
        "as-executed": open_session(pair.candidate.path),
        "literal": open_session(pair.candidate.path, mode="literal"),
        "plain": open_session(pair.candidate.path, is_plain=True),
    }
    try:
        return _measure(pair, samples, reference, runners)
    except (BackendError, SampleError):
        return {}  # whoever needs the candidate's outputs will say why there are none


def _measure(
    pair: Pair, samples: SampleSet, reference: Runner, runners: Mapping[str, Runner]
) -> dict[str, float]:
    found: dict[str, dict[str, Moments]] = {how: {} for how in runners}
    for index in range(min(MOST_SAMPLES, len(samples))):
        feeds = samples[index].feeds
        wanted = reference.run(feeds)
        theirs = candidate_feeds(pair, feeds, None)
        for how, runner in runners.items():
            made = runner.run(theirs)
            for ours, name in pair.pairing.outputs.items():
                if not _can_be_compared(wanted[ours], made[name]):
                    return {}
                one = measure.measure(wanted[ours], made[name], has_channels=False).whole
                known = found[how].get(ours)
                found[how][ours] = one if known is None else moments.merge(known, one)
    return {how: _lowest(list(outputs.values())) for how, outputs in found.items() if outputs}


def _can_be_compared(reference: Array, candidate: Array) -> bool:
    return reference.shape == candidate.shape and reference.dtype.kind == candidate.dtype.kind == "f"


def _lowest(outputs: Sequence[Moments]) -> float:
    values = [-math.inf if float(o.one_sided) > 0 else float(sqnr_db(o)) for o in outputs]
    return min((v for v in values if not math.isnan(v)), default=math.nan)


def gap_db(executions: Mapping[str, float], one: str, other: str) -> float:
    """Return by how many dB the first way to run the file is better; nan where one is not known."""
    first, second = executions.get(one, math.nan), executions.get(other, math.nan)
    if math.isinf(first) and math.isinf(second):
        return 0.0 if (first > 0) == (second > 0) else first
    return first - second
