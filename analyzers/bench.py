"""What scoring needs to know, small enough to send to every worker, and how a worker opens it.

Each worker opens samples and metric itself, once, from paths: sending tensors between processes would cost
more than making them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from analyzers import opening, samples
from analyzers.contracts import Metric, SampleSet
from analyzers.hashing import file_digest
from analyzers.project import Pair
from analyzers.records import Array, Inputs, Mode, Slice, TensorSpec
from analyzers.serialize import to_json
from analyzers.slices import output_slices
from analyzers.tasks.metric import make_metric

SetName = Literal["data", "candidate_data"]


@dataclass(frozen=True, slots=True)
class Bench:
    """Samples, metric and reference of one project.

    Attributes:
        inputs: What the user gave; paths absolute.
        metric: Name of the metric; None for the task's own.
        specs: What the reference reads.
        candidate_specs: What the candidate reads.
        outputs: Reference outputs that the candidate has too.
        slices: Output -> the parts that it consists of.
        cache: Folder for reference outputs.
    """

    inputs: Inputs
    metric: str | None
    specs: tuple[TensorSpec, ...]
    candidate_specs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]
    slices: tuple[tuple[str, tuple[Slice, ...]], ...]
    cache: Path


@dataclass(frozen=True, slots=True)
class Side:
    """A model file and how it is fed.

    Attributes:
        path: The model.
        mode: Session mode.
        is_simulated: It holds a plan of ours; see ``backends.onnxruntime.open_session``.
        is_plain: Run it as a user without Tearline would; see there.
        feeds: Which set it is fed with.
        input_names: Name in the set -> name in the model, where they differ.
        output_names: Name in the model -> name of the reference output, where they differ.
    """

    path: Path
    mode: Mode = "as-executed"
    is_simulated: bool = False
    is_plain: bool = False
    feeds: SetName = "data"
    input_names: tuple[tuple[str, str], ...] = ()
    output_names: tuple[tuple[str, str], ...] = ()

    def feeds_of(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return feeds under the model's own names."""
        names = dict(self.input_names)
        return {names.get(name, name): array for name, array in feeds.items()}

    def outputs_of(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return outputs under the reference's names."""
        names = dict(self.output_names)
        return {names.get(name, name): array for name, array in outputs.items()}


_PATHS = (
    "reference",
    "data",
    "candidate_data",
    "calibration",
    "name_map",
    "task",
    "annotations",
    "workspace",
)


def make_bench(pair: Pair, inputs: Inputs, cache: Path) -> Bench:
    """Return the description of a project whose models have been read."""
    absolute = {name: path.absolute() for name in _PATHS if (path := getattr(inputs, name)) is not None}
    slices = output_slices(pair.reference.ir)
    outputs = tuple(name for name in pair.reference.outputs if name in pair.pairing.outputs)
    return Bench(
        inputs=replace(inputs, candidate=pair.candidate.path.absolute(), **absolute),
        metric=inputs.metric,
        specs=pair.reference.inputs,
        candidate_specs=pair.candidate.inputs,
        outputs=outputs,
        slices=tuple(slices.items()),
        cache=cache,
    )


@lru_cache(maxsize=4)
def samples_of(bench: Bench, which: SetName = "data") -> SampleSet:
    """Open the set that the reference, or the candidate, is fed with.

    Raises:
        SampleError: The set cannot be used.
    """
    inputs = bench.inputs
    task = opening.open_task(inputs)
    if which == "data" or inputs.candidate_data is None:
        return opening.open_data(inputs, bench.specs, task)
    return samples.open_samples(
        inputs.candidate_data, bench.candidate_specs, task=task, selection=inputs.samples
    )


@lru_cache(maxsize=4)
def metric_of(bench: Bench) -> Metric:
    """Make the metric.

    Raises:
        TaskError: Something that the metric needs is missing or wrong.
    """
    return make_metric(
        task=opening.open_task(bench.inputs),
        name=bench.metric,
        annotations=bench.inputs.annotations,
        samples=samples_of(bench),
        outputs=bench.outputs,
        slices=dict(bench.slices),
    )


def metric_digest(bench: Bench) -> str:
    """Return a content hash of all that turns outputs into a score."""
    task = opening.open_task(bench.inputs)
    annotations = bench.inputs.annotations
    facts = {
        "task": "" if task is None else task.digest,
        "annotations": "" if annotations is None else file_digest(annotations),
        "metric": bench.metric,
        "outputs": bench.outputs,
        "slices": to_json(bench.slices),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def spread(count: int, chosen: int) -> tuple[int, ...]:
    """Return indices that are evenly spaced over ``count`` samples, each once."""
    chosen = min(count, chosen)
    return tuple(index * count // chosen for index in range(chosen))
