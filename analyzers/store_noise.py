"""How much of a store's error is clipping, how much rounding, and on which samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.evidence import Evidence, Look, Store
from analyzers.levels import dequantize, quantize, read_levels
from analyzers.lifts import same
from analyzers.moments import Moments
from analyzers.records import Quantization
from analyzers.store_ranges import range_of, step_of


@dataclass(frozen=True, slots=True)
class Noise:
    """Energies of one sample or of several together: float64 sums of squares over finite positions.

    Attributes:
        count: Values.
        signal: Of the reference.
        noise: Of the isolated error, the layer fed with the reference's values.
        outside: Values over half a step outside what the store can hold.
        clipped: Error energy of those.
        mass: Sum of the magnitudes of the reference.
        vanished: The same of values that are stored as zero though they are not.
        zeroed: How many those are.
    """

    count: float
    signal: float
    noise: float
    outside: float
    clipped: float
    mass: float
    vanished: float
    zeroed: float

    @property
    def sqnr_db(self) -> float:
        """Signal over all noise."""
        return decibels(self.signal, self.noise)

    @property
    def clipping_db(self) -> float:
        """Signal over the noise of clipped values alone."""
        return decibels(self.signal, self.clipped)


@dataclass(frozen=True, slots=True, eq=False)
class StoreNoise:
    """What a store does on the looked-at samples.

    Attributes:
        whole: All samples together.
        samples: Name and noise of each.
    """

    whole: Noise
    samples: tuple[tuple[str, Noise], ...]


def decibels(signal: float, noise: float) -> float:
    """Return 10 log10 of a ratio of energies; nan where both are zero."""
    if signal <= 0 or noise <= 0:
        return math.nan if signal <= 0 and noise <= 0 else math.copysign(math.inf, signal - noise)
    return 10 * math.log10(signal / noise)


def isolated_db(evidence: Evidence, tensor: str) -> float:
    """Return the isolated SQNR of a tensor on the looked-at samples; nan where it was not measured.

    Where nothing finite is stored it is ``-inf``.
    """
    anatomy = evidence.anatomy.get(tensor)
    if anatomy is None or anatomy.stored is None:
        return math.nan
    whole = anatomy.stored.whole
    if _is_lost(whole):
        return -math.inf
    return decibels(float(whole.reference_energy), float(whole.noise))


def _is_lost(whole: Moments) -> bool:
    """Tell whether nothing finite is left where the reference is finite."""
    return float(whole.count) == 0 and float(whole.one_sided) > 0


def own_db(evidence: Evidence, tensor: str) -> float:
    """Return the SQNR of a store by itself: what its layer computes wrong already is not counted."""
    anatomy = evidence.anatomy.get(tensor)
    if anatomy is None or anatomy.stored is None:
        return math.nan
    stored = anatomy.stored.whole
    if _is_lost(stored):
        return -math.inf
    before = 0.0 if anatomy.computed is None else float(anatomy.computed.whole.noise)
    return decibels(float(stored.reference_energy), max(float(stored.noise) - before, 0.0))


def other_writings(store: Store) -> dict[str, Quantization]:
    """Return second quantizers on edges that differ from the store, by the reading layer."""
    return {
        reader.layer: reader.written
        for reader in store.readers
        if reader.layer and not same(reader.written, store.quantization)
    }


def store_noise(
    evidence: Evidence, store: Store, *, quantization: Quantization | None = None
) -> StoreNoise | None:
    """Split the isolated error of a store; None where it has no single scale or cannot be looked at.

    Args:
        evidence: Whose values are looked at.
        store: The store.
        quantization: A second quantizer on an edge: what it makes of the reference's values is measured.
    """
    stored_with = quantization or store.quantization
    if step_of(stored_with) is None:
        return None
    rows: list[tuple[str, Noise]] = []
    for look in evidence.look_at_store(store.tensor):
        stored = _requantized(look, quantization) if quantization is not None else look.stored
        if stored is not None and stored.shape == look.reference.shape:
            rows.append((look.sample, _noise(look.reference, stored, stored_with)))
    return StoreNoise(_total([n for _, n in rows]), tuple(rows)) if rows else None


def _requantized(look: Look, quantization: Quantization) -> NDArray[np.float32]:
    levels = read_levels(quantization, look.reference.shape)
    return dequantize(quantize(look.reference, quantization), levels)


def _noise(reference: NDArray[np.float32], stored: NDArray[np.float32], quantization: Quantization) -> Noise:
    bounds, step = range_of(quantization), step_of(quantization)
    assert bounds is not None
    assert step is not None
    real = reference.astype(np.float64).reshape(-1)
    kept = stored.astype(np.float64).reshape(-1)
    finite = np.isfinite(real) & np.isfinite(kept)
    real, kept = real[finite], kept[finite]
    error = np.square(kept - real)
    outside = (real < bounds.low - step / 2) | (real > bounds.high + step / 2)
    zeroed = (kept == 0) & (real != 0)
    return Noise(
        count=float(real.size),
        signal=float(np.square(real).sum()),
        noise=float(error.sum()),
        outside=float(outside.sum()),
        clipped=float(error[outside].sum()),
        mass=float(np.abs(real).sum()),
        vanished=float(np.abs(real[zeroed]).sum()),
        zeroed=float(zeroed.sum()),
    )


def _total(noises: Sequence[Noise]) -> Noise:
    return Noise(
        count=sum(n.count for n in noises),
        signal=sum(n.signal for n in noises),
        noise=sum(n.noise for n in noises),
        outside=sum(n.outside for n in noises),
        clipped=sum(n.clipped for n in noises),
        mass=sum(n.mass for n in noises),
        vanished=sum(n.vanished for n in noises),
        zeroed=sum(n.zeroed for n in noises),
    )
