"""What workers do: run a model over some samples, and return what the metric keeps of each.

Work is cut into shards of fixed size, so that results do not depend on the number of workers.
"""

from __future__ import annotations

import os
import shutil
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from analyzers.backends.onnxruntime import OnnxRuntimeRunner, open_session
from analyzers.bench import Bench, Side, metric_of, samples_of
from analyzers.records import Array, Mode, Sample

SHARD = 8
_CACHE_BYTES = 128 << 20  # of reference outputs in a worker's memory
_CACHE_DISK_BYTES = 4 << 30  # of reference outputs in the cache folder


def cut(count: int, *, size: int = SHARD) -> list[tuple[int, int]]:
    """Return (start, stop) of shards that cover ``count`` items."""
    return [(start, min(start + size, count)) for start in range(0, count, size)]


def observe(bench: Bench, side: Side, indices: Sequence[int]) -> list[Array]:
    """Run one side over samples and return the metric's observations.

    Raises:
        TearlineError: A sample, the model or the metric fails.
    """
    metric, samples = metric_of(bench), samples_of(bench, side.feeds)
    runner = _session(side.path, side.mode, is_simulated=side.is_simulated, is_plain=side.is_plain)
    observations = []
    for index in indices:
        sample = samples[index]
        outputs = side.outputs_of(runner.run(side.feeds_of(sample.feeds)))
        reference = _reference_outputs(bench, index) if metric.needs_reference else None
        observations.append(metric.observe(sample, outputs, reference))
    return observations


def observe_masks(bench: Bench, path: Path, mask_name: str, jobs: Sequence[tuple[int, Array]]) -> list[Array]:
    """Run a model with switches, each job being a sample's index and a mask."""
    metric = metric_of(bench)
    runner = _session(path, "literal", is_simulated=True)
    observations = []
    for index, mask in jobs:
        sample = _sample(bench, index)
        outputs = runner.run({**sample.feeds, mask_name: mask})
        observations.append(metric.observe(sample, outputs, _reference_outputs(bench, index)))
    return observations


def run_outputs(bench: Bench, path: Path, index: int) -> dict[str, Array]:
    """Return all outputs of a model of ours for one sample."""
    return _session(path, "as-executed", is_simulated=True).run(samples_of(bench)[index].feeds)


@lru_cache(maxsize=3)
def _session(
    path: Path, mode: Mode, *, is_simulated: bool = False, is_plain: bool = False
) -> OnnxRuntimeRunner:
    return open_session(path, mode=mode, is_simulated=is_simulated, is_plain=is_plain)


@lru_cache(maxsize=4)
def _sample(bench: Bench, index: int) -> Sample:
    """Return a sample that is fed many times in a row."""
    return samples_of(bench)[index]


_kept: OrderedDict[tuple[Path, int], dict[str, Array]] = OrderedDict()


def _reference_outputs(bench: Bench, index: int) -> dict[str, Array]:
    """Return the reference's outputs: from memory, else from the cache folder, else by running it."""
    key = (bench.cache, index)
    if key in _kept:
        _kept.move_to_end(key)
        return _kept[key]
    path = bench.cache / f"{index}.npz"
    outputs = _load(path, bench.outputs)
    if outputs is None:
        runner = _session(bench.inputs.reference, "as-executed")
        everything = runner.run(samples_of(bench)[index].feeds)
        outputs = {name: everything[name] for name in bench.outputs}
        if _size(outputs) * len(samples_of(bench)) <= _CACHE_DISK_BYTES:
            _save(path, outputs)
    _kept[key] = outputs
    while len(_kept) > 1 and sum(_size(o) for o in _kept.values()) > _CACHE_BYTES:
        _kept.popitem(last=False)
    return outputs


def _load(path: Path, names: Sequence[str]) -> dict[str, Array] | None:
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[f"arr_{place}"] for place, name in enumerate(names)}


def _save(path: Path, outputs: dict[str, Array]) -> None:
    """Write atomically: another worker sees the whole file or none. A full disk only costs time later."""
    partial = path.with_suffix(f".{os.getpid()}.part")
    size = _size(outputs)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(path.parent).free < 4 * size:
            return
        with partial.open("wb") as file:
            np.savez(file, *outputs.values())
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)


def _size(outputs: dict[str, Array]) -> int:
    return sum(array.nbytes for array in outputs.values())
