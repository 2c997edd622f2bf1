"""Score what-if models on the samples that causes are proved on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_ir as ir

from analyzers.backends.onnxruntime import open_session
from analyzers.contracts import Metric, SampleSet
from analyzers.errors import BackendError, PairingError
from analyzers.evidence import ConstantPair
from analyzers.graph import save_model
from analyzers.lifts import UnknownSourceError, changed_model
from analyzers.project import Pair
from analyzers.records import Array, Mode
from analyzers.slices import output_slices
from analyzers.stores import find_stores
from analyzers.suspicions import Change
from analyzers.tasks.metric import make_metric
from analyzers.trace import candidate_feeds

METRIC = "slice-sqnr"


class OutOfRunsError(Exception):
    """The runs that were allowed are spent."""


class Lab:
    """Runs what-if models one after the other; remembers what was run.

    Attributes:
        runs: Models that were run.
    """

    def __init__(
        self,
        pair: Pair,
        samples: SampleSet,
        constants: Sequence[ConstantPair],
        folder: Path,
        *,
        max_runs: int,
        mode: Mode = "as-executed",
    ) -> None:
        self.pair, self.samples, self.constants = pair, samples, tuple(constants)
        self.mode: Mode = mode
        self.runs = 0
        self._max_runs = max_runs
        self._folder = folder
        self._scores: dict[frozenset[object], float] = {}
        self._sources = _sources(pair, constants)
        self._metric = self._make_metric()
        self._reference = self._reference_outputs()

    def _make_metric(self) -> Metric:
        outputs = tuple(n for n in self.pair.reference.outputs if n in self.pair.pairing.outputs)
        return make_metric(
            task=None,
            name=METRIC,
            annotations=None,
            samples=self.samples,
            outputs=outputs,
            slices=output_slices(self.pair.reference.ir),
        )

    def _reference_outputs(self) -> list[dict[str, Array]]:
        session = open_session(self.pair.reference.path)
        return [session.run(self.samples[index].feeds) for index in range(len(self.samples))]

    def given_score(self, candidate_samples: SampleSet | None = None) -> float:
        """Return the score of the candidate's own file, in dB.

        Args:
            candidate_samples: What it was fed; None for what the reference is fed.
        """
        session = open_session(self.pair.candidate.path, mode=self.mode)
        names = {theirs: ours for ours, theirs in self.pair.pairing.outputs.items()}
        taps = {p.reference: p for p in self.pair.pairing.pairs}
        observations = []
        for index, reference in enumerate(self._reference):
            sample = self.samples[index]
            theirs = None if candidate_samples is None else candidate_samples[index].feeds
            given = session.run(candidate_feeds(self.pair, sample.feeds, theirs))
            outputs = {names[name]: array for name, array in given.items() if name in names}
            if any(o.dtype.kind in "iu" and taps.get(n) is not None for n, o in outputs.items()):
                return self.score(())  # raw integers: only the QDQ form yields reals
            observations.append(self._metric.observe(sample, outputs, reference))
        return self._metric.score(self.samples.names, observations).value

    def score(self, changes: Sequence[Change]) -> float:
        """Return the lowest SQNR of the outputs and their parts with these changes, in dB.

        Raises:
            OutOfRunsError: No runs are left.
        """
        key = frozenset(_key(change) for change in changes)
        if key not in self._scores:
            if self.runs >= self._max_runs:
                raise OutOfRunsError
            self.runs += 1
            self._scores[key] = self._score_now(changes)
        return self._scores[key]

    def can_apply(self, changes: Sequence[Change]) -> bool:
        """Tell whether all sources exist; building a model for every question would take too long."""
        return all((c.source.kind, c.source.name) in self._sources for c in changes)

    def _score_now(self, changes: Sequence[Change]) -> float:
        try:
            model = changed_model(self.pair, changes, self.constants)
        except (UnknownSourceError, PairingError):
            return float("-inf")  # what cannot be lifted gives nothing back
        return self._run(model)

    def save(self, changes: Sequence[Change], folder: Path) -> Path:
        """Write the model with these changes and return its path."""
        return save_model(changed_model(self.pair, changes, self.constants), folder)

    def _run(self, model: ir.Model) -> float:
        folder = self._folder / f"what-if-{self.runs}"
        try:
            session = open_session(save_model(model, folder), mode="literal", is_simulated=True)
            observations = []
            for index, reference in enumerate(self._reference):
                sample = self.samples[index]
                outputs = session.run(_feeds(model, sample.feeds))
                observations.append(self._metric.observe(sample, outputs, reference))
        except BackendError:
            return float("-inf")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        value = self._metric.score(self.samples.names, observations).value
        return float("inf") if value != value else value


def _sources(pair: Pair, constants: Sequence[ConstantPair]) -> frozenset[tuple[str, str]]:
    """Return kind and name of everything that can be lifted."""
    return frozenset(
        [
            *(("store", tensor) for tensor in find_stores(pair)),
            *((constant.role, constant.node) for constant in constants),
            *(("layer", layer.name) for layer in pair.pairing.layers),
        ]
    )


def _feeds(model: ir.Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    names = {v.name for v in model.graph.inputs}
    return {name: array for name, array in feeds.items() if name in names}


def _key(change: Change) -> object:
    """Return what makes a change the same as another."""
    stored, array = change.quantization, change.array
    return (
        change.source,
        None if stored is None else (stored.dtype, stored.scale.tobytes(), stored.zero_point.tobytes()),
        None if array is None else array.tobytes(),
    )
