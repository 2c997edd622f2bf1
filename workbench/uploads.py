"""Files from the browser, or from a permitted folder of this machine, made ready for a job.

Uploads are written to the workspace chunk by chunk while they are hashed, so a folder's name says what is in
it, the same files are kept once, and names that a browser sent never become paths unchecked. Nothing here
opens a model.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal, Protocol

from analyzers.errors import InputError, ModelLoadError, SampleError, TaskError
from analyzers.sample_images import IMAGE_SUFFIXES
from workbench.safezip import safe_path, unzip
from workbench.store import Workspace

DATA_ROOT_VARIABLE = "TEARLINE_DATA_ROOT"

Role = Literal["model", "set", "annotations", "task", "name_map", "profile"]

_CHUNK_BYTES = 1 << 20
_FREE_BYTES = 256 << 20
_LISTED = 2000
_VISITED = 20_000
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")
_SUFFIXES: dict[Role, frozenset[str]] = {
    "model": frozenset((".onnx",)),
    "set": frozenset((".npz",)),
    "annotations": frozenset((".json", ".csv", ".txt")),
    "task": frozenset((".yaml", ".yml")),
    "name_map": frozenset((".json",)),
    "profile": frozenset((".yaml", ".yml")),
}


class Upload(Protocol):
    """What a browser sent: a file that is read front to back."""

    @property
    def name(self) -> str:
        """The name on the user's machine; may be anything."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Staged:
    """Files that a job can read.

    Attributes:
        path: File or folder.
        label: What the user calls it; text only, never a path.
        size_bytes: All bytes.
        annotations: Ground truth that came in the same archive.
    """

    path: Path
    label: str
    size_bytes: int
    annotations: Path | None = None


@dataclass(frozen=True, slots=True)
class _Arrived:
    """An upload that was written: its name as sent, where it is, its hash."""

    name: str
    path: Path
    sha256: str
    size_bytes: int


def stage_model(workspace: Workspace, uploads: Sequence[Upload], *, known: Staged | None = None) -> Staged:
    """Store a model and its external data together.

    Args:
        workspace: Where to.
        uploads: One ``.onnx`` file and any files of weights; only weights where ``known`` has the model.
        known: A model that was stored before and lacked weights.

    Raises:
        InputError: There is not exactly one model, or a name cannot be used.
    """
    with _arriving(workspace, uploads) as (arrived, incoming):
        models = [a for a in arrived if a.name.lower().endswith(".onnx")]
        weights = [a for a in arrived if a not in models]
        if known is not None and not models:
            models = [_copied(known.path, known.label, incoming)]
            weights += [
                _copied(p, p.name, incoming) for p in sorted(known.path.parent.iterdir()) if p != known.path
            ]
        if len(models) != 1:
            raise ModelLoadError(
                "not_a_model",
                f"One .onnx file is needed, and {len(models)} came",
                hint="Drop the model together with its external data files, one model at a time",
            )
        name = _model_name(models[0].name)
        # A file of weights called like the model would take its place.
        named = {_plain_name(w.name): w for w in weights} | {name: models[0]}
        folder = _settle(workspace, incoming, named)
        size = sum(a.size_bytes for a in named.values())
        return Staged(folder / name, models[0].name, size)


def stage_set(workspace: Workspace, uploads: Sequence[Upload]) -> Staged:
    """Store a calibration or evaluation set: one zip file, images, or ``.npz`` files.

    A single ``.json`` file in an archive is taken for the annotations.

    Raises:
        InputError: The files are no set, or an archive is unsafe.
    """
    with _arriving(workspace, uploads) as (arrived, incoming):
        suffixes = {PurePosixPath(a.name).suffix.lower() for a in arrived}
        if suffixes == {".zip"}:
            return _stage_archive(workspace, arrived, incoming)
        named = {str(safe_path(a.name)): a for a in arrived}
        usable = {n: a for n, a in named.items() if _is_sample(n)}
        if not usable:
            raise SampleError(
                "zero_samples",
                "These files hold no samples",
                hint="Give images, a zip file of images, or .npz files",
            )
        folder = _settle(workspace, incoming, usable)
        size = sum(a.size_bytes for a in usable.values())
        if len(usable) == 1 and suffixes == {".npz"}:
            name, only = next(iter(usable.items()))
            return Staged(folder / name, only.name, size)
        return Staged(folder, _count(usable, "file"), size)


def stage_file(workspace: Workspace, uploads: Sequence[Upload], role: Role) -> Staged:
    """Store annotations, or a task file with the files that it names.

    Raises:
        InputError: There is not exactly one main file, or a name cannot be used.
    """
    with _arriving(workspace, uploads) as (arrived, incoming):
        mains = [a for a in arrived if PurePosixPath(a.name).suffix.lower() in _SUFFIXES[role]]
        if len(mains) != 1:
            wanted = " or ".join(sorted(_SUFFIXES[role]))
            raise TaskError("malformed_task", f"One {wanted} file is needed, and {len(mains)} came")
        others = [a for a in arrived if a is not mains[0]]
        suffix = PurePosixPath(mains[0].name).suffix.lower()
        main_name = f"{role}{suffix}"
        named = {main_name: mains[0]} | {_plain_name(o.name): o for o in others}
        folder = _settle(workspace, incoming, named)
        return Staged(folder / main_name, mains[0].name, sum(a.size_bytes for a in named.values()))


def data_root() -> Path | None:
    """Return the folder of this machine whose files may be used by path; None if none was permitted."""
    root = os.environ.get(DATA_ROOT_VARIABLE)
    return Path(root).resolve() if root and Path(root).is_dir() else None


def local_file(text: str, root: Path) -> Staged:
    """Return a file or folder below ``root``; links that lead out of it are not followed.

    Raises:
        InputError: It is absent or outside.
    """
    path = Path(os.path.realpath(root / text.strip()))
    if not path.is_relative_to(root):
        raise InputError(
            "path_outside",
            "The path leads out of the folder that may be read",
            where=text,
            hint=f"Choose something below {root}, or set {DATA_ROOT_VARIABLE}",
        )
    if not path.exists():
        raise InputError("file_absent", "There is no such file", where=str(path), hint="Check the path")
    return Staged(path, str(path.relative_to(root)), path.stat().st_size if path.is_file() else 0)


def list_local(root: Path, role: Role) -> tuple[str, ...]:
    """Return what below ``root`` may be meant, as paths relative to it; long lists end early."""
    found: set[str] = set()
    visited = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        visited += len(files)
        for name in files:
            path = Path(folder, name).relative_to(root)
            if path.suffix.lower() in _SUFFIXES[role]:
                found.add(str(path))
            if role == "set" and path.suffix.lower() in IMAGE_SUFFIXES | {".npz"} and folder != str(root):
                found.add(str(path.parent))
        if visited > _VISITED or len(found) > _LISTED:
            break
    return tuple(sorted(found)[:_LISTED])


def _stage_archive(workspace: Workspace, arrived: Sequence[_Arrived], incoming: Path) -> Staged:
    if len(arrived) != 1:
        raise SampleError("malformed_inputs", "One zip file at a time", hint="Put all images into one")
    folder = workspace.uploads / arrived[0].sha256
    if not folder.exists():
        unpacked = incoming / "set"
        unpacked.mkdir()
        files = unzip(arrived[0].path, unpacked)
        _part_annotations(incoming, unpacked, files)
        arrived[0].path.unlink()
        _move(incoming, folder)
    found = sorted((folder / "annotations").glob("*.json")) if (folder / "annotations").is_dir() else []
    samples = [p for p in (folder / "set").rglob("*") if p.is_file()]
    if not samples:
        raise SampleError(
            "zero_samples", "The archive holds no images and no .npz files", hint="Put the images into it"
        )
    size = sum(p.stat().st_size for p in samples)
    return Staged(folder / "set", arrived[0].name, size, found[0] if len(found) == 1 else None)


def _part_annotations(incoming: Path, unpacked: Path, files: Iterable[Path]) -> None:
    """Move what is no sample out of the set's folder."""
    aside = incoming / "annotations"
    for number, file in enumerate(f for f in files if f.suffix.lower() == ".json"):
        aside.mkdir(exist_ok=True)
        (unpacked / file).replace(aside / f"{number}.json")


@contextmanager
def _arriving(workspace: Workspace, uploads: Sequence[Upload]) -> Iterator[tuple[tuple[_Arrived, ...], Path]]:
    """Write uploads into a folder that is gone afterwards, whatever happens."""
    if not uploads:
        raise InputError("file_absent", "No file came", hint="Choose a file")
    _check_space(workspace, sum(u.size for u in uploads))
    incoming = workspace.uploads / f".incoming-{secrets.token_hex(8)}"
    incoming.mkdir(mode=0o700)
    try:
        yield tuple(_write(u, incoming / f"arrived-{i}") for i, u in enumerate(uploads)), incoming
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def _write(upload: Upload, path: Path) -> _Arrived:
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        while chunk := upload.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            file.write(chunk)
    if size == 0:
        raise InputError(
            "malformed_inputs", "The file is empty", where=upload.name, hint="Choose another file"
        )
    return _Arrived(upload.name, path, digest.hexdigest(), size)


def _copied(source: Path, name: str, incoming: Path) -> _Arrived:
    """Copy a stored file; a link would be refused when the model is opened."""
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    path = incoming / f"copied-{secrets.token_hex(4)}"
    shutil.copyfile(source, path)
    return _Arrived(name, path, digest, path.stat().st_size)


def _settle(workspace: Workspace, incoming: Path, named: Mapping[str, _Arrived]) -> Path:
    """Put files under their names into a folder that is called by their content, and return it."""
    lines = "\n".join(f"{a.sha256} {name}" for name, a in sorted(named.items()))
    folder = workspace.uploads / hashlib.sha256(lines.encode()).hexdigest()
    if folder.exists():
        return folder
    ready = incoming / "ready"
    for name, arrived in named.items():
        target = ready / name
        target.parent.mkdir(parents=True, exist_ok=True)
        arrived.path.replace(target)
    _move(ready, folder)
    return folder


def _move(ready: Path, folder: Path) -> None:
    try:
        ready.rename(folder)
    except OSError:
        # Somebody else brought the same files in the meantime.
        if not folder.exists():
            raise


def _model_name(name: str) -> str:
    """Return a file name of harmless characters by which reports and scripts can call the model."""
    stem = _UNSAFE.sub("_", PurePosixPath(name.replace("\\", "/")).stem).strip("._-")
    return f"{stem[:80] or 'model'}.onnx"


def _plain_name(name: str) -> str:
    path = safe_path(name)
    if path.name.startswith("."):
        raise InputError("malformed_inputs", "Hidden files cannot be used", where=name)
    return path.name


def _is_sample(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES | {".npz"}


def _count(items: Mapping[str, object], word: str) -> str:
    return f"{len(items)} {word}{'s' if len(items) != 1 else ''}"


def _check_space(workspace: Workspace, needed: int) -> None:
    free = shutil.disk_usage(workspace.uploads).free
    if free < needed + _FREE_BYTES:
        raise InputError(
            "disk_full",
            f"The files need {needed:,} bytes, and {free:,} are free",
            where=str(workspace.root),
            hint="Free some space, or choose another workspace folder",
        )
