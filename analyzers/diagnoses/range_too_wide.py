"""A stored range far wider than the values, so that few levels are left for them."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.evidence import Evidence, Store
from analyzers.records import Fact
from analyzers.store_families import Family, families, for_all
from analyzers.store_noise import own_db
from analyzers.store_ranges import (
    Range,
    add_repair,
    bits_of,
    culprit,
    range_in,
    range_of,
    range_repairs,
    seen_range,
    step_of,
    usual_use,
)
from analyzers.suspicions import Detector, Repair, Suspicion

# A symmetric store of a ReLU's output uses half of its range, a power-of-two scale half of that, and new
# samples may be smaller than those of the calibration. Less than an eighth is none of these.
LEAST_USED = 1 / 8
# No calibration of this tensor, whatever its method, gives a sixteenth.
FAR_TOO_WIDE = 1 / 16
# Where all ranges are as wide, no layer stands out and the calibration or the scheme is the matter.
USUAL = 1 / 2
# An eighth of 8 bits still gives about 25 dB; a store that keeps more does not starve its values.
HARM_DB = 25.0
# A few far values set the range: the largest is this many times the one that 99.9 % stay under ...
STRETCHED = 4.0
# ... and fewer levels than this are left for 99 % of the values: less than five bits.
FEW_LEVELS = 32.0


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stores that use little of their range, and ranges that few far values set."""
    usual = usual_use(evidence)
    for family in families(evidence):
        store = family.head
        held, seen = range_of(store.quantization), seen_range(evidence, store.tensor)
        loss = own_db(evidence, store.tensor)
        if held is None or seen is None or seen.span == 0 or loss >= HARM_DB:
            continue
        if seen.span < min(LEAST_USED, USUAL * usual) * held.span:
            yield _too_wide(evidence, family, held, seen, loss)
        elif _is_stretched(evidence, store):
            yield _stretched(evidence, family, held, loss)


def _too_wide(evidence: Evidence, family: Family, held: Range, seen: Range, loss: float) -> Suspicion:
    store = family.head
    levels = seen.span / (step_of(store.quantization) or 1.0)
    facts: dict[str, Fact] = {
        "tensor": store.tensor,
        "range": (held.low, held.high),
        "seen": (seen.low, seen.high),
        "used_fraction": seen.span / held.span,
        "levels_used": levels,
        "own_sqnr_db": loss,
    }
    calibrated = range_in(evidence.calibration.get(store.tensor))
    if calibrated is not None:
        facts["calibrated"] = (calibrated.low, calibrated.high)
    return Suspicion(
        cause="range_too_wide",
        layers=(culprit(evidence, store),),
        sources=family.sources,
        message=(
            f"'{store.tensor}' is stored with the range {held.words()} but has values from {seen.words()} "
            f"only: {seen.span / held.span:.1%} of the range, {levels:.0f} levels"
        ),
        evidence=facts,
        fix=f"Store it with the range {seen.words()}; else in 16 bits",
        specificity=64 if seen.span < FAR_TOO_WIDE * held.span else 45,
        repairs=for_all(family, range_repairs(evidence, store)),
    )


def _is_stretched(evidence: Evidence, store: Store) -> bool:
    tail = evidence.anatomy[store.tensor].tail
    return tail.max >= STRETCHED * tail.p999 > 0 and tail.levels_for_99 < FEW_LEVELS


def _stretched(evidence: Evidence, family: Family, held: Range, loss: float) -> Suspicion:
    store = family.head
    tail = evidence.anatomy[store.tensor].tail
    repairs: list[Repair] = []
    cut = Range(max(held.low, -tail.p999), min(held.high, tail.p999))
    add_repair(repairs, store, cut, f"stored with the range of 99.9 % of the values, {cut.words()}")
    if (bits_of(store.quantization) or 16) < 16:
        add_repair(repairs, store, held, "stored in 16 bits with the same range", bits=16)
    return Suspicion(
        cause="range_too_wide",
        layers=(culprit(evidence, store),),
        sources=family.sources,
        message=(
            f"A few far values set the range of '{store.tensor}': it reaches {tail.max:.3g}, 99.9 % of the "
            f"values stay under {tail.p999:.3g}, and 99 % share {tail.levels_for_99:.0f} levels"
        ),
        evidence={
            "tensor": store.tensor,
            "range": (held.low, held.high),
            "largest": tail.max,
            "p999": tail.p999,
            "p99": tail.p99,
            "levels_for_99": tail.levels_for_99,
            "own_sqnr_db": loss,
        },
        fix=f"Cut the range at a percentile ({tail.p999:.3g} holds 99.9 %), or store it in 16 bits",
        specificity=44,
        repairs=for_all(family, repairs),
    )


ENTRY = Detector(
    name="range_too_wide",
    looks_at="how much of its stored range each tensor uses, and whether a few far values set it",
    causes=("range_too_wide",),
    find=find,
)
