"""Walk the outermost protobuf fields of a file, to tell a cut-off ONNX model from something else.

Only tags and lengths are read, so this is cheap for files of any size. Source: the protobuf encoding
(tag = field number << 3 | wire type) and the field numbers of ModelProto in onnx.proto.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from typing import Literal, Protocol

VARINT, LENGTH_DELIMITED = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
IR_VERSION, GRAPH, OPSET_IMPORT = 1, 7, 8
MAX_FIELDS = 100_000  # a model has a handful; beyond this the parser itself decides
_MAX_IR_VERSION = 1000
_FUTURE_FIELDS = range(27, 100)  # what a newer ONNX may add; skipped
_MODEL_FIELDS = {
    IR_VERSION: VARINT,
    2: LENGTH_DELIMITED,  # producer_name
    3: LENGTH_DELIMITED,  # producer_version
    4: LENGTH_DELIMITED,  # domain
    5: VARINT,  # model_version
    6: LENGTH_DELIMITED,  # doc_string
    GRAPH: LENGTH_DELIMITED,
    OPSET_IMPORT: LENGTH_DELIMITED,
    14: LENGTH_DELIMITED,  # metadata_props
    20: LENGTH_DELIMITED,  # training_info
    25: LENGTH_DELIMITED,  # functions
    26: LENGTH_DELIMITED,  # configuration
}


class Bytes(Sized, Protocol):
    """bytes or a memory map."""

    def __getitem__(self, index: int, /) -> int:
        """Return one byte."""
        ...


@dataclass(frozen=True, slots=True)
class Walk:
    """What the outermost fields say.

    Attributes:
        verdict: "complete" (a well-formed ModelProto on this level), "truncated" (a ModelProto whose last
            field is longer than the file), "other" (anything else).
        missing_bytes: How much the last field lacks; 0 unless truncated inside a field with a length.
        fields: Field numbers that were met.
    """

    verdict: Literal["complete", "truncated", "other"]
    missing_bytes: int = 0
    fields: frozenset[int] = frozenset()


def walk_model(data: Bytes) -> Walk:
    """Judge the outermost fields of ``data`` as those of an ONNX ModelProto."""
    size, position, fields = len(data), 0, set[int]()
    for _ in range(MAX_FIELDS):
        if position >= size:
            break
        tag, position = _varint(data, position)
        if tag is None:
            return _cut(fields, 0)
        number, wire_type = tag >> 3, tag & 7
        if not _is_known(number, wire_type):
            return Walk("other", fields=frozenset(fields))
        if wire_type in _FIXED_BYTES:
            position += _FIXED_BYTES[wire_type]
            continue
        value, position = _varint(data, position)
        if value is None:
            return _cut(fields, 0)
        if number == IR_VERSION and not 1 <= value <= _MAX_IR_VERSION:
            return Walk("other", fields=frozenset(fields))
        fields.add(number)
        if wire_type == LENGTH_DELIMITED:
            position += value
    if position > size:
        return _cut(fields, position - size)
    return Walk("complete", fields=frozenset(fields))


def _is_known(number: int, wire_type: int) -> bool:
    if number in _FUTURE_FIELDS:
        return wire_type in (VARINT, LENGTH_DELIMITED, *_FIXED_BYTES)
    return _MODEL_FIELDS.get(number) == wire_type


def _cut(fields: set[int], missing: int) -> Walk:
    # Every exporter writes ir_version first; without it a length beyond the end is just noise.
    return Walk("truncated" if IR_VERSION in fields else "other", missing, frozenset(fields))


def _varint(data: Bytes, position: int) -> tuple[int | None, int]:
    """Return (value, next position); None where the data ends inside the number."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            return None, position
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
    return value, position
