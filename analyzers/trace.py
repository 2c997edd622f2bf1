"""Run both sides over a set and hand out tensor pairs, sample by sample, in constant memory.

The candidate is tapped at the integers that it stores: a float tap would keep onnxruntime from using its
integer kernels. The isolated results come from a model that contains the whole reference, which then needs
no run of its own. Where the tapped tensors of one sample would not fit into the budget, the set is run
several times with a part of the taps each.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from analyzers.backends.onnxruntime import open_session
from analyzers.contracts import Runner, SampleSet
from analyzers.errors import SampleError
from analyzers.graph import FLOAT_TYPES, save_model, with_outputs
from analyzers.isolate import Isolated
from analyzers.levels import dequantize, quantize, read_levels
from analyzers.measure import PairMoments, measure
from analyzers.project import Pair
from analyzers.records import INPUT_LAYER, Array, Mode, Quantization, Sample, Slice, TensorPair
from analyzers.shape_arithmetic import infer_static_shapes

TAP_BUDGET_BYTES = 1 << 30
_BYTES_PER_VALUE = 12  # float32 of the reference and of the isolated layer; the candidate's at most as much


@dataclass(frozen=True, slots=True, eq=False)
class PairValues:
    """One tensor pair of one sample.

    Attributes:
        pair: Which tensors.
        reference: The reference's values.
        candidate: The candidate's, as tapped: integer codes where ``pair.quantization`` is set.
        isolated: Float values of the candidate's layer fed with the reference's; None where not measured.
    """

    pair: TensorPair
    reference: Array
    candidate: Array
    isolated: Array | None


@dataclass(frozen=True, slots=True, eq=False)
class TracedSample:
    """One sample that was run on both sides, with a part of all pairs (all of them where memory allows).

    Attributes:
        index: Place of the sample in the set.
        sample: The sample as the reference was fed.
        candidate_feeds: What the candidate's file is fed.
        candidate_reals: The same as real values where the file reads raw integers.
        runs: How many such records the whole trace has.
        values: The pairs, in the order of the pairing.
    """

    index: int
    sample: Sample
    candidate_feeds: dict[str, Array]
    candidate_reals: dict[str, Array]
    runs: int
    values: tuple[PairValues, ...]


def trace(
    pair: Pair,
    samples: SampleSet,
    *,
    candidate_samples: SampleSet | None = None,
    isolated: Isolated | None = None,
    mode: Mode = "as-executed",
    budget_bytes: int = TAP_BUDGET_BYTES,
) -> Iterator[TracedSample]:
    """Run both sides and yield their tensor pairs.

    Args:
        pair: Reference and candidate.
        samples: What the reference is fed.
        candidate_samples: What the candidate is fed, under its own input names; None for the same.
        isolated: The model of isolated layers, if these are wanted.
        mode: Session mode of the candidate.
        budget_bytes: The tapped tensors of one sample should fit into this.

    Raises:
        SampleError: There are no samples, or the two sets differ in length, or do not fit the candidate.
    """
    _check_sets(samples, candidate_samples)
    groups = tap_groups(pair, samples[0], budget_bytes)
    for group in groups:
        with tempfile.TemporaryDirectory(prefix="tearline-") as folder:
            sides = _open_sides(pair, group, isolated, mode, Path(folder))
            for index in range(len(samples)):
                sample = samples[index]
                theirs = None if candidate_samples is None else candidate_samples[index].feeds
                feeds = candidate_feeds(pair, sample.feeds, theirs)
                reals = as_reals(pair, feeds)
                values = sides.run(group, sample.feeds, reals)
                yield TracedSample(index, sample, feeds, reals, len(groups) * len(samples), values)


def measure_values(values: PairValues, slices: Sequence[Slice] = ()) -> PairMoments:
    """Return the moments of a traced pair.

    Raises:
        ValueError: The shapes differ.
    """
    pair = values.pair
    return measure(
        values.reference,
        values.candidate,
        quantization=pair.quantization,
        permutation=pair.permutation,
        slices=slices,
    )


def candidate_feeds(
    pair: Pair, feeds: Mapping[str, Array], theirs: Mapping[str, Array] | None
) -> dict[str, Array]:
    """Return what the candidate's file is fed: its own sample, or the reference's under its names and types.

    Raises:
        SampleError: ``missing_input``: the candidate reads something that the reference does not.
    """
    if theirs is not None:
        return dict(theirs)
    ours = {theirs: name for name, theirs in pair.input_names.items()}
    stored = _stored_inputs(pair)
    found: dict[str, Array] = {}
    for spec in pair.candidate.inputs:
        array = feeds.get(ours.get(spec.name, spec.name))
        if array is None:
            raise SampleError(
                "missing_input",
                f"The candidate reads '{spec.name}', which the reference does not have",
                where=str(pair.candidate.path),
                hint="Give what the candidate was fed as samples of its own",
            )
        found[spec.name] = _as_type(array, spec.dtype, stored.get(spec.name))
    return found


def as_reals(pair: Pair, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return what the QDQ form is fed, which reads reals where the file reads raw integers."""
    stored = _stored_inputs(pair)
    reals = {v.name for v in pair.canonical.graph.inputs if v.dtype in FLOAT_TYPES}
    return {
        name: dequantize(array, read_levels(stored[name], array.shape))
        if array.dtype.kind in "iu" and name in reals and name in stored
        else array
        for name, array in feeds.items()
    }


def _stored_inputs(pair: Pair) -> dict[str, Quantization]:
    """Return how the candidate stores its graph inputs, by its names."""
    names = pair.input_names
    return {
        names[p.reference]: p.quantization
        for p in pair.pairing.pairs
        if p.layer == INPUT_LAYER and p.reference in names and p.quantization is not None
    }


def _as_type(array: Array, dtype: str, quantization: Quantization | None) -> Array:
    """Store a feed as the candidate reads it: raw integers at its border, or another float type."""
    if array.dtype.kind != "f" or not dtype or array.dtype.name == dtype:
        return array
    if quantization is not None and np.dtype(dtype).kind in "iu":
        return quantize(array, quantization).astype(dtype)
    return array.astype(dtype) if np.dtype(dtype).kind == "f" else array


def _check_sets(samples: SampleSet, candidate_samples: SampleSet | None) -> None:
    if len(samples) == 0:
        raise SampleError(
            "zero_samples", "There are no samples", hint="Choose a set with at least one sample"
        )
    if candidate_samples is not None and len(candidate_samples) != len(samples):
        raise SampleError(
            "malformed_inputs",
            f"The reference gets {len(samples)} samples and the candidate {len(candidate_samples)}",
            hint="Give both sides the same samples in the same order",
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Sides:
    """Open sessions for one group of taps; None where a side is not asked for anything."""

    reference: Runner | None
    candidate: Runner | None
    isolated: Mapping[str, str]

    def run(
        self, group: Sequence[TensorPair], feeds: Mapping[str, Array], their_feeds: Mapping[str, Array]
    ) -> tuple[PairValues, ...]:
        ours = {**feeds, **(self.reference.run(feeds) if self.reference else {})}
        theirs = {**their_feeds, **(self.candidate.run(their_feeds) if self.candidate else {})}
        return tuple(
            PairValues(
                pair=pair,
                reference=ours[pair.reference],
                candidate=theirs[pair.tap],
                isolated=ours.get(self.isolated.get(pair.reference, "")),
            )
            for pair in group
        )


def _open_sides(
    pair: Pair, group: Sequence[TensorPair], isolated: Isolated | None, mode: Mode, folder: Path
) -> _Sides:
    wanted = [p.reference for p in group]
    results: dict[str, str] = {}
    model = pair.reference.ir
    if isolated is not None:
        results = {name: isolated.results[name] for name in wanted if name in isolated.results}
        model = isolated.model
    ours = _open(
        model, [*wanted, *results.values()], folder / "reference", "as-executed", is_simulated=bool(results)
    )
    theirs = _open(pair.canonical, [p.tap for p in group], folder / "candidate", mode, is_simulated=False)
    return _Sides(ours, theirs, results)


def _open(
    model: ir.Model, names: Sequence[str], folder: Path, mode: Mode, *, is_simulated: bool
) -> Runner | None:
    inputs = {v.name for v in model.graph.inputs}
    taps = [name for name in dict.fromkeys(names) if name not in inputs]
    if not taps:
        return None
    path = save_model(with_outputs(model, taps), folder)
    return open_session(path, mode=mode, is_simulated=is_simulated)


def tap_groups(pair: Pair, sample: Sample, budget_bytes: int) -> list[tuple[TensorPair, ...]]:
    """Split the pairs, in order, into runs whose tensors fit into the budget."""
    sizes = _tensor_sizes(pair.reference.ir, sample)
    largest = max(sizes.values(), default=0)
    groups: list[list[TensorPair]] = [[]]
    used = 0
    for tensors in pair.pairing.pairs:
        size = sizes.get(tensors.reference, largest) * _BYTES_PER_VALUE
        if groups[-1] and used + size > budget_bytes:
            groups.append([])
            used = 0
        groups[-1].append(tensors)
        used += size
    return [tuple(group) for group in groups]


def _tensor_sizes(model: ir.Model, sample: Sample) -> dict[str, int]:
    """Return the number of values of every tensor whose shape follows from the sample's."""
    copy = model.clone()
    for value in copy.graph.inputs:
        array = sample.feeds.get(value.name or "")
        if array is not None:
            value.shape = ir.Shape(array.shape)
    for node in copy.graph:
        for value in node.outputs:
            value.shape = None
    infer_static_shapes(copy)
    sizes: dict[str, int] = {}
    for node in copy.graph:
        for value in node.outputs:
            dims = () if value.shape is None else tuple(value.shape)
            if value.shape is not None and all(isinstance(d, int) for d in dims):
                sizes[value.name or ""] = math.prod(d for d in dims if isinstance(d, int))
    return sizes
