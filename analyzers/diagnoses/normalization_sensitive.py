"""A normalization or softmax that 8 bits before it, or inside of it, spoil."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.diagnoses.fp16_overflow_risk import is_beyond_half
from analyzers.evidence import Evidence
from analyzers.normalizations import Normalization, normalizations
from analyzers.records import INPUT_LAYER
from analyzers.suspicions import Detector, Source, Suspicion

# What comes out must be this much worse than what goes in before the normalization is suspected.
LOST_DB = 3.0


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stores inside of normalizations, and those that fused ones read."""
    for found in normalizations(evidence.pair):
        stored = [t for t in found.inside if t in evidence.stores]
        if stored:
            yield _suspicion(evidence, found, stored, is_inside=True)
        for tensor in stored if len(stored) > 1 else ():
            if not is_beyond_half(evidence, tensor):
                yield _suspicion(evidence, found, [tensor], is_inside=True)
        source = evidence.stores.get(found.source)
        is_stored = source is not None and source.layer != INPUT_LAYER
        if not found.inside and is_stored and _lost(evidence, found) >= LOST_DB:
            yield _suspicion(evidence, found, [found.source], is_inside=False)


def _lost(evidence: Evidence, found: Normalization) -> float:
    """Return by how many dB the result is further from the reference than the input."""
    before, after = evidence.rows.get(found.source), evidence.rows.get(found.exit)
    return 0.0 if before is None or after is None else before.sqnr_db - after.sqnr_db


def _suspicion(evidence: Evidence, found: Normalization, stored: list[str], *, is_inside: bool) -> Suspicion:
    layers = tuple(dict.fromkeys(evidence.stores[t].layer for t in stored))
    what = "between its operators" if is_inside else "before it"
    return Suspicion(
        cause="normalization_sensitive",
        layers=layers,
        sources=tuple(Source("store", t) for t in stored),
        message=(
            f"The normalization that ends in '{found.nodes[-1]}' divides by a statistic of "
            f"'{found.source}', and {', '.join(stored)} {what} {'is' if len(stored) == 1 else 'are'} stored "
            f"in integers: the result is {_lost(evidence, found):.1f} dB further from the reference than the "
            "input"
        ),
        evidence={
            "operators": found.nodes,
            "source": found.source,
            "stored": tuple(stored),
            "lost_db": _lost(evidence, found),
        },
        fix=(
            "Keep the inside of the normalization in float or 16 bits (devices that have it as one operator "
            "do); check the values of x * x before choosing FP16"
        ),
        # That a single tensor of these is uneven or coarse is what normalizations are for.
        specificity=63 if is_inside and len(stored) == 1 else 36,
    )


ENTRY = Detector(
    name="normalization_sensitive",
    looks_at="stores inside and before LayerNorm, RMSNorm, Softmax and the like, fused or written out",
    causes=("normalization_sensitive",),
    find=find,
)
