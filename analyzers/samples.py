"""Open calibration and evaluation sets as a sequence of samples that are made when asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from analyzers.contracts import SampleSet
from analyzers.errors import SampleError
from analyzers.records import TensorSpec
from analyzers.sample_images import ImageSamples, is_image, resolve_preprocess
from analyzers.sample_npz import SEPARATOR, NpzSamples, StoredSample, list_samples
from analyzers.selection import select_names
from analyzers.tasks.task import Task

Role = Literal["data", "calibration"]

_EMPTY_CODES: dict[Role, str] = {"data": "zero_samples", "calibration": "calibration_empty"}


def open_samples(
    path: Path,
    specs: tuple[TensorSpec, ...],
    *,
    task: Task | None = None,
    selection: str | None = None,
    role: Role = "data",
) -> SampleSet:
    """Open a set and check it against the network's inputs.

    Args:
        path: A folder of images, an ``.npz``, or a folder of ``.npz``.
        specs: What the network reads.
        task: Says how images become tensors.
        selection: In name order: "N" the first N, "START::STEP", or a file with one sample name per line.
        role: What the set is for; decides the code of an empty one.

    Raises:
        SampleError: The set cannot be used; the code says why.
    """
    if not path.exists():
        raise SampleError(
            "file_absent", "There is no such set", where=str(path), hint="Check the path of the samples"
        )
    if path.is_dir():
        files = _list_files(path)
        images = [f for f in files if is_image(f)]
        archives = [f for f in files if f.suffix.lower() == ".npz"]
        if images and archives:
            raise SampleError(
                "malformed_inputs",
                f"The folder holds images ('{images[0].name}') and tensors ('{archives[0].name}')",
                where=str(path),
                hint="Keep them in folders of their own",
            )
        if images:
            return _open_images(path, images, specs, task, selection, role)
        return _open_npz(
            [(f.relative_to(path).as_posix(), f) for f in archives], path, specs, selection, role
        )
    if path.suffix.lower() == ".npz":
        return _open_npz([("", path)], path, specs, selection, role)
    raise SampleError(
        "malformed_inputs",
        f"Samples cannot be read from a '{path.suffix}' file",
        where=str(path),
        hint="Give a folder of images, an .npz file, or a folder of .npz files",
    )


def _list_files(folder: Path) -> list[Path]:
    """Return all files below a folder in name order, without hidden ones and what macOS adds to zips."""
    found = (p for p in folder.rglob("*") if p.is_file())
    return sorted(
        (
            p
            for p in found
            if not any(part.startswith((".", "__MACOSX")) for part in p.relative_to(folder).parts)
        ),
        key=lambda p: p.relative_to(folder).as_posix(),
    )


def _open_npz(
    files: Sequence[tuple[str, Path]],
    path: Path,
    specs: tuple[TensorSpec, ...],
    selection: str | None,
    role: Role,
) -> NpzSamples:
    samples = [s for prefix, file in files for s in _name_in_folder(prefix, list_samples(file, specs))]
    chosen = select_names([s.name for s in samples], selection)
    if not chosen:
        raise _empty(path, selection if samples else None, role)
    opened = NpzSamples([samples[i] for i in chosen], specs)
    opened.check(specs)
    return opened


def _name_in_folder(prefix: str, samples: Sequence[StoredSample]) -> list[StoredSample]:
    if not prefix:
        return list(samples)
    if len(samples) == 1:
        return [dataclasses.replace(samples[0], name=prefix)]
    return [dataclasses.replace(s, name=f"{prefix}{SEPARATOR}{s.name}") for s in samples]


def _open_images(
    folder: Path,
    files: Sequence[Path],
    specs: tuple[TensorSpec, ...],
    task: Task | None,
    selection: str | None,
    role: Role,
) -> ImageSamples:
    preprocess, spec = resolve_preprocess(task.preprocess if task else None, specs, where=str(folder))
    names = [f.relative_to(folder).as_posix() for f in files]
    chosen = select_names(names, selection)
    if not chosen:
        raise _empty(folder, selection, role)
    return ImageSamples(folder, tuple(names[i] for i in chosen), spec.name, preprocess)


def _empty(path: Path, selection: str | None, role: Role) -> SampleError:
    what = "The calibration set" if role == "calibration" else "The set"
    if selection is not None:
        return SampleError(
            _EMPTY_CODES[role],
            f"{what} is empty: '{selection}' selects no sample",
            where=str(path),
            hint="Select at least one sample",
        )
    return SampleError(
        _EMPTY_CODES[role],
        f"{what} is empty: it contains no sample",
        where=str(path),
        hint="Give a folder with images or .npz files, or an .npz with one array per input",
    )
