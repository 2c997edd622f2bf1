"""A tensor written with one scale and read with another: every value is off by the same factor."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzers.evidence import Evidence, Reader, Store
from analyzers.store_families import spoiled_biases, with_biases
from analyzers.store_ranges import culprit, same_parameters
from analyzers.suspicions import Detector, Source, Suspicion

# Scales that were written down with few digits differ by less; half a percent is already -46 dB.
TOLERANCE = 5e-3


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stores whose readers use another scale."""
    for store in evidence.stores.values():
        readers = [r for r in store.readers if abs(gain_of(r) - 1) > TOLERANCE]
        if readers:
            yield _suspicion(evidence, store, readers)


def gain_of(reader: Reader) -> float:
    """Return by what the reader's values are too large; 1 where that cannot be said."""
    written, read = reader.written.scale, reader.quantization.scale
    if written.shape != read.shape or not np.all(np.isfinite(written)) or not np.all(np.isfinite(read)):
        return 1.0
    if np.any(written <= 0) or np.any(read <= 0):
        return 1.0
    gains = read.astype(np.float64) / written
    return float(gains.flat[np.argmax(np.abs(np.log(gains)))])


def _suspicion(evidence: Evidence, store: Store, readers: list[Reader]) -> Suspicion:
    biases = spoiled_biases(evidence, [store])
    gain = gain_of(readers[0])
    names = tuple(r.node or "the output" for r in readers)
    written, read = readers[0].written.scale, readers[0].quantization.scale
    return Suspicion(
        cause="scale_gain_error",
        layers=(culprit(evidence, store),),
        sources=(Source("store", store.tensor), *biases),
        message=(
            f"'{store.tensor}' is written with the scale {_words(written)} and read with {_words(read)} by "
            f"{', '.join(names)}: a gain of {gain:.4g}, to which cosine is blind"
        ),
        evidence={
            "tensor": store.tensor,
            "written_scale": float(written.max()),
            "read_scale": float(read.max()),
            "gain": gain,
            "readers": names,
            "all_readers": len(readers) == len(store.readers),
        },
        fix="Read the tensor with the scale that it is written with",
        specificity=90,
        is_fault=True,
        repairs=with_biases((same_parameters(store),), biases),
    )


def _words(scale: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> str:
    return f"{float(scale):.6g}" if scale.ndim == 0 else f"{scale.min():.6g} .. {scale.max():.6g}"


ENTRY = Detector(
    name="scale_gain_error",
    looks_at="scales of each QuantizeLinear against those of its DequantizeLinear nodes",
    causes=("scale_gain_error",),
    find=find,
)
