"""A few channels that set the range of a tensor and leave the others next to no levels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.evidence import Evidence, Look, Store
from analyzers.store_families import Family, families, for_all
from analyzers.store_noise import decibels
from analyzers.store_ranges import (
    Range,
    add_repair,
    bits_of,
    culprit,
    op_type_of,
    range_of,
    seen_range,
    step_of,
)
from analyzers.suspicions import Detector, Repair, Suspicion

# Channels of trained networks differ by four to six; with eight times the others' largest value the others
# lose three bits.
FAR = 8.0
# More channels than this are not outliers.
MOST_CHANNELS = 1 / 8
FEWEST = 4  # of an axis; below it there are no "others"
# The others have lost three of the eight bits. Along a residual stream many such stores add up.
HARM_DB = 25.0
# Each of them is bad by itself.
GROSS_DB = 20.0
# Outliers that set a range fill it, up to what a symmetric store with a power-of-two scale wastes.
LEAST_USED = 1 / 4
# Only tensors whose bulk is coarse are looked at: values under half a step, or a median of two steps.
COARSE_SHARE = 0.05
COARSE_STEPS = 2.0
_LOOKS = 48  # the coarsest ones
_NAMED = 8  # channels named in the message


@dataclass(frozen=True, slots=True, eq=False)
class _Outliers:
    axis: int
    channels: tuple[int, ...]
    size: int
    largest: float
    others: float
    others_db: float


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stores whose other channels are starved by a few, one by one and along a residual stream."""
    coarse = [f for f in families(evidence) if _coarseness(evidence, f.head) > 0]
    coarse.sort(key=lambda f: -_coarseness(evidence, f.head))
    streams: dict[tuple[int, int, int], list[tuple[Suspicion, float]]] = {}
    for family in coarse[:_LOOKS]:
        found = _outliers(evidence.look_at_store(family.head.tensor))
        if found is not None and found.others_db < HARM_DB and _is_wrong_before(evidence, family.head):
            found = _outliers(evidence.look(family.head.tensor))
        if found is not None and found.others_db < HARM_DB:
            suspicion = _suspicion(evidence, family, found)
            streams.setdefault((found.axis, found.size, found.channels[0]), []).append(
                (suspicion, found.others_db)
            )
            yield suspicion
    for (axis, _, channel), members in streams.items():
        if len(members) > 1:
            is_bad_throughout = all(db < GROSS_DB for _, db in members)
            specificity = 68 if is_bad_throughout else 66  # else a member that does it alone says more
            yield _stream(evidence, [s for s, _ in members], axis, channel, specificity)


def _coarseness(evidence: Evidence, store: Store) -> float:
    anatomy, step = evidence.anatomy.get(store.tensor), step_of(store.quantization)
    # Where probabilities sum to one, a large one is no outlier.
    if anatomy is None or step is None or op_type_of(evidence, store) == "Softmax":
        return 0.0
    held, seen = range_of(store.quantization), seen_range(evidence, store.tensor)
    if held is None or seen is None or seen.span < LEAST_USED * held.span:
        return 0.0  # something else made the range wide
    tail = anatomy.tail
    is_coarse = tail.under_half_step >= COARSE_SHARE or 0 < tail.p50 < COARSE_STEPS * step
    return tail.max / max(tail.p50, tail.max * 1e-6) if is_coarse and tail.max > 0 else 0.0


def _is_wrong_before(evidence: Evidence, store: Store) -> bool:
    """Tell whether the layer computes most of the error, so that the share of the store must be split off."""
    stages = evidence.anatomy[store.tensor]
    if stages.computed is None or stages.stored is None:
        return False
    return float(stages.computed.whole.noise) > 0.5 * float(stages.stored.whole.noise)


def _outliers(looks: Sequence[Look]) -> _Outliers | None:
    """Return the axis on which the fewest indices hold what makes the tensor wide."""
    found: list[_Outliers] = []
    rank = looks[0].reference.ndim if looks else 0
    for axis in range(1 if rank > 1 else 0, rank):
        largest = _largest(looks, axis)
        if largest is None or largest.size < FEWEST:
            continue
        is_far = largest > FAR * max(float(np.median(largest)), float(np.finfo(np.float32).tiny))
        if not 0 < int(is_far.sum()) <= max(1, MOST_CHANNELS * largest.size):
            continue
        order = np.flatnonzero(is_far)[np.argsort(-largest[is_far], kind="stable")]
        outliers = _Outliers(
            axis=axis,
            channels=tuple(int(c) for c in order),
            size=largest.size,
            largest=float(largest.max()),
            others=float(largest[~is_far].max()),
            others_db=_others_db(looks, axis, ~is_far),
        )
        found.append(outliers)
    return min(found, key=lambda o: (len(o.channels) / o.size, o.axis), default=None)


def _largest(looks: Sequence[Look], axis: int) -> NDArray[np.float64] | None:
    """Return the largest magnitude at each index of an axis; None where its size changes."""
    if len({look.reference.shape[axis] for look in looks}) > 1:
        return None
    rows = []
    for look in looks:
        values = np.abs(np.nan_to_num(look.reference.astype(np.float64), posinf=0.0, neginf=0.0))
        rows.append(values.max(axis=tuple(d for d in range(values.ndim) if d != axis), initial=0.0))
    return np.asarray(np.max(rows, axis=0))


def _others_db(looks: Sequence[Look], axis: int, others: NDArray[np.bool_]) -> float:
    """Return the SQNR of the store in the other channels; what was computed wrong before is not counted."""
    signal = noise = 0.0
    for look in looks:
        before = look.reference if look.computed is None else look.computed
        if look.stored is None or look.stored.shape != before.shape:
            return math.nan
        kept = np.compress(others, look.stored, axis=axis).astype(np.float64)
        real = np.compress(others, before, axis=axis).astype(np.float64)
        signal += float(np.nansum(np.square(real)))
        noise += float(np.nansum(np.square(kept - real)))
    return decibels(signal, noise)


def _suspicion(evidence: Evidence, family: Family, found: _Outliers) -> Suspicion:
    store = family.head
    step = step_of(store.quantization) or 1.0
    held = range_of(store.quantization)
    tail = evidence.anatomy[store.tensor].tail
    names = ", ".join(str(c) for c in found.channels[:_NAMED])
    names += ", ..." if len(found.channels) > _NAMED else ""
    repairs: list[Repair] = []
    if held is not None:
        if (bits_of(store.quantization) or 16) < 16:
            add_repair(repairs, store, held, "stored in 16 bits with the same range", bits=16)
        # The outliers are part of what the network computes; cutting them is second best.
        cut = Range(max(held.low, -found.others), min(held.high, found.others))
        add_repair(repairs, store, cut, f"stored with the range of the other channels, {cut.words()}")
    return Suspicion(
        cause="activation_outlier_channel",
        layers=(culprit(evidence, store),),
        sources=family.sources,
        message=(
            f"{len(found.channels)} of {found.size} channels of '{store.tensor}' (axis {found.axis}: "
            f"{names}) reach {found.largest:.3g} and set the range; the others stay under "
            f"{found.others:.3g}, which is {2 * found.others / step:.0f} levels or {found.others_db:.1f} dB"
        ),
        evidence={
            "tensor": store.tensor,
            "axis": found.axis,
            "channels": found.channels,
            "channel_count": found.size,
            "largest": found.largest,
            "others_largest": found.others,
            "others_levels": 2 * found.others / step,
            "others_sqnr_db": found.others_db,
            "levels_for_99": tail.levels_for_99,
            "under_half_step_fraction": tail.under_half_step,
        },
        fix=(
            "Move the channels' size into the weights of the next layer (as SmoothQuant does), or store this "
            "tensor in 16 bits or in float"
        ),
        specificity=67,
        repairs=for_all(family, repairs),
    )


def _stream(
    evidence: Evidence, members: list[Suspicion], axis: int, channel: int, specificity: int
) -> Suspicion:
    """Suspect all stores that carry the same outlier together: repairing one alone repairs little."""
    place = {name: index for index, name in enumerate(evidence.layers)}
    layers = dict.fromkeys(layer for member in members for layer in member.layers)
    ordered = sorted(layers, key=lambda name: place.get(name, -1))
    sources = dict.fromkeys(source for member in members for source in member.sources)
    how = dict.fromkeys(repair.how for member in members for repair in member.repairs[:1])
    changes = tuple(c for member in members for repair in member.repairs[:1] for c in repair.changes)
    return Suspicion(
        cause="activation_outlier_channel",
        layers=tuple(ordered),
        sources=tuple(sources),
        message=(
            f"Channel {channel} (axis {axis}) is an outlier all along {', '.join(ordered)} and sets the "
            "range of each: only all of them together leave the other channels their levels"
        ),
        evidence={
            "axis": axis,
            "channels": (channel,),
            "tensors": tuple(source.name for source in sources),
        },
        fix=(
            "Store all of these tensors in 16 bits or in float, or scale the channel down where it enters "
            "and up in the weights that read it"
        ),
        specificity=specificity,
        repairs=(Repair(next(iter(how)), changes),) if changes else (),
    )


ENTRY = Detector(
    name="activation_outlier_channel",
    looks_at="whether few channels set the range of a tensor, and the levels that the others have left",
    causes=("activation_outlier_channel",),
    find=find,
)
