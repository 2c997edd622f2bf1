"""A tensor written with one zero point and read with another, or with one that its type cannot hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.evidence import Evidence, Reader, Store
from analyzers.levels import limits_of
from analyzers.records import Quantization
from analyzers.store_ranges import culprit, range_repairs, same_parameters
from analyzers.suspicions import Detector, Source, Suspicion

# The distance of the same code seen as an unsigned and as a signed byte.
SIGN_OFFSET = 128


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stores whose readers use another zero point, and zero points outside their type."""
    for store in evidence.stores.values():
        readers = [r for r in store.readers if _differs(r)]
        if readers:
            yield _mismatch(evidence, store, readers)
        elif _is_outside_type(store.quantization):
            yield _outside(evidence, store)


def _differs(reader: Reader) -> bool:
    written, read = reader.written, reader.quantization
    return written.dtype != read.dtype or not np.array_equal(written.zero_point, read.zero_point)


def _is_outside_type(quantization: Quantization) -> bool:
    limits = limits_of(quantization.dtype)
    if limits is None:
        return False
    zero = quantization.zero_point
    return bool(np.any((zero < limits[0]) | (zero > limits[1])))


def _mismatch(evidence: Evidence, store: Store, readers: list[Reader]) -> Suspicion:
    written, read = readers[0].written, readers[0].quantization
    steps = int(np.abs(written.zero_point - read.zero_point).max())
    offset = float(np.abs((written.zero_point - read.zero_point) * written.scale).max())
    why = ""
    if steps == SIGN_OFFSET or written.dtype != read.dtype:
        why = ", as if unsigned bytes were taken for signed ones"
    names = tuple(r.node or "the output" for r in readers)
    return Suspicion(
        cause="zero_point_mismatch",
        layers=(culprit(evidence, store),),
        sources=(Source("store", store.tensor),),
        message=(
            f"'{store.tensor}' is written with the zero point {_words(written)} and read with {_words(read)} "
            f"by {', '.join(names)}{why}: a constant offset of {steps} steps, {offset:.4g}"
        ),
        evidence={
            "tensor": store.tensor,
            "written_zero_point": _words(written),
            "read_zero_point": _words(read),
            "offset_steps": steps,
            "offset": offset,
            "readers": names,
            "all_readers": len(readers) == len(store.readers),
        },
        fix="Read the tensor with the zero point (and type) that it is written with",
        specificity=91,
        is_fault=True,
        repairs=(same_parameters(store),),
    )


def _outside(evidence: Evidence, store: Store) -> Suspicion:
    return Suspicion(
        cause="zero_point_mismatch",
        layers=(culprit(evidence, store),),
        sources=(Source("store", store.tensor),),
        message=f"The zero point {_words(store.quantization)} of '{store.tensor}' is outside its type",
        evidence={"tensor": store.tensor, "written_zero_point": _words(store.quantization)},
        fix="Calibrate this tensor again: its range has to hold zero",
        specificity=91,
        is_fault=True,
        repairs=range_repairs(evidence, store),
    )


def _words(quantization: Quantization) -> str:
    zero = quantization.zero_point
    value = f"{int(zero)}" if zero.ndim == 0 else f"{int(zero.min())} .. {int(zero.max())}"
    return f"{value} ({quantization.dtype})"


ENTRY = Detector(
    name="zero_point_mismatch",
    looks_at="zero points and types of each QuantizeLinear against those of its DequantizeLinear nodes",
    causes=("zero_point_mismatch",),
    find=find,
)
