"""A stored range too narrow for the layer's own values."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.evidence import Evidence, Store
from analyzers.records import Fact, Quantization
from analyzers.store_families import Family, families, for_all
from analyzers.store_noise import Noise, StoreNoise, isolated_db, other_writings, store_noise
from analyzers.store_ranges import (
    BETWEEN_0_AND_1,
    Range,
    culprit,
    op_type_of,
    range_in,
    range_of,
    range_repairs,
    seen_range,
    step_of,
)
from analyzers.suspicions import Detector, Suspicion

# Ranges cut at a percentile or for the least squared error clip a little on purpose; what they lose lies
# about 30 dB under the signal. Clipping above this line is more than that.
HARM_DB = 25.0
# Rounding has to be the smaller part, or another cause explains the error better.
LEAST_SHARE = 0.5
# No choice of range costs this much: it is a mistake whatever the output makes of it.
GROSS_DB = 15.0
# From here on a single sample counts as affected.
SAMPLE_DB = 20.0


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stores whose isolated error is mostly clipped values."""
    for family in families(evidence):
        store = family.head
        seen = seen_range(evidence, store.tensor)
        if seen is None:
            continue
        if _exceeds(seen, store.quantization) and not isolated_db(evidence, store.tensor) >= HARM_DB:
            yield from _judge(evidence, family, seen, culprit(evidence, store), None)
        for layer, written in other_writings(store).items():
            if _exceeds(seen, written):
                yield from _judge(evidence, family, seen, layer, written)


def _exceeds(seen: Range, quantization: Quantization) -> bool:
    held, step = range_of(quantization), step_of(quantization)
    if held is None or step is None:
        return False
    return seen.low < held.low - step / 2 or seen.high > held.high + step / 2


def _judge(
    evidence: Evidence, family: Family, seen: Range, layer: str, written: Quantization | None
) -> Iterator[Suspicion]:
    store = family.head
    found = store_noise(evidence, store, quantization=written)
    held = range_of(written or store.quantization)
    if found is None or held is None:
        return
    whole = found.whole
    if whole.clipped <= LEAST_SHARE * whole.noise or whole.clipping_db >= HARM_DB:
        return
    affected = tuple(name for name, noise in found.samples if _is_affected(noise))
    worst, noise = min(found.samples, key=lambda item: _clipping_db(item[1]))
    share = whole.outside / whole.count
    where = "" if written is None else f" on its way into '{layer}'"
    yield Suspicion(
        cause="activation_clipping",
        layers=(layer,),
        sources=family.sources,
        message=(
            f"'{store.tensor}'{where} is stored with the range {held.words()} but has values from "
            f"{seen.words()}: {share:.2%} of them are clipped, which is {whole.clipped / whole.noise:.0%} "
            f"of the layer's own error ({whole.clipping_db:.1f} dB). {_who(found, affected, worst)}"
        ),
        evidence={
            "tensor": store.tensor,
            "range": (held.low, held.high),
            "seen": (seen.low, seen.high),
            "clipped_fraction": share,
            "clipped_share_of_noise": whole.clipped / whole.noise,
            "clipping_db": whole.clipping_db,
            "worst_sample": worst,
            "worst_sample_clipping_db": noise.clipping_db,
            "affected_samples": affected,
            "looked_at": len(found.samples),
            **_calibrated(evidence, store),
        },
        fix=_fix(evidence, store, affected),
        specificity=60,
        is_fault=whole.clipping_db < GROSS_DB,
        repairs=for_all(family, range_repairs(evidence, store)),
    )


def _is_affected(noise: Noise) -> bool:
    return noise.clipped > 0 and not noise.clipping_db >= SAMPLE_DB


def _clipping_db(noise: Noise) -> float:
    return noise.clipping_db if noise.clipped > 0 else float("inf")


def _who(found: StoreNoise, affected: tuple[str, ...], worst: str) -> str:
    if len(affected) == len(found.samples) and len(affected) > 1:
        return f"All samples looked at are affected, '{worst}' most"
    if len(affected) > 1:
        return f"{len(affected)} of {len(found.samples)} samples are affected: {', '.join(affected)}"
    return f"Worst sample: '{worst}'"


def _calibrated(evidence: Evidence, store: Store) -> dict[str, Fact]:
    found = range_in(evidence.calibration.get(store.tensor))
    return {} if found is None else {"calibrated": (found.low, found.high)}


def _fix(evidence: Evidence, store: Store, affected: tuple[str, ...]) -> str:
    seen = seen_range(evidence, store.tensor)
    words = "" if seen is None else f" to {seen.words()}"
    few = f" such as {affected[0]}" if affected else ""
    if op_type_of(evidence, store) in BETWEEN_0_AND_1:
        return (
            "Give this output the fixed range 0 .. 1 (scale 1/256), or calibrate with samples that reach "
            f"high values{few}; no percentile or entropy calibration, which clips more"
        )
    return (
        f"Widen the range{words}, or add samples{few} to the calibration set; no percentile or entropy "
        "calibration, which clips more"
    )


ENTRY = Detector(
    name="activation_clipping",
    looks_at="the values of each layer, fed with the reference's values, against the range of its store",
    causes=("activation_clipping",),
    find=find,
)
