"""Sample sets stored as tensors: an ``.npz`` or a folder of them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from analyzers.errors import SampleError
from analyzers.hashing import file_digest
from analyzers.records import Array, Sample, TensorSpec
from analyzers.sample_archives import ArrayReader, StoredArray, check_size, list_arrays
from analyzers.sample_checks import HALF_AND_SINGLE, check_array, check_names

SEPARATOR = "::"


@dataclass(frozen=True, slots=True)
class StoredInput:
    """Where one input of one sample is stored.

    Attributes:
        name: The network's input.
        array: The array that holds it.
        rows: The part of the leading axis that belongs to the sample; None for the whole array.
        is_squeezed: The leading axis only counts samples, so it is dropped from its single row.
    """

    name: str
    array: StoredArray
    rows: tuple[int, int] | None = None
    is_squeezed: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that is fed."""
        if self.rows is None:
            return self.array.shape
        rest = self.array.shape[1:]
        return rest if self.is_squeezed else (self.rows[1] - self.rows[0], *rest)


@dataclass(frozen=True, slots=True)
class StoredSample:
    """One sample of an ``.npz``: its name in the set and its inputs."""

    name: str
    path: Path
    inputs: tuple[StoredInput, ...]


class NpzSamples:
    """Samples fed exactly as stored; see ``analyzers.contracts.SampleSet``.

    One exception: float32 and float16 are converted to what the network reads, so that one file serves an
    FP16 and an FP32 network.
    """

    def __init__(self, samples: Sequence[StoredSample], specs: Sequence[TensorSpec]) -> None:
        self._samples = tuple(samples)
        self._dtypes = {s.name: s.dtype for s in specs}
        self._reader = ArrayReader()
        self.names = tuple(s.name for s in self._samples)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Sample:
        """Read one sample.

        Raises:
            SampleError: ``malformed_inputs``.
        """
        stored = self._samples[index]
        feeds = {}
        for part in stored.inputs:
            array = self._reader.read(part.array, part.rows)
            feeds[part.name] = self._as_read(part.name, array.reshape(part.shape))
        return Sample(stored.name, feeds)

    @cached_property
    def digest(self) -> str:
        """Content hash: the files' bytes and the names of the samples in the set."""
        digest = hashlib.sha256(b"npz")
        for path in dict.fromkeys(s.path for s in self._samples):
            digest.update(file_digest(path).encode())
        for name in self.names:
            digest.update(f"\n{name}".encode())
        return digest.hexdigest()

    def _as_read(self, name: str, array: Array) -> Array:
        dtype = self._dtypes.get(name, "")
        if dtype not in HALF_AND_SINGLE or array.dtype.name == dtype:
            return array
        with np.errstate(over="ignore"):  # becomes Inf, which is reported as in any sample
            return array.astype(dtype)

    def check(self, specs: Sequence[TensorSpec]) -> None:
        """Check every sample against the network's inputs; only headers are looked at.

        Raises:
            SampleError: ``missing_input``, ``wrong_input_name``, ``wrong_shape``, ``wrong_dtype``, or
                ``malformed_inputs`` for a sample that is too large.
        """
        for sample in self._samples:
            parts = {p.name: p for p in sample.inputs}
            check_names(parts, specs, sample=sample.name, where=str(sample.path))
            for spec in specs:
                part = parts[spec.name]
                check_array(part.shape, part.array.dtype, spec, sample=sample.name, where=str(sample.path))
                check_size(part.array, math.prod(part.shape) * part.array.dtype.itemsize)


def list_samples(path: Path, specs: Sequence[TensorSpec]) -> tuple[StoredSample, ...]:
    """Return the samples of one ``.npz``, in order; none if it is empty.

    Arrays named ``<sample>::<input>`` are one sample each. Arrays named like an input hold the samples on
    their leading axis: where the network reads a batch, each sample keeps its own batch axis.

    Raises:
        SampleError: The file mixes both forms, or its arrays hold different numbers of samples.
    """
    arrays = list_arrays(path)
    split = [SEPARATOR in a.key for a in arrays]
    if all(split):
        return _single(path, arrays)
    if any(split):
        raise SampleError(
            "malformed_inputs",
            f"The file mixes arrays named 'sample{SEPARATOR}input' with arrays of many samples "
            f"('{arrays[split.index(False)].key}')",
            where=str(path),
            hint="Use one form for all arrays",
        )
    return _stacked(path, arrays, specs)


def _single(path: Path, arrays: Sequence[StoredArray]) -> tuple[StoredSample, ...]:
    found: dict[str, list[StoredInput]] = {}
    for array in arrays:
        sample, _, name = array.key.partition(SEPARATOR)
        found.setdefault(sample, []).append(StoredInput(name, array))
    return tuple(StoredSample(name, path, tuple(found[name])) for name in sorted(found))


def _stacked(
    path: Path, arrays: Sequence[StoredArray], specs: Sequence[TensorSpec]
) -> tuple[StoredSample, ...]:
    check_names((a.key for a in arrays), specs, sample="", where=str(path))
    wanted = {s.name: s for s in specs}
    rows = {a.key: _rows_of(a, wanted[a.key]) for a in arrays}
    counts = {key: len(parts) for key, parts in rows.items()}
    most = max(counts.values())
    for key, count in counts.items():
        if count != most:
            full = next(k for k, c in counts.items() if c == most)
            raise SampleError(
                "missing_input",
                f"Sample {count} has no data for '{key}': it holds {count} samples and '{full}' holds {most}",
                where=str(path),
                hint="Store the same number of samples for every input",
            )
    digits = max(3, len(str(most - 1)))
    return tuple(
        StoredSample(f"s{i:0{digits}d}", path, tuple(rows[a.key][i] for a in arrays)) for i in range(most)
    )


def _rows_of(array: StoredArray, spec: TensorSpec) -> list[StoredInput]:
    """Split an array into samples along its leading axis."""
    if len(array.shape) < max(1, len(spec.shape)):
        return [StoredInput(spec.name, array)]
    count = array.shape[0]
    if len(array.shape) != len(spec.shape):
        return [StoredInput(spec.name, array, (i, i + 1), is_squeezed=True) for i in range(count)]
    batch = spec.shape[0] or 1
    if count % batch:
        raise SampleError(
            "wrong_shape",
            f"'{spec.name}' has {count} rows, the model reads {batch} at a time",
            where=str(array.path),
            hint=f"Store a multiple of {batch} rows",
        )
    return [StoredInput(spec.name, array, (i, i + batch)) for i in range(0, count, batch)]
