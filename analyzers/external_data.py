"""Is the external data of a model there, inside the model's own folder, and as large as declared?

onnxruntime and onnx-ir read these files when a model is opened or a weight is used, so this runs before.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx
import onnx_ir as ir

from analyzers.errors import ModelLoadError

_IN_MEMORY_TAG = "_ORT_MEM_ADDR_"  # onnxruntime takes such a "file" for a memory address
_SHOWN_NAMES = 5


def check_external_data(tensors: Iterable[ir.ExternalTensor], path: Path) -> None:
    """Check every external tensor of the model at ``path``.

    Raises:
        ModelLoadError: ``external_data_unsafe`` or ``external_data_missing``.
    """
    external = tuple(tensors)
    folder = path.absolute().parent
    locations = sorted({os.fspath(tensor.location) for tensor in external})
    for location in locations:
        _check_location(location, folder, path)
    missing = [location for location in locations if not (folder / location).exists()]
    if missing:
        raise _missing(missing, path)
    for location in locations:
        _check_kind(location, folder, path)
    for tensor in external:
        _check_bounds(tensor, folder, path)


def check_entries(tensor: onnx.TensorProto, path: Path) -> None:
    """Check that the offset and length of an external tensor are numbers that a file can have.

    Raises:
        ModelLoadError: ``external_data_unsafe``.
    """
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return
    for entry in tensor.external_data:
        if entry.key in ("offset", "length") and not (entry.value.isascii() and entry.value.isdigit()):
            raise _unsafe(
                f"Tensor {tensor.name!r} has the external data {entry.key} {entry.value!r}",
                path,
                "Export the model again",
            )


def _missing(names: list[str], path: Path) -> ModelLoadError:
    shown = ", ".join(names[:_SHOWN_NAMES])
    rest = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ModelLoadError(
        "external_data_missing",
        f"External weights of the model are missing: {shown}{rest}",
        where=str(path),
        hint="Put these files into the model's folder under exactly these names",
    )


def _unsafe(message: str, path: Path, hint: str) -> ModelLoadError:
    return ModelLoadError("external_data_unsafe", message, where=str(path), hint=hint)


def _check_location(location: str, folder: Path, path: Path) -> None:
    parts = PureWindowsPath(location).parts  # splits at both kinds of slash
    is_absolute = PurePosixPath(location).is_absolute() or bool(PureWindowsPath(location).anchor)
    if not parts or is_absolute or ".." in parts or _IN_MEMORY_TAG in location or "\0" in location:
        raise _unsafe(
            f"External data at {location!r} is not inside the model's folder",
            path,
            "Save the model again with its weights in one file beside it",
        )
    current = folder
    for part in PurePosixPath(location).parts:
        current = current / part
        if current.is_symlink():
            raise _unsafe(
                f"External data at {location!r} is a symbolic link",
                path,
                "Copy the file itself into the model's folder",
            )


def _check_kind(location: str, folder: Path, path: Path) -> None:
    status = (folder / location).stat()
    if not stat.S_ISREG(status.st_mode):
        raise _unsafe(f"External data at {location!r} is not a regular file", path, "Copy the weights there")
    # The other name may lie anywhere; nothing tells, and onnx-ir refuses such files too.
    if status.st_nlink > 1:
        raise _unsafe(
            f"External data at {location!r} is a hard link that is known under {status.st_nlink} names",
            path,
            "Copy the file itself into the model's folder",
        )


def _check_bounds(tensor: ir.ExternalTensor, folder: Path, path: Path) -> None:
    location, offset = os.fspath(tensor.location), tensor.offset or 0
    length = tensor.nbytes if tensor.length is None else tensor.length
    available = (folder / location).stat().st_size
    if offset < 0 or length < tensor.nbytes or offset + length > available:
        raise _unsafe(
            f"Tensor {tensor.name!r} takes {tensor.nbytes:,} bytes, but its place in {location!r} "
            f"(offset {offset:,}, length {length:,}) does not hold them; the file has {available:,} bytes",
            path,
            "Fetch the external data again, the file may be cut off, or export the model again",
        )
