"""Unpack an archive that nobody vouches for: bounded in files, bytes and ratio, inside its folder only."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from analyzers.errors import SampleError

SET_SUFFIXES = frozenset((".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".json", ".npz"))
_CHUNK_BYTES = 1 << 20
_MAX_NAME_BYTES = 240


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may hold at most; ``ratio`` is unpacked over packed bytes of one file."""

    files: int = 20_000
    total_bytes: int = 8 << 30
    file_bytes: int = 2 << 30
    ratio: int = 200


def unzip(
    archive: Path, folder: Path, *, limits: Limits | None = None, suffixes: Iterable[str] = SET_SUFFIXES
) -> tuple[Path, ...]:
    """Unpack the wanted files of an archive and return their paths inside ``folder``, relative to it.

    Files of other types, hidden files and what macOS adds are left out.

    Args:
        archive: The file.
        folder: An empty folder.
        limits: Bounds; the bytes are counted while they come, headers are not believed.
        suffixes: File name endings that are wanted, lower case.

    Raises:
        SampleError: ``unsafe_archive``, ``malformed_inputs`` or ``zero_samples``.
    """
    limits, wanted = limits or Limits(), frozenset(suffixes)
    written: list[Path] = []
    budget = limits.total_bytes
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [m for m in opened.infolist() if not m.is_dir()]
            if len(members) > limits.files:
                raise _unsafe(f"it holds {len(members):,} files; {limits.files:,} are allowed")
            for member in members:
                name = safe_path(member.filename)
                if _is_noise(name) or name.suffix.lower() not in wanted:
                    continue
                _check(member, limits)
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                budget -= _unpack(opened, member, target, min(budget, limits.file_bytes))
                written.append(Path(name))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as cause:
        raise SampleError(
            "malformed_inputs", f"The archive cannot be read: {cause}", hint="Make the zip file again"
        ) from cause
    except FileExistsError as cause:
        raise _unsafe("it holds two files of one name") from cause
    if not written:
        raise SampleError(
            "zero_samples",
            "The archive holds no images and no .npz files",
            hint="Put the images themselves into the zip file",
        )
    return tuple(written)


def safe_path(name: str) -> PurePosixPath:
    """Return a relative path that stays where it is put.

    Raises:
        SampleError: ``unsafe_archive``: the name is absolute, goes up, or is none that a file can have.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    parts = path.parts
    is_strange = any(
        part in ("", "..") or ":" in part or not part.isprintable() or len(part.encode()) > _MAX_NAME_BYTES
        for part in parts
    )
    if path.is_absolute() or not parts or is_strange:
        raise _unsafe(f"the file name {name[:80]!r} cannot be used")
    return path


def _is_noise(path: PurePosixPath) -> bool:
    return "__MACOSX" in path.parts or any(part.startswith(".") for part in path.parts)


def _check(member: zipfile.ZipInfo, limits: Limits) -> None:
    if stat.S_ISLNK(member.external_attr >> 16):
        raise _unsafe(f"{member.filename!r} is a symbolic link")
    if member.flag_bits & 1:
        raise _unsafe(f"{member.filename!r} is encrypted")
    if member.file_size > limits.file_bytes or member.file_size > limits.ratio * max(1, member.compress_size):
        raise _unsafe(f"{member.filename!r} unpacks to {member.file_size:,} bytes")


def _unpack(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, allowed: int) -> int:
    done = 0
    with opened.open(member) as source, target.open("xb") as file:
        while chunk := source.read(_CHUNK_BYTES):
            done += len(chunk)
            if done > allowed:
                raise _unsafe("it unpacks to more bytes than are allowed")
            file.write(chunk)
    return done


def _unsafe(why: str) -> SampleError:
    return SampleError(
        "unsafe_archive", f"The archive is refused: {why}", hint="Make a plain zip file of the images"
    )
