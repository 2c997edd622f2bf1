"""Compare a candidate with its reference, layer by layer, over a set of samples."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from analyzers import measure, moments
from analyzers.compare_notices import (
    broken_notices,
    difference_notices,
    fidelity_notices,
    input_notices,
    score_notices,
    slice_notices,
)
from analyzers.contracts import SampleSet
from analyzers.divergence import first_divergence
from analyzers.isolate import isolate
from analyzers.layer_rows import Measured, is_below, layer_row
from analyzers.measure import PairMoments
from analyzers.metrics.cosine import cosine
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.moments import Moments
from analyzers.project import Pair
from analyzers.records import (
    Comparison,
    LayerRecord,
    Mode,
    Notice,
    Operator,
    Score,
    Slice,
    TensorPair,
    Unpaired,
)
from analyzers.sample_checks import non_finite_inputs
from analyzers.slices import tensor_slices
from analyzers.steps import Step, Steps
from analyzers.trace import PairValues, TracedSample, measure_values, trace


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """A comparison together with the moments that it was made from.

    Attributes:
        comparison: The answer.
        measured: What is kept of each tensor pair, by reference tensor.
    """

    comparison: Comparison
    measured: dict[str, Measured]


def compare(
    pair: Pair,
    samples: SampleSet,
    *,
    candidate_samples: SampleSet | None = None,
    mode: Mode = "as-executed",
    threshold: float = 0.99,
    isolated: bool = True,
    reference_score: Score | None = None,
    candidate_score: Score | None = None,
) -> Steps[Comparison]:
    """Run both models side by side and compare every paired tensor; see ``compare_in_full``."""
    compared = yield from compare_in_full(
        pair,
        samples,
        candidate_samples=candidate_samples,
        mode=mode,
        threshold=threshold,
        isolated=isolated,
        reference_score=reference_score,
        candidate_score=candidate_score,
    )
    return compared.comparison


def compare_in_full(
    pair: Pair,
    samples: SampleSet,
    *,
    candidate_samples: SampleSet | None = None,
    mode: Mode = "as-executed",
    threshold: float = 0.99,
    isolated: bool = True,
    reference_score: Score | None = None,
    candidate_score: Score | None = None,
) -> Steps[Compared]:
    """Run both models side by side and compare every paired tensor.

    Args:
        pair: Reference and candidate.
        samples: What the reference is fed.
        candidate_samples: What the candidate was fed where that differs.
        mode: Session mode of the candidate.
        threshold: Layers with a lower cosine are fallback candidates.
        isolated: Also measure each candidate layer fed with the reference's values.
        reference_score: Task score of the reference, to be carried along.
        candidate_score: Task score of the candidate.

    Raises:
        SampleError: The samples do not fit.
        BackendError: A model does not run.
    """
    tally = _Tally(tensor_slices(pair.reference.ir))
    not_finite: dict[str, tuple[str, ...]] = {}
    runs = trace(
        pair,
        samples,
        candidate_samples=candidate_samples,
        isolated=isolate(pair) if isolated else None,
        mode=mode,
    )
    yield Step("compare", 0, len(samples), "Opening the models")
    fidelity: list[Notice] = []
    fed: dict[str, Moments | None] = {}
    for done, run in enumerate(runs, start=1):
        if run.index == 0:
            outputs = [v for v in run.values if v.pair.reference in pair.reference.outputs]
            fidelity.extend(fidelity_notices(pair, run.candidate_feeds, outputs, mode))
        if inputs := non_finite_inputs(run.sample):
            not_finite[run.sample.name] = inputs
        if candidate_samples is not None:
            _add_fed(fed, pair, run)
        tally.add(run.values)
        yield Step("compare", done, run.runs, run.sample.name)
    measured = tally.measured(samples.names)
    rows = _rows(pair, measured, tally.misfits, threshold)
    output_rows = _output_rows(pair, measured, tally.misfits, threshold)
    below = {name: is_below(m.pooled.whole, threshold) for name, m in measured.items()}
    tensors: dict[str, list[str]] = {}
    for name, found in measured.items():
        tensors.setdefault(found.pair.layer, []).append(name)
    comparison = Comparison(
        coverage=pair.pairing.coverage,
        unpaired=(*pair.pairing.unpaired, *tally.misfits.values()),
        layers=rows,
        outputs=output_rows,
        samples=len(samples),
        mode=mode,
        threshold=threshold,
        first_divergence=first_divergence(pair.pairing.layers, tensors, below),
        reference_score=reference_score,
        candidate_score=candidate_score,
        warnings=(
            *pair.warnings,
            *input_notices(not_finite),
            *fidelity,
            *difference_notices(fed, threshold),
            *broken_notices(pair.pairing, measured, not_finite),
            *slice_notices(pair.reference.outputs, measured, threshold),
            *score_notices(output_rows, threshold, reference_score, candidate_score),
        ),
    )
    return Compared(comparison, measured)


def _add_fed(fed: dict[str, Moments | None], pair: Pair, run: TracedSample) -> None:
    """Compare what the two sides were fed."""
    for ours, theirs in pair.input_names.items():
        left, right = run.sample.feeds.get(ours), run.candidate_reals.get(theirs)
        if left is None or right is None or left.dtype.kind not in "fiu":
            continue
        known = fed.get(ours, moments.empty())
        if known is None or left.shape != right.shape:
            fed[ours] = None
        else:
            fed[ours] = moments.merge(known, measure.measure(left, right, has_channels=False).whole)


@dataclass(slots=True)
class _Tally:
    """What has been measured so far, by reference tensor; a few numbers per pair, channel and sample."""

    slices: Mapping[str, tuple[Slice, ...]]
    pooled: dict[str, PairMoments] = field(default_factory=dict)
    isolated: dict[str, Moments] = field(default_factory=dict)
    by_sample: dict[str, array[float]] = field(default_factory=dict)  # cosine, SQNR, broken; in turn
    pairs: dict[str, TensorPair] = field(default_factory=dict)
    misfits: dict[str, Unpaired] = field(default_factory=dict)

    def add(self, sample: Sequence[PairValues]) -> None:
        """Measure the pairs of one sample."""
        fitting = [values for values in sample if self._fits(values)]
        found = [measure_values(v, self.slices.get(v.pair.reference, ())) for v in fitting]
        if not found:
            return
        whole = Moments(np.stack([f.whole.table for f in found], axis=1))
        rows = zip(cosine(whole), sqnr_db(whole), whole.one_sided > 0, strict=True)
        for values, moment, (angle, ratio, is_broken) in zip(fitting, found, rows, strict=True):
            name = values.pair.reference
            self.pairs[name] = values.pair
            known = self.pooled.get(name)
            self.pooled[name] = moment if known is None else measure.merge(known, moment)
            self.by_sample.setdefault(name, array("d")).extend((angle, ratio, is_broken))
            self._add_isolated(name, values)

    def _add_isolated(self, name: str, values: PairValues) -> None:
        if values.isolated is None or values.isolated.shape != values.reference.shape:
            return
        found = measure.measure(values.reference, values.isolated, has_channels=False).whole
        known = self.isolated.get(name)
        self.isolated[name] = found if known is None else moments.merge(known, found)

    def _fits(self, values: PairValues) -> bool:
        pair = values.pair
        theirs = values.candidate.shape
        if pair.permutation is not None:
            theirs = tuple(theirs[i] for i in pair.permutation)
        if theirs != values.reference.shape:
            reason = f"its shape is {values.reference.shape}, the candidate's is {theirs}"
            self.misfits.setdefault(pair.reference, Unpaired(pair.reference, pair.node, reason))
        return pair.reference not in self.misfits

    def measured(self, names: Sequence[str]) -> dict[str, Measured]:
        """Return the finished measurements of all pairs that fit."""
        by_sample = {name: np.array(rows).reshape(-1, 3).T for name, rows in self.by_sample.items()}
        return {
            name: Measured(
                pair=self.pairs[name],
                pooled=pooled,
                isolated=self.isolated.get(name),
                slices=self.slices.get(name, ()),
                samples=tuple(names),
                by_sample=by_sample[name][:2],
                broken=tuple(by_sample[name][2] > 0),
            )
            for name, pooled in self.pooled.items()
            if name not in self.misfits
        }


def _rows(
    pair: Pair, measured: Mapping[str, Measured], misfits: Mapping[str, Unpaired], threshold: float
) -> tuple[LayerRecord, ...]:
    unpaired = {u.tensor for u in pair.pairing.unpaired} | set(misfits)
    rows = []
    for operator in pair.pairing.operators:
        if not operator.outputs:
            continue
        tensor = next((t for t in operator.outputs if t in measured), operator.outputs[0])
        rows.append(
            layer_row(operator, measured.get(tensor), is_unpaired=tensor in unpaired, threshold=threshold)
        )
    return tuple(rows)


def _output_rows(
    pair: Pair, measured: Mapping[str, Measured], misfits: Mapping[str, Unpaired], threshold: float
) -> tuple[LayerRecord, ...]:
    """Return one row per float output of the reference."""
    producers = {tensor: operator for operator in pair.pairing.operators for tensor in operator.outputs}
    rows = []
    for name in pair.reference.outputs:
        producer = producers.get(name)
        if producer is None:
            continue
        operator = Operator(producer.name, producer.op_type, producer.layer, (name,))
        found = None if name in misfits else measured.get(name)
        rows.append(layer_row(operator, found, is_unpaired=found is None, threshold=threshold))
    return tuple(rows)
