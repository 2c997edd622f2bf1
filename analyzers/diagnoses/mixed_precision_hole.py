"""A tensor with fewer bits than all others around it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analyzers.evidence import Evidence
from analyzers.store_families import Family, families, for_all
from analyzers.store_noise import own_db
from analyzers.store_ranges import bits_of, culprit, range_of, range_repairs, seen_range
from analyzers.suspicions import Detector, Suspicion

# More narrow tensors than this are a choice of mixed precision, not a hole in it.
MOST_NARROW = 1 / 4


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect the few stores whose type is narrower than the usual one."""
    found = families(evidence)
    widths = {family.head.tensor: bits_of(family.head.quantization) for family in found}
    counts = Counter(width for width in widths.values() if width is not None)
    if len(counts) < 2:
        return
    usual = max(counts, key=lambda width: (counts[width], width))
    narrow = [f for f in found if (widths[f.head.tensor] or usual) < usual]
    if 0 < len(narrow) <= MOST_NARROW * counts.total():
        for family in narrow:
            yield _suspicion(evidence, family, usual, counts[usual])


def _suspicion(evidence: Evidence, family: Family, usual: int, others: int) -> Suspicion:
    store = family.head
    bits = bits_of(store.quantization) or 0
    held, seen = range_of(store.quantization), seen_range(evidence, store.tensor)
    used = held.span and seen.span / held.span if held is not None and seen is not None else float("nan")
    return Suspicion(
        cause="mixed_precision_hole",
        layers=(culprit(evidence, store),),
        sources=family.sources,
        message=(
            f"'{store.tensor}' is stored in {bits} bits ({store.quantization.dtype}) among {others} tensors "
            f"of {usual} bits; it uses {used:.1%} of its range"
        ),
        evidence={
            "tensor": store.tensor,
            "bits": bits,
            "usual_bits": usual,
            "tensors_with_usual_bits": others,
            "used_fraction": used,
            "own_sqnr_db": own_db(evidence, store.tensor),
        },
        fix=f"Store it in {usual} bits like the others",
        specificity=78,
        repairs=for_all(family, range_repairs(evidence, store)[::-1]),
    )


ENTRY = Detector(
    name="mixed_precision_hole",
    looks_at="the width of each tensor's integer type against that of the others",
    causes=("mixed_precision_hole",),
    find=find,
)
