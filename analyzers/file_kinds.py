"""Recognise what a file is when it is not an ONNX model, and say what to do with it instead."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HEAD_BYTES = 512


@dataclass(frozen=True, slots=True)
class FileKind:
    """A file format that people mistake for an ONNX model.

    Attributes:
        name: The format in words, fit for "the file is ...".
        hint: What to do instead, one sentence.
        starts: Signatures as (offset, bytes); one is enough.
        suffixes: Endings that tell it where the bytes do not, lower case.
    """

    name: str
    hint: str
    starts: tuple[tuple[int, bytes], ...] = ()
    suffixes: tuple[str, ...] = ()


_EXPORT_TORCH = (
    "Export the network with torch.onnx.export(model, example_input, 'model.onnx') and give that file"
)
_GIVE_SOURCE = (
    "It is compiled for one device and cannot be opened; give the ONNX file that it was built from, "
    "and as candidate the quantized ONNX (QDQ or QOperator) that the toolchain can save"
)
_TF2ONNX = "Convert it with tf2onnx and give the .onnx file"
_UNPACK = "Unpack it and give the .onnx file, with its external data files beside it"

PYTORCH = FileKind("a PyTorch checkpoint", _EXPORT_TORCH, (), (".pt", ".pth", ".ckpt", ".bin"))
NPZ = FileKind(
    "an npz set of tensors", "Give it as --data or --calibration; a model is an .onnx file", (), (".npz",)
)
TEXT = FileKind("a text file", "Give a binary .onnx file, as the exporter writes it")
ZIP = FileKind("a zip archive", _UNPACK, ((0, b"PK\x03\x04"), (0, b"PK\x05\x06")), (".zip",))

KINDS: tuple[FileKind, ...] = (
    FileKind(
        "a Git LFS pointer, a text file that stands for the model",
        "Fetch the model itself with 'git lfs pull' in the repository it comes from",
        ((0, b"version https://git-lfs"),),
    ),
    FileKind(
        "a PyTorch checkpoint (pickle)",
        _EXPORT_TORCH,
        tuple((0, bytes((0x80, protocol))) for protocol in (2, 3, 4, 5)),
    ),
    FileKind("an RKNN model", _GIVE_SOURCE, ((0, b"RKNN"),), (".rknn",)),
    FileKind("a TensorRT engine", _GIVE_SOURCE, ((0, b"ftrt"),), (".engine", ".plan", ".trt")),
    FileKind("a Hailo executable", _GIVE_SOURCE, ((0, b"\x01HEF"),), (".hef", ".har")),
    FileKind("an Ascend offline model", _GIVE_SOURCE, ((0, b"IMOD"),), (".om",)),
    FileKind("a Kendryte model", _GIVE_SOURCE, ((0, b"LDMK"),), (".kmodel",)),
    FileKind(
        "a compiled model of a vendor toolchain",
        _GIVE_SOURCE,
        (),
        (".bmodel", ".dlc", ".cvimodel", ".xmodel", ".axmodel", ".nb", ".cambricon", ".blob"),
    ),
    FileKind(
        "a TensorFlow Lite model",
        "Convert it with 'python -m tf2onnx.convert --tflite MODEL.tflite --output model.onnx'",
        ((4, b"TFL3"),),
        (".tflite", ".lite"),
    ),
    FileKind(
        "a model in onnxruntime's own format",
        "Give the .onnx file that it was made from",
        ((4, b"ORTM"),),
        (".ort",),
    ),
    FileKind("a Keras or HDF5 file", _TF2ONNX, ((0, b"\x89HDF\r\n\x1a\n"),), (".h5", ".hdf5", ".keras")),
    FileKind(
        "a numpy array",
        "Pack it as an .npz with the input's name and give it as --data; a model is an .onnx file",
        ((0, b"\x93NUMPY"),),
        (".npy",),
    ),
    FileKind("a GGUF file", "Language models in GGUF cannot be read; give an ONNX export", ((0, b"GGUF"),)),
    FileKind(
        "a safetensors file, which holds weights without a network",
        "Export the whole network to ONNX and give that file",
        ((8, b'{"__metadata__"'),),
        (".safetensors",),
    ),
    FileKind(
        "an image",
        "Give a folder of images as --data; a model is an .onnx file",
        ((0, b"\x89PNG\r\n"), (0, b"\xff\xd8\xff"), (0, b"GIF8"), (8, b"WEBP")),
        (".jpg", ".jpeg", ".png", ".webp", ".bmp"),
    ),
    FileKind(
        "an archive",
        _UNPACK,
        ((0, b"\x1f\x8b"), (0, b"7z\xbc\xaf\x27\x1c"), (0, b"\xfd7zXZ\x00"), (0, b"BZh"), (257, b"ustar")),
        (".tar", ".gz", ".7z", ".xz", ".rar"),
    ),
    FileKind("a TensorFlow graph", _TF2ONNX, (), (".pb",)),
    FileKind(
        "a Core ML model", "Give the ONNX file or the source network, exported to ONNX", (), (".mlmodel",)
    ),
    FileKind("an ncnn model", "Give the ONNX file that it was made from", (), (".param", ".ncnn")),
    FileKind("a Caffe model", "Convert it to ONNX and give that file", (), (".caffemodel", ".prototxt")),
    FileKind("an MNN model", "Give the ONNX file that it was made from", (), (".mnn",)),
    PYTORCH,
    NPZ,
    ZIP,
)


def kind_by_content(head: bytes, path: Path) -> FileKind | None:
    """Return the format whose signature the file carries, or None.

    Args:
        head: The first ``HEAD_BYTES`` bytes (fewer if the file is shorter).
        path: The file, opened only where its directory of contents decides (zip archives).
    """
    if any(head.startswith(start) for _, start in ZIP.starts):
        return _kind_of_zip(path)
    for kind in KINDS:
        # The name may disagree with the bytes; the bytes are right.
        if any(head[offset:].startswith(start) for offset, start in kind.starts):
            return kind
    return _kind_of_text(head) if _is_text(head) else None


def kind_by_name(path: Path) -> FileKind | None:
    """Return the format that the file name's ending stands for, or None."""
    suffix = path.suffix.lower()
    return next((kind for kind in KINDS if suffix in kind.suffixes), None)


def _kind_of_zip(path: Path) -> FileKind:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError):
        return kind_by_name(path) or ZIP
    tests: tuple[tuple[Callable[[str], bool], FileKind], ...] = (
        (lambda name: name.endswith("data.pkl"), PYTORCH),
        (lambda name: name.endswith(".npy"), NPZ),
        (lambda name: name.endswith("model.weights.h5"), FileKind("a Keras model", _TF2ONNX)),
        (lambda name: name in ("model.params", "dlc.metadata"), FileKind("a Qualcomm DLC", _GIVE_SOURCE)),
    )
    for test, kind in tests:
        if any(test(name) for name in names):
            return kind
    return ZIP


def _is_text(head: bytes) -> bool:
    # A multi-byte character may be cut at the end of the head.
    text = head.decode("utf-8", errors="ignore")
    is_utf8 = len(text.encode("utf-8")) >= len(head) - 3
    return is_utf8 and all(character.isprintable() or character in "\t\r\n\ufeff" for character in text)


def _kind_of_text(head: bytes) -> FileKind:
    text = head.decode("utf-8", errors="ignore").lstrip("\ufeff \t\r\n").lower()
    if text.startswith(("<!doctype html", "<html")):
        return FileKind("a web page, probably of a failed download", "Download the model again")
    if "<net " in text:
        return FileKind(
            "an OpenVINO model (.xml)",
            "OpenVINO's form cannot be read; give the ONNX file that it was converted from",
        )
    if text.startswith(("<ir_version", "ir_version:", '{"irversion', '{ "irversion')):
        return FileKind(
            "an ONNX model in text form",
            "Write it in binary form: onnx.save(onnx.load(FILE, format=...), 'model.onnx')",
        )
    if text.startswith("7767517"):
        return FileKind("an ncnn model", "Give the ONNX file that it was made from")
    return TEXT
