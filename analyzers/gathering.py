"""Gather the evidence that detectors look at: one comparison, then the isolated layers in stages."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analyzers import measure, moments
from analyzers.backends.onnxruntime import open_session
from analyzers.comparison import Compared
from analyzers.constant_pairs import constant_pairs
from analyzers.contracts import SampleSet
from analyzers.evidence import Anatomy, Detour, Evidence, Look, Store, Tail
from analyzers.executions import measure_executions
from analyzers.graph import save_model, with_outputs
from analyzers.isolate import Isolated, isolate
from analyzers.measure import PairMoments
from analyzers.moments import Moments
from analyzers.project import Pair
from analyzers.records import Array, TensorPair
from analyzers.steps import Step, Steps
from analyzers.stores import find_stores
from analyzers.trace import TAP_BUDGET_BYTES, tap_groups

_KEPT_PER_SAMPLE = 1 << 15  # magnitudes per tensor and sample that quantiles are taken from
_STAGES = 4  # reference, operator, computed, stored
_KEPT_BYTES = 640 << 20  # of values behind the measurements; what does not fit is run again when asked for


def gather(
    pair: Pair,
    compared: Compared,
    samples: SampleSet,
    *,
    calibration: SampleSet | None = None,
    output_sqnr_db: float = math.nan,
    budget_bytes: int = TAP_BUDGET_BYTES,
) -> Steps[Evidence]:
    """Run the isolated layers in stages over a few samples.

    Args:
        pair: Reference and candidate.
        compared: The comparison over all samples.
        samples: The samples to look at, few.
        calibration: What the candidate was calibrated on, if the user gave it.
        output_sqnr_db: Passed on into the evidence.
        budget_bytes: The tapped tensors of one sample should fit into this.

    Raises:
        BackendError: A model does not run.
    """
    constants = constant_pairs(pair)
    stores = find_stores(pair)
    stages = isolate(pair, constants={c.value: c.reference for c in constants})
    tally = _Tally(stores)
    for done, total in _run_stages(pair, stages, samples, tally, budget_bytes):
        yield Step("diagnose", done, total, "Taking layers apart")
    known: dict[str, Moments] = {}
    if calibration is not None:
        for done, total in _run_calibration(pair, calibration, known, budget_bytes):
            yield Step("diagnose", done, total, "Reading the calibration set")
    looker = _Looker(pair, stages, samples, tally.kept())
    return Evidence(
        pair=pair,
        comparison=compared.comparison,
        measured=compared.measured,
        anatomy=tally.anatomy(),
        constants=constants,
        stores=stores,
        calibration=known,
        output_sqnr_db=output_sqnr_db,
        look=looker.look,
        look_at_store=looker.look_at_store,
        samples=samples,
        detours=_measured_detours(stages, samples),
        executions=measure_executions(pair, samples),
    )


@dataclass(slots=True)
class _Tally:
    """What has been measured so far, by reference tensor and stage."""

    stores: Mapping[str, Store]
    moments: dict[tuple[str, str], PairMoments] = field(default_factory=dict)
    values: dict[str, list[NDArray[np.float32]]] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    looks: dict[str, list[Look]] = field(default_factory=dict)
    looks_bytes: int = 0

    def add(self, sample: str, tensor: str, reference: Array, stages: Mapping[str, Array]) -> None:
        """Add one sample."""
        self._keep(tensor, Look(sample, reference, None, None, stages.get("stored")))
        for stage, array in stages.items():
            if array.shape != reference.shape:
                continue
            found = measure.measure(reference, array)
            known = self.moments.get((tensor, stage))
            self.moments[tensor, stage] = found if known is None else measure.merge(known, found)
        flat = reference.reshape(-1)
        step = max(1, flat.size // _KEPT_PER_SAMPLE)
        finite = flat[np.isfinite(flat)]
        if finite.size:
            self.largest[tensor] = max(self.largest.get(tensor, 0.0), float(np.abs(finite).max()))
        self.values.setdefault(tensor, []).append(flat[::step].astype(np.float32))

    def _keep(self, tensor: str, look: Look) -> None:
        """Keep the values, all samples of a tensor or none, as long as they fit."""
        if tensor in self.values and tensor not in self.looks:
            return
        size = _size(look)
        if self.looks_bytes + size > _KEPT_BYTES:
            self.looks_bytes -= sum(_size(kept) for kept in self.looks.pop(tensor, []))
            return
        self.looks.setdefault(tensor, []).append(look)
        self.looks_bytes += size

    def kept(self) -> dict[str, tuple[Look, ...]]:
        """Return the values that were kept, by tensor."""
        return {tensor: tuple(looks) for tensor, looks in self.looks.items()}

    def anatomy(self) -> dict[str, Anatomy]:
        """Return the finished records."""
        return {
            tensor: Anatomy(
                operator=self.moments.get((tensor, "operator")),
                computed=self.moments.get((tensor, "computed")),
                stored=self.moments.get((tensor, "stored")),
                tail=_tail(np.concatenate(kept), self.largest.get(tensor, math.nan), self.stores.get(tensor)),
            )
            for tensor, kept in self.values.items()
        }


def _tail(values: NDArray[np.float32], largest: float, store: Store | None) -> Tail:
    values = values[np.isfinite(values)]
    if not values.size:
        return Tail(*(math.nan,) * 7)
    magnitudes = np.abs(values)
    p50, p99, p999 = (float(q) for q in np.quantile(magnitudes, (0.5, 0.99, 0.999)))
    under, levels = math.nan, math.nan
    scale = None if store is None else store.quantization.scale
    if scale is not None and scale.ndim == 0 and math.isfinite(float(scale)) and float(scale) > 0:
        nonzero = magnitudes[magnitudes > 0]
        under = float((nonzero < float(scale) / 2).mean()) if nonzero.size else 0.0
        low, high = np.quantile(values, (0.005, 0.995))
        levels = float(high - low) / float(scale)
    return Tail(p50, p99, p999, largest, under, float((magnitudes == 0).mean()), levels)


def _run_stages(
    pair: Pair, stages: Isolated, samples: SampleSet, tally: _Tally, budget_bytes: int
) -> Iterator[tuple[int, int]]:
    groups = tap_groups(pair, samples[0], budget_bytes // _STAGES)
    total, done = len(groups) * len(samples), 0
    for group in groups:
        with _Staged(stages, group) as run:
            for index in range(len(samples)):
                sample = samples[index]
                for tensor, reference, found in run(sample.feeds):
                    tally.add(sample.name, tensor, reference, found)
                done += 1
                yield done, total


class _Staged:
    """An open session over the stages of some pairs."""

    def __init__(self, stages: Isolated, group: Sequence[TensorPair]) -> None:
        self._names = {
            p.reference: {
                stage: table[p.reference]
                for stage, table in (
                    ("stored", stages.results),
                    ("computed", stages.computed),
                    ("operator", stages.operator),
                )
                if p.reference in table
            }
            for p in group
        }
        self._inputs = {v.name for v in stages.model.graph.inputs}
        self._model = stages.model
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Callable[[Mapping[str, Array]], Iterator[tuple[str, Array, dict[str, Array]]]]:
        self._folder = tempfile.TemporaryDirectory(prefix="tearline-")
        names = [*self._names, *(n for t in self._names.values() for n in t.values())]
        taps = [name for name in dict.fromkeys(names) if name not in self._inputs]
        if not taps:
            return lambda _: iter(())
        path = save_model(with_outputs(self._model, taps), Path(self._folder.name))
        session = open_session(path, mode="literal", is_simulated=True)

        def run(feeds: Mapping[str, Array]) -> Iterator[tuple[str, Array, dict[str, Array]]]:
            made = {**feeds, **session.run(feeds)}
            for tensor, stages in self._names.items():
                yield tensor, made[tensor], {stage: made[name] for stage, name in stages.items()}

        return run

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def _size(look: Look) -> int:
    return look.reference.nbytes + (0 if look.stored is None else look.stored.nbytes)


def _look(sample: str, reference: Array, stages: Mapping[str, Array]) -> Look:
    return Look(sample, reference, stages.get("operator"), stages.get("computed"), stages.get("stored"))


class _Looker:
    """Hands out the values of single tensors: those that were kept, else the last few that were fetched."""

    _KEPT = 4

    def __init__(
        self, pair: Pair, stages: Isolated, samples: SampleSet, kept: Mapping[str, tuple[Look, ...]]
    ) -> None:
        self._kept = kept
        self._pairs = {p.reference: p for p in pair.pairing.pairs}
        self._stages, self._samples = stages, samples
        self._known: dict[str, tuple[Look, ...]] = {}

    def look_at_store(self, tensor: str) -> tuple[Look, ...]:
        """Return the same without the stages before the store, which is cheap for most tensors."""
        return self._kept[tensor] if tensor in self._kept else self.look(tensor)

    def look(self, tensor: str) -> tuple[Look, ...]:
        """Return one ``Look`` per sample; empty for a tensor without a pair."""
        if tensor not in self._pairs:
            return ()
        if tensor not in self._known:
            while len(self._known) >= self._KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[tensor] = tuple(self._run(tensor))
        return self._known[tensor]

    def _run(self, tensor: str) -> Iterator[Look]:
        with _Staged(self._stages, [self._pairs[tensor]]) as run:
            for index in range(len(self._samples)):
                sample = self._samples[index]
                for _, reference, found in run(sample.feeds):
                    yield _look(sample.name, reference, found)


def _measured_detours(stages: Isolated, samples: SampleSet) -> dict[str, Detour]:
    """Measure what operators read through others that the reference does not have."""
    inputs = {v.name for v in stages.model.graph.inputs}
    wanted = [name for both in stages.detours.values() for name in both if name not in inputs]
    found: dict[str, PairMoments] = {}
    if not wanted:
        return {}
    with tempfile.TemporaryDirectory(prefix="tearline-") as folder:
        path = save_model(with_outputs(stages.model, list(dict.fromkeys(wanted))), Path(folder))
        session = open_session(path, mode="literal", is_simulated=True)
        for index in range(len(samples)):
            made = {**samples[index].feeds, **session.run(samples[index].feeds)}
            for node, (tensor, instead) in stages.detours.items():
                if made[tensor].shape == made[instead].shape:
                    one = measure.measure(made[tensor], made[instead])
                    found[node] = measure.merge(found[node], one) if node in found else one
    return {node: Detour(node, stages.detours[node][0], both) for node, both in found.items()}


def _run_calibration(
    pair: Pair, samples: SampleSet, found: dict[str, Moments], budget_bytes: int
) -> Iterator[tuple[int, int]]:
    """Measure the reference alone on the calibration set."""
    groups = tap_groups(pair, samples[0], budget_bytes)
    inputs = {v.name for v in pair.reference.ir.graph.inputs}
    total, done = len(groups) * len(samples), 0
    for group in groups:
        names = [p.reference for p in group]
        with tempfile.TemporaryDirectory(prefix="tearline-") as folder:
            taps = [name for name in names if name not in inputs]
            model = with_outputs(pair.reference.ir, taps) if taps else None
            session = None if model is None else open_session(save_model(model, Path(folder)))
            for index in range(len(samples)):
                feeds = samples[index].feeds
                made = {**feeds, **(session.run(feeds) if session is not None else {})}
                for name in names:
                    one = measure.measure(made[name], made[name], has_channels=False).whole
                    known = found.get(name)
                    found[name] = one if known is None else moments.merge(known, one)
                done += 1
                yield done, total
