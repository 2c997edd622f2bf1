"""Read arrays from ``.npz`` files one at a time, from files that nobody vouches for.

Nothing is unpickled, every size is known from the headers before an array is read, and of an array that
holds many samples only the wanted rows are read.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.lib import format as npy

from analyzers.errors import SampleError
from analyzers.records import Array

MAX_ARRAY_BYTES = 2 << 30  # one array that has to be in memory at once
MAX_STACK_BYTES = 256 << 30  # one array of many samples, read row by row from the file itself
MAX_UNPACKED_BYTES = 8 << 30  # the same where it is compressed, so that it has to be unpacked to disk
_LOCAL_HEADER_BYTES = 30
_LFS_MARK = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class StoredArray:
    """An array inside an ``.npz``, as its header describes it.

    Attributes:
        path: The ``.npz``.
        key: Its name inside, without ``.npy``.
        shape: Declared shape, checked against the member's size.
        dtype: Declared type, never object.
        is_fortran: Stored column by column.
        is_compressed: The member is compressed.
        data_offset: Bytes of the member before the values.
        header_offset: Where the member begins in the file.
    """

    path: Path
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    is_fortran: bool
    is_compressed: bool
    data_offset: int
    header_offset: int


def list_arrays(path: Path) -> tuple[StoredArray, ...]:
    """Return the arrays of an ``.npz`` in the order of the file; only headers are read.

    Raises:
        SampleError: ``malformed_inputs`` or ``unsafe_npz``.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len({m.filename for m in members}) != len(members):
                raise _malformed(path, "holds two arrays of one name")
            return tuple(_describe(archive, member, path) for member in members)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as cause:
        if _starts_with(path, _LFS_MARK):
            hint = "This is a Git-LFS pointer, not the data; run 'git lfs pull'"
        else:
            hint = "Write it with numpy.savez"
        raise SampleError(
            "malformed_inputs", f"Not a readable .npz file: {cause}", where=str(path), hint=hint
        ) from cause


def _describe(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> StoredArray:
    if member.is_dir() or not member.filename.endswith(".npy"):
        raise _malformed(path, f"holds '{member.filename}', which is no array")
    with archive.open(member) as stream:
        shape, is_fortran, dtype = _read_header(stream, path, member.filename)
        data_offset = stream.tell()
    declared = math.prod(shape) * dtype.itemsize
    if declared != member.file_size - data_offset:
        raise _malformed(
            path, f"'{member.filename}' declares {declared} bytes and holds {member.file_size - data_offset}"
        )
    is_compressed = member.compress_type != zipfile.ZIP_STORED
    limit = MAX_UNPACKED_BYTES if is_compressed else MAX_STACK_BYTES
    if declared > limit:
        raise _malformed(path, f"'{member.filename}' declares {declared} bytes, the limit is {limit}")
    return StoredArray(
        path=path,
        key=member.filename.removesuffix(".npy"),
        shape=shape,
        dtype=dtype,
        is_fortran=is_fortran,
        is_compressed=is_compressed,
        data_offset=data_offset,
        header_offset=member.header_offset,
    )


def _read_header(
    stream: IO[bytes], path: Path, name: str
) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(stream)
    except ValueError as cause:
        raise _malformed(path, f"'{name}' has no readable array header ({cause})") from cause
    if dtype.hasobject:
        raise SampleError(
            "unsafe_npz",
            f"'{name}' is an object array (pickled Python), which is refused: loading it could run code",
            where=str(path),
            hint="Store plain numeric arrays, one per sample where their shapes differ",
        )
    if dtype.kind not in "biufcU":
        raise _malformed(path, f"'{name}' has the type {dtype}, which no network reads")
    return tuple(int(s) for s in shape), bool(is_fortran), dtype


class ArrayReader:
    """Reads stored arrays and keeps the last file open.

    A compressed array of many samples is unpacked once, to an unnamed temporary file, so that its rows can
    be read in any order with constant memory.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._archive: zipfile.ZipFile | None = None
        self._unpacked: dict[str, Array] = {}

    def __reduce__(self) -> tuple[type[ArrayReader], tuple[()]]:
        """Other processes open the files themselves."""
        return (ArrayReader, ())

    def close(self) -> None:
        """Close the file and drop what was unpacked."""
        if self._archive is not None:
            self._archive.close()
        self._path, self._archive = None, None
        self._unpacked = {}

    def read(self, stored: StoredArray, rows: tuple[int, int] | None = None) -> Array:
        """Return an array, or the rows ``start:stop`` of its leading axis, in native byte order.

        Raises:
            SampleError: ``malformed_inputs``: the values cannot be read, or are too many.
        """
        try:
            array = self._read_whole(stored) if rows is None else self._read_rows(stored, *rows)
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            ValueError,
            KeyError,
            RuntimeError,
            OSError,
        ) as cause:
            raise _malformed(stored.path, f"'{stored.key}' cannot be read ({cause})") from cause
        return np.asarray(array, dtype=stored.dtype.newbyteorder("="), order="C")

    def _read_whole(self, stored: StoredArray) -> Array:
        check_size(stored, math.prod(stored.shape) * stored.dtype.itemsize)
        with self._open(stored.path).open(f"{stored.key}.npy") as stream:
            array: Array = npy.read_array(stream, allow_pickle=False)
        if array.shape != stored.shape or array.dtype != stored.dtype:
            raise ValueError("the file changed while it was in use")
        return array

    def _read_rows(self, stored: StoredArray, start: int, stop: int) -> Array:
        check_size(stored, (stop - start) * math.prod(stored.shape[1:]) * stored.dtype.itemsize)
        if 0 in stored.shape:
            return np.empty((stop - start, *stored.shape[1:]), stored.dtype)
        if stored.is_compressed:
            return np.array(self._unpack(stored)[start:stop])
        return np.array(_map(stored.path, _member_offset(stored) + stored.data_offset, stored)[start:stop])

    def _unpack(self, stored: StoredArray) -> Array:
        archive = self._open(stored.path)
        if stored.key not in self._unpacked:
            # The map keeps the unnamed file alive until it is dropped itself.
            with tempfile.TemporaryFile() as file, archive.open(f"{stored.key}.npy") as stream:
                shutil.copyfileobj(stream, file, 1 << 20)
                file.flush()
                self._unpacked[stored.key] = _map(file, stored.data_offset, stored)
        return self._unpacked[stored.key]

    def _open(self, path: Path) -> zipfile.ZipFile:
        if self._archive is None or self._path != path:
            self.close()
            self._archive, self._path = zipfile.ZipFile(path), path
        return self._archive


def _map(file: Path | IO[bytes], offset: int, stored: StoredArray) -> Array:
    order: Literal["C", "F"] = "F" if stored.is_fortran else "C"
    return np.memmap(file, stored.dtype, "r", offset, stored.shape, order)


def _member_offset(stored: StoredArray) -> int:
    """Return where the bytes of an uncompressed member begin, after its local header."""
    with stored.path.open("rb") as file:
        file.seek(stored.header_offset)
        header = file.read(_LOCAL_HEADER_BYTES)
    if len(header) < _LOCAL_HEADER_BYTES or header[:4] != b"PK\x03\x04":
        raise ValueError("the file changed while it was in use")
    name_bytes = int.from_bytes(header[26:28], "little")
    extra_bytes = int.from_bytes(header[28:30], "little")
    return stored.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes


def check_size(stored: StoredArray, size: int) -> None:
    """Check the bytes of an array that will be in memory at once.

    Raises:
        SampleError: ``malformed_inputs``.
    """
    if size > MAX_ARRAY_BYTES:
        raise _malformed(
            stored.path, f"one sample of '{stored.key}' has {size} bytes, the limit is {MAX_ARRAY_BYTES}"
        )


def _starts_with(path: Path, mark: bytes) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(mark)) == mark
    except OSError:
        return False


def _malformed(path: Path, what: str) -> SampleError:
    return SampleError(
        "malformed_inputs",
        f"The .npz file cannot be used: {what}",
        where=str(path),
        hint="Write it with numpy.savez, one numeric array per input or per sample and input",
    )
