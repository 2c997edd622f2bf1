"""What the doors call: the engine's questions, from paths to answers.

Each question has a form that yields its steps (for jobs) and one that just returns the answer (for scripts).
"""

from __future__ import annotations

from pathlib import Path

from analyzers import compare as comparing
from analyzers import opening, run_bisect, run_search, scores
from analyzers.records import (
    BisectOptions,
    BisectResult,
    CompareOptions,
    Comparison,
    Inputs,
    QuantizeOptions,
    QuantizeResult,
    SearchOptions,
    SearchResult,
)
from analyzers.steps import Steps, finish


def quantize_steps(
    reference: Path,
    data: Path,
    output: Path,
    *,
    task: Path | None = None,
    samples: str | None = None,
    options: QuantizeOptions | None = None,
    allow_code: bool = False,
) -> Steps[QuantizeResult]:
    """Make a candidate from a calibration set; see ``analyzers.quantize.quantize``."""
    inputs = Inputs(
        reference, task=task, samples=samples, quantize=options or QuantizeOptions(), allow_code=allow_code
    )
    return opening.make_candidate(reference, data, output, inputs=inputs)


def compare_steps(inputs: Inputs, options: CompareOptions | None = None) -> Steps[Comparison]:
    """Compare layer by layer; see ``analyzers.compare.compare``."""
    options = options or CompareOptions()
    pair = yield from opening.open_pair(inputs)
    task = opening.open_task(inputs)
    data = opening.open_data(inputs, pair.reference.inputs, task)
    reference_score, candidate_score = yield from scores.task_scores(pair, inputs)
    return (
        yield from comparing.compare(
            pair,
            data,
            reference_score=reference_score,
            candidate_score=candidate_score,
            candidate_samples=opening.open_candidate_data(inputs, pair, task),
            mode=inputs.mode,
            threshold=options.threshold,
            isolated=options.isolated,
        )
    )


def bisect_steps(inputs: Inputs, options: BisectOptions | None = None) -> Steps[BisectResult]:
    """Find the layers that break the output; see ``analyzers.run_bisect.bisect_pair``."""
    pair = yield from opening.open_pair(inputs)
    return (yield from run_bisect.bisect_pair(pair, inputs, options or BisectOptions()))


def search_steps(inputs: Inputs, options: SearchOptions) -> Steps[SearchResult]:
    """Find the smallest fallback set that reaches a target; see ``analyzers.run_search.search_pair``."""
    pair = yield from opening.open_pair(inputs)
    return (yield from run_search.search_pair(pair, inputs, options))


def quantize(
    reference: Path,
    data: Path,
    output: Path,
    *,
    task: Path | None = None,
    samples: str | None = None,
    options: QuantizeOptions | None = None,
) -> QuantizeResult:
    """Make a candidate from a calibration set and return how it was made."""
    return finish(quantize_steps(reference, data, output, task=task, samples=samples, options=options))


def compare(inputs: Inputs, options: CompareOptions | None = None) -> Comparison:
    """Compare layer by layer and return one record per reference operator."""
    return finish(compare_steps(inputs, options))


def bisect(inputs: Inputs, options: BisectOptions | None = None) -> BisectResult:
    """Find the layers that break the output and return them with their proof."""
    return finish(bisect_steps(inputs, options))


def search(inputs: Inputs, options: SearchOptions) -> SearchResult:
    """Find the smallest fallback set that reaches a target and return it with its proof."""
    return finish(search_steps(inputs, options))
