"""What the doors call: the engine's questions, from paths to answers.

Each question has a form that yields its steps (for jobs) and one that just returns the answer (for scripts).
"""

from __future__ import annotations

from pathlib import Path

from analyzers import compare as comparing
from analyzers import opening
from analyzers.records import CompareOptions, Comparison, Inputs, QuantizeOptions, QuantizeResult
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
    return (
        yield from comparing.compare(
            pair,
            data,
            candidate_samples=opening.open_candidate_data(inputs, pair, task),
            mode=inputs.mode,
            threshold=options.threshold,
            isolated=options.isolated,
        )
    )


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
