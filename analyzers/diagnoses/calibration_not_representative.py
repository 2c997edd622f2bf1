"""Ranges of the whole network that belong to other data: most are far too narrow, or far too wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analyzers.diagnoses import input_range
from analyzers.evidence import Evidence, Store
from analyzers.records import INPUT_LAYER
from analyzers.store_noise import isolated_db, own_db, store_noise
from analyzers.store_ranges import (
    Range,
    culprit,
    own_stores,
    range_in,
    range_of,
    requantized,
    seen_range,
    step_of,
    was_inactive,
)
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion

# By itself such a store takes its layer under the threshold of a good one (cosine 0.99). Where every layer is
# still good alone, the loss is accumulation, whatever the ranges.
HARM_DB = 16.9
# Less than an eighth of the range in use is no headroom any more.
LEAST_USED = 1 / 8
# Half of the tensors is the network, not a layer; and two are too few to speak of a network.
MOST = 1 / 2
FEWEST = 3
# Calibrated ranges that differ from those of the evaluation by this factor come from other data.
FACTOR = 2.0

Direction = Literal["narrow", "wide"]


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """How one range fits: ``used`` is the share of the held range that the values span."""

    store: Store
    used: float
    clipped: float
    direction: Direction | None


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect the calibration where most stores by themselves clip heavily or starve their values.

    The range of an input says so alone: nothing but the calibration data made it. Behind normalizations and
    bounded activations the ranges look alike whatever the data were.
    """
    fits = [fit for store in own_stores(evidence) if (fit := _fit(evidence, store)) is not None]
    for direction in ("narrow", "wide"):
        bad = [fit for fit in fits if fit.direction == direction]
        if len(bad) >= FEWEST and len(bad) >= MOST * len(fits):
            yield _suspicion(evidence, fits, bad, direction, own_stores(evidence))
        elif any(_is_telling(evidence, fit) for fit in bad) and not _is_preprocessing(evidence):
            yield _suspicion(evidence, fits, bad, direction, [fit.store for fit in bad])


def _is_telling(evidence: Evidence, fit: _Fit) -> bool:
    """Tell whether it is an input whose range the calibration made: the given set, if any, has it."""
    factor = _calibrated_factor(evidence, fit.store)
    is_calibrated = factor is None or not 1 / FACTOR < factor < FACTOR
    is_far_off = not 1 < fit.used < FACTOR
    return fit.store.layer == INPUT_LAYER and is_calibrated and is_far_off


def _is_preprocessing(evidence: Evidence) -> bool:
    """Tell whether an input's range is that of another usual normalization, which explains more."""
    return any(True for _ in input_range.find(evidence))


def _fit(evidence: Evidence, store: Store) -> _Fit | None:
    held, seen = range_of(store.quantization), seen_range(evidence, store.tensor)
    if held is None or seen is None or seen.span == 0:
        return None
    clipped = _clipped_fraction(evidence, store)
    is_harmed = own_db(evidence, store.tensor) < HARM_DB
    direction: Direction | None = None
    if seen.span < LEAST_USED * held.span and is_harmed:
        direction = "wide"
    elif _is_clipped(evidence, store, held, seen):
        direction = "narrow"
    return _Fit(store, seen.span / held.span, clipped, direction)


def _is_clipped(evidence: Evidence, store: Store, held: Range, seen: Range) -> bool:
    step = step_of(store.quantization) or 0.0
    if seen.low >= held.low - step / 2 and seen.high <= held.high + step / 2:
        return False
    if isolated_db(evidence, store.tensor) >= HARM_DB:
        return False
    found = store_noise(evidence, store)
    return found is not None and found.whole.clipping_db < HARM_DB


def _clipped_fraction(evidence: Evidence, store: Store) -> float:
    whole = evidence.measured[store.tensor].pooled.whole
    return float(whole.outside) / float(whole.count) if float(whole.count) else 0.0


def _suspicion(
    evidence: Evidence,
    fits: Sequence[_Fit],
    bad: Sequence[_Fit],
    direction: Direction,
    stores: Sequence[Store],
) -> Suspicion:
    used = np.array([fit.used for fit in fits])
    clipped = np.array([fit.clipped for fit in fits])
    middle = float(np.median(used))
    if direction == "narrow":
        how = (
            f"{len(bad)} of {len(fits)} stored ranges are far too narrow: the median tensor spans "
            f"{middle:.2g} times its range and {float(np.median(clipped)):.1%} of it is clipped"
        )
    else:
        how = (
            f"{len(bad)} of {len(fits)} stored ranges are far too wide: the median tensor uses {middle:.2%} "
            f"of its range"
        )
    inputs = "".join(
        f"input '{fit.store.tensor}' spans {fit.used:.2g} times its range; "
        for fit in bad
        if fit.store.layer == INPUT_LAYER
    )
    dead = [store for store in own_stores(evidence) if was_inactive(evidence, store)]
    return Suspicion(
        cause="calibration_not_representative",
        layers=tuple(dict.fromkeys(culprit(evidence, store) for store in dead)),
        sources=tuple(Source("store", store.tensor) for store in stores),
        message=(
            f"The calibration data do not match the evaluation data: {inputs}{how}"
            f"{_against_calibration(evidence)}{_never_active(dead)}"
        ),
        evidence={
            "direction": f"too {direction}",
            "tensors": len(fits),
            "bad_tensors": len(bad),
            "median_utilisation": middle,
            "least_utilisation": float(used.min()),
            "largest_utilisation": float(used.max()),
            "median_clipped_fraction": float(np.median(clipped)),
            "tensor_names": tuple(fit.store.tensor for fit in fits),
            "utilisation": tuple(float(u) for u in used),
            "clipped_fraction": tuple(float(c) for c in clipped),
            "never_active_in_calibration": tuple(store.tensor for store in dead),
            **_calibration_facts(evidence),
        },
        fix=_fix(dead),
        specificity=66,
        is_fault=len(bad) >= MOST * len(fits),
        scope="network",
        repairs=_repairs(evidence, fits),
    )


def _never_active(dead: Sequence[Store]) -> str:
    names = ", ".join(f"'{store.tensor}'" for store in dead)
    return f". Never active in it: {names}" if dead else ""


def _fix(dead: Sequence[Store]) -> str:
    words = "Recalibrate with samples like those that the network will see"
    if not dead:
        return f"{words}; no layer is to blame"
    return f"{words}, some of which activate {', '.join(repr(store.layer) for store in dead)}"


def _calibrated_factors(evidence: Evidence) -> list[float]:
    factors = (_calibrated_factor(evidence, store) for store in own_stores(evidence))
    return [factor for factor in factors if factor is not None]


def _calibrated_factor(evidence: Evidence, store: Store) -> float | None:
    """Return how many times wider the calibrated range of a tensor is than the one seen."""
    found = range_in(evidence.calibration.get(store.tensor))
    seen = seen_range(evidence, store.tensor)
    return None if found is None or seen is None or seen.span == 0 else found.span / seen.span


def _against_calibration(evidence: Evidence) -> str:
    factors = _calibrated_factors(evidence)
    if not factors:
        return ""
    middle = float(np.median(factors))
    if 1 / FACTOR < middle < FACTOR:
        return (
            f". On the given calibration set the median range is {middle:.2g} times that of the samples: "
            "the candidate was not calibrated on it"
        )
    return f". On the given calibration set the median range is {middle:.2g} times that of the samples"


def _calibration_facts(evidence: Evidence) -> dict[str, float]:
    factors = _calibrated_factors(evidence)
    return {"median_calibrated_over_seen": float(np.median(factors))} if factors else {}


def _repairs(evidence: Evidence, fits: Sequence[_Fit]) -> tuple[Repair, ...]:
    changes = []
    for fit in fits:
        seen = seen_range(evidence, fit.store.tensor)
        anew = None if seen is None else requantized(fit.store.quantization, seen)
        if anew is not None:
            changes.append(Change(Source("store", fit.store.tensor), quantization=anew))
    return (Repair("calibrated again on the samples at hand", tuple(changes)),) if changes else ()


ENTRY = Detector(
    name="calibration_not_representative",
    looks_at="how much of its stored range every tensor of the network uses, and how much of it is clipped",
    causes=("calibration_not_representative",),
    find=find,
)
