"""Values under half a step: they are stored as zero."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.evidence import Evidence
from analyzers.store_families import Family, families, for_all
from analyzers.store_noise import StoreNoise, store_noise
from analyzers.store_ranges import (
    culprit,
    op_type_of,
    range_repairs,
    seen_range,
    step_of,
)
from analyzers.suspicions import Detector, Suspicion

# 8 bits over a bell-shaped tensor put about 1 % of the values under half a step, over exponential ones (ReLU
# after ReLU) up to a fifth; only beyond that is it worth a look at the values.
LEAST_UNDER = 0.2
# Those values are the small ones, so what they hold together is little. A tenth of all magnitude is not:
# a sum over them (an attention's mixture, a mean) is off by as much.
LEAST_MASS = 0.1


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stores in which much of the tensor becomes zero."""
    for family in families(evidence):
        store = family.head
        anatomy = evidence.anatomy.get(store.tensor)
        if anatomy is None or not anatomy.tail.under_half_step >= LEAST_UNDER:
            continue
        found = store_noise(evidence, store)
        if found is not None and found.whole.vanished >= LEAST_MASS * found.whole.mass > 0:
            yield _suspicion(evidence, family, found)


def _suspicion(evidence: Evidence, family: Family, found: StoreNoise) -> Suspicion:
    store = family.head
    whole, step = found.whole, step_of(store.quantization) or 0.0
    tail = evidence.anatomy[store.tensor].tail
    seen = seen_range(evidence, store.tensor)
    share = whole.vanished / whole.mass
    is_erased = whole.vanished == whole.mass
    how = (
        "is zero on the candidate's side only (its cosine is undefined)"
        if is_erased
        else f"loses {share:.0%} of its magnitude to zero"
    )
    extremes = "" if seen is None else f", the tensor reaches {max(abs(seen.low), abs(seen.high)):.3g}"
    return Suspicion(
        cause="resolution_underflow",
        layers=(culprit(evidence, store),),
        sources=family.sources,
        message=(
            f"'{store.tensor}' {how}: {tail.under_half_step:.0%} of its values are under half a step "
            f"({step / 2:.3g}){extremes}"
        ),
        evidence={
            "tensor": store.tensor,
            "op_type": op_type_of(evidence, store),
            "half_step": step / 2,
            "under_half_step_fraction": tail.under_half_step,
            "zeroed_fraction": whole.zeroed / whole.count,
            "vanished_share": share,
            "median_magnitude": tail.p50,
            "largest": tail.max,
            "zero_on_one_side": is_erased,
        },
        fix="Store it with the range that it really has, not a wider or fixed one; else in 16 bits or float",
        specificity=65,
        is_fault=is_erased,
        repairs=for_all(family, range_repairs(evidence, store)),
    )


ENTRY = Detector(
    name="resolution_underflow",
    looks_at="values under half a step of their store, and how much of the tensor they make",
    causes=("resolution_underflow",),
    find=find,
)
