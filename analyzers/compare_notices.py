"""What a comparison warns of: the things that whole-tensor numbers hide."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from analyzers import measure
from analyzers.backends.onnxruntime import open_session
from analyzers.layer_rows import Measured, is_below, slice_errors, threshold_db
from analyzers.metrics.cosine import cosine
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.moments import Moments
from analyzers.project import Pair
from analyzers.records import Array, LayerRecord, Mode, Notice, Pairing, Score
from analyzers.sample_checks import non_finite_notice
from analyzers.trace import PairValues, measure_values

_FIDELITY_DB = 1.0
_EXACT_DB = 60.0  # differences between two numbers beyond it mean nothing
_SCORE_DROP = 0.01


def input_notices(not_finite: Mapping[str, Sequence[str]]) -> tuple[Notice, ...]:
    """Warn of samples with NaN or infinite values."""
    return (non_finite_notice(not_finite, code="nan_in_inputs", where=""),) if not_finite else ()


def difference_notices(fed: Mapping[str, Moments | None], threshold: float) -> tuple[Notice, ...]:
    """Warn where the two sides were fed different values: then no layer is to blame.

    Args:
        fed: Reference input -> moments of what the two sides were fed; None where the shapes differ.
        threshold: Cosine below which values count as different.
    """
    notices = []
    for name, whole in fed.items():
        if whole is None:
            words = "values of different shapes"
        elif float(cosine(whole)) < threshold or float(sqnr_db(whole)) < threshold_db(threshold):
            words = f"different values: cosine {float(cosine(whole)):.4f}, {float(sqnr_db(whole)):.1f} dB"
        else:
            continue
        notices.append(Notice("inputs_differ", f"The two sides were fed {words} at input '{name}'", name))
    return tuple(notices)


def broken_notices(
    pairing: Pairing, measured: Mapping[str, Measured], not_finite: Collection[str]
) -> tuple[Notice, ...]:
    """Name the first layer that makes NaN or infinite values on one side only.

    Args:
        pairing: Says the order.
        measured: What was measured, by reference tensor.
        not_finite: Samples whose inputs hold such values already; they are no evidence against a layer.
    """
    broken = [
        found
        for pair in pairing.pairs
        if (found := measured.get(pair.reference)) is not None and _breaks(found, not_finite)
    ]
    if not broken:
        return ()
    first = broken[0]
    kind = "NaN" if float(first.pooled.whole.one_sided_nan) > 0 else "infinite values"
    return (
        Notice(
            "nan_on_one_side",
            f"Layer '{first.pair.layer}' is the first to make {kind} on one side only "
            f"({len(broken)} of {len(measured)} compared tensors have some)",
            first.pair.layer,
        ),
    )


def _breaks(found: Measured, not_finite: Collection[str]) -> bool:
    return any(
        is_broken and name not in not_finite
        for name, is_broken in zip(found.samples, found.broken, strict=True)
    )


def slice_notices(
    outputs: Sequence[str], measured: Mapping[str, Measured], threshold: float
) -> tuple[Notice, ...]:
    """Warn of outputs that look fine as a whole while a part of them is lost."""
    notices = []
    for name in outputs:
        found = measured.get(name)
        if found is None or is_below(found.pooled.whole, threshold):
            continue
        lost = [
            error
            for error in slice_errors(found.slices, found.pooled.slices)
            if error.cosine < threshold or error.sqnr_db < threshold_db(threshold)
        ]
        if lost:
            worst = min(lost, key=lambda error: error.sqnr_db)
            notices.append(
                Notice(
                    "slice_lost",
                    f"Output '{name}' has cosine {float(cosine(found.pooled.whole)):.5f} as a whole, but its "
                    f"part {worst.start}:{worst.stop} on axis {worst.axis} ({worst.name}) only "
                    f"{worst.sqnr_db:.1f} dB",
                    name,
                )
            )
    return tuple(notices)


def score_notices(
    outputs: Sequence[LayerRecord], threshold: float, reference: Score | None, candidate: Score | None
) -> tuple[Notice, ...]:
    """Warn where the task's score is lost although every output has a high cosine."""
    if reference is None or candidate is None or reference.unit:
        return ()
    drop = reference.value - candidate.value
    cosines = [row.cosine for row in outputs if not math.isnan(row.cosine)]
    if drop < _SCORE_DROP or not cosines or min(cosines) < threshold:
        return ()
    return (
        Notice(
            "score_lost",
            f"{reference.metric} falls from {reference.value:.3f} to {candidate.value:.3f} although no "
            f"output has a cosine below {min(cosines):.5f}: judge this network by its score",
        ),
    )


def fidelity_notices(
    pair: Pair, feeds: Mapping[str, Array], first: Sequence[PairValues], mode: Mode
) -> tuple[Notice, ...]:
    """Run the candidate's own file on one sample and warn where its tapped form differs from it.

    Args:
        pair: Reference and candidate.
        feeds: What the candidate was fed in that sample.
        first: The output pairs of that sample, as tapped.
        mode: Session mode of the candidate.
    """
    if not first:
        return ()
    given = open_session(pair.candidate.path, mode=mode).run(feeds)
    notices = []
    for values in first:
        name = values.pair.reference
        output = given.get(pair.pairing.outputs.get(name, ""))
        if output is None or output.shape != values.reference.shape:
            continue
        codes = values.pair.quantization if output.dtype.kind in "iu" else None
        as_given = float(sqnr_db(measure.measure(values.reference, output, quantization=codes).whole))
        as_tapped = float(sqnr_db(measure_values(values).whole))
        if abs(min(as_given, _EXACT_DB) - min(as_tapped, _EXACT_DB)) > _FIDELITY_DB:
            notices.append(
                Notice(
                    "fidelity",
                    f"The candidate's own file gives {as_given:.1f} dB at output '{name}', the form in "
                    f"which its layers were read {as_tapped:.1f} dB (first sample)",
                    name,
                )
            )
    return tuple(notices)
