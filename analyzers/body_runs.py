"""Record what the bodies of If, Loop and Scan are given while the reference runs.

The reference is run once per sample up to the nodes that hold bodies; loops are then unrolled by running the
reference's body as a model of its own, iteration by iteration, as the ONNX operators define it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from analyzers.backends.onnxruntime import open_session
from analyzers.contracts import Runner, SampleSet
from analyzers.graph import all_values, constant_array, is_constant, save_model, with_outputs
from analyzers.project import Pair
from analyzers.records import Array, Sample
from analyzers.subgraphs import Body

MOST_ITERATIONS = 256  # of one loop and sample that are unrolled
_KEPT = 24  # recorded runs of a body that are looked at
_LEAST_PER_SAMPLE = 3  # the first, one in the middle, and the last


@dataclass(frozen=True, slots=True, eq=False)
class RecordedRuns:
    """What a body was given; a sample set, see ``analyzers.contracts.SampleSet``.

    Attributes:
        runs: One sample per run that is looked at, named ``sample`` or ``sample/iteration``.
        taken_by: Samples that run the body at all.
        passed_by: Samples that do not.
        iterations: How often it ran, over all samples.
    """

    runs: tuple[Sample, ...]
    taken_by: tuple[str, ...]
    passed_by: tuple[str, ...]
    iterations: int

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the runs."""
        return tuple(run.name for run in self.runs)

    @property
    def digest(self) -> str:
        """What tells this set from others of the same session."""
        return f"recorded:{','.join(self.names)}"

    def __len__(self) -> int:
        return len(self.runs)

    def __getitem__(self, index: int) -> Sample:
        return self.runs[index]


def record_runs(pair: Pair, bodies: Sequence[Body], samples: SampleSet) -> dict[str, RecordedRuns]:
    """Return what every body was given, by its path.

    Raises:
        BackendError: The reference, or a body of it, does not run.
        ModelLoadError: onnxruntime refuses one of them.
    """
    runs: dict[str, list[list[Sample]]] = {body.path: [] for body in bodies}
    with tempfile.TemporaryDirectory(prefix="tearline-") as folder:
        outside = _Outside(pair, bodies, Path(folder) / "outside")
        sessions = {
            body.path: open_session(save_model(body.runner, Path(folder) / f"body-{i}"))
            for i, body in enumerate(bodies)
        }
        for index in range(len(samples)):
            sample = samples[index]
            values = outside.run(sample.feeds)
            for body in bodies:
                given = _unrolled(body, sessions[body.path], values)
                runs[body.path].append(_named(sample.name, list(given), body))
    return {path: _recorded(samples.names, found) for path, found in runs.items()}


class _Outside:
    """Yields the reference's values that bodies, and the nodes that hold them, read."""

    def __init__(self, pair: Pair, bodies: Sequence[Body], folder: Path) -> None:
        held = [v for body in bodies for v in body.node.inputs if v is not None]
        self._constants = {v.name or "": a for v in held if (a := constant_array(v)) is not None}
        wanted = [v.name or "" for v in held if not is_constant(v)] + [n for b in bodies for n in b.outer]
        inputs = {v.name for v in pair.reference.ir.graph.inputs}
        taps = [name for name in dict.fromkeys(wanted) if name not in inputs]
        known = {v.name for v in all_values(pair.reference.ir.graph)}
        assert known.issuperset(taps)
        self._session: Runner | None = None
        if taps:
            self._session = open_session(save_model(with_outputs(pair.reference.ir, taps), folder))

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        made = {} if self._session is None else self._session.run(feeds)
        return {**self._constants, **feeds, **made}


def _unrolled(body: Body, session: Runner, values: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Yield what the body is given each time it runs on one sample."""
    outer = {name: values[name] for name in body.outer}
    given = [None if v is None else values[v.name or ""] for v in body.node.inputs]
    if body.node.op_type == "If":
        assert given[0] is not None
        if bool(np.asarray(given[0]).reshape(-1)[0]) == (body.attribute == "then_branch"):
            yield outer
    elif body.node.op_type == "Loop":
        yield from _loop(body, session, given, outer)
    elif body.node.op_type == "Scan":
        yield from _scan(body, session, given, outer)


def _loop(
    body: Body, session: Runner, given: Sequence[Array | None], outer: Mapping[str, Array]
) -> Iterator[dict[str, Array]]:
    trips = MOST_ITERATIONS if given[0] is None else int(np.asarray(given[0]).reshape(-1)[0])
    condition = np.array(True) if len(given) < 2 or given[1] is None else given[1]
    states: Sequence[Array | None] = given[2:]
    for iteration in range(min(trips, MOST_ITERATIONS)):
        if not bool(condition.reshape(-1)[0]):
            return
        own = [np.array(iteration, np.int64), condition, *states]
        feeds = _fed(body, own, outer)
        yield feeds
        made = list(session.run(feeds).values())
        condition, states = made[0], made[1 : 1 + len(states)]


def _scan(
    body: Body, session: Runner, given: Sequence[Array | None], outer: Mapping[str, Array]
) -> Iterator[dict[str, Array]]:
    count = body.node.attributes["num_scan_inputs"].as_int()
    states: Sequence[Array | None] = given[:-count]
    scanned = [a for a in given[-count:] if a is not None]
    axes = _integers(body.node, "scan_input_axes", count)
    backwards = _integers(body.node, "scan_input_directions", count)
    length = min((a.shape[axis] for a, axis in zip(scanned, axes, strict=True)), default=0)
    for step in range(min(length, MOST_ITERATIONS)):
        slices = [
            np.take(a, length - 1 - step if back else step, axis=axis)
            for a, axis, back in zip(scanned, axes, backwards, strict=True)
        ]
        feeds = _fed(body, [*states, *slices], outer)
        yield feeds
        states = list(session.run(feeds).values())[: len(states)]


def _integers(node: ir.Node, name: str, count: int) -> list[int]:
    attribute = node.attributes.get(name)
    return [0] * count if attribute is None else [int(i) for i in attribute.as_ints()]


def _fed(body: Body, own: Sequence[Array | None], outer: Mapping[str, Array]) -> dict[str, Array]:
    """Return feeds by name; numbers take the shape that the body declares for them."""
    shapes = {v.name: v.shape for v in body.runner.graph.inputs}
    feeds = dict(outer)
    for name, array in zip(body.formal, own, strict=True):
        assert array is not None
        shape = shapes.get(name)
        is_number = array.size == 1 and shape is not None and len(shape) <= 1
        feeds[name] = array.reshape((1,) * len(shape)) if is_number and shape is not None else array
    return feeds


def _named(sample: str, given: Sequence[dict[str, Array]], body: Body) -> list[Sample]:
    if body.node.op_type == "If":
        return [Sample(sample, feeds) for feeds in given]
    return [Sample(f"{sample}/{iteration}", feeds) for iteration, feeds in enumerate(given)]


def _recorded(names: Sequence[str], found: Sequence[Sequence[Sample]]) -> RecordedRuns:
    taken = [name for name, runs in zip(names, found, strict=True) if runs]
    share = max(_LEAST_PER_SAMPLE, _KEPT // max(1, len(taken)))
    kept = [run for runs in found for run in _spread(runs, share)]
    return RecordedRuns(
        runs=tuple(_spread(kept, _KEPT)),
        taken_by=tuple(taken),
        passed_by=tuple(name for name in names if name not in taken),
        iterations=sum(len(runs) for runs in found),
    )


def _spread(runs: Sequence[Sample], count: int) -> list[Sample]:
    """Return so many, the first and the last among them."""
    if len(runs) <= count:
        return list(runs)
    places = np.unique(np.linspace(0, len(runs) - 1, count).round().astype(int))
    return [runs[place] for place in places]
