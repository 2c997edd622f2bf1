"""An input store that was calibrated on pictures of another normalization than the data have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analyzers.evidence import Evidence, Store
from analyzers.records import INPUT_LAYER
from analyzers.store_ranges import Range, range_of, range_repairs, seen_range
from analyzers.suspicions import Detector, Source, Suspicion

# Pictures seldom hold less than this share of what their normalization allows.
LEAST_FILLED = 0.5
# A calibrated range overlaps with that of full pictures by at least this share of both together.
LEAST_ALIKE = 0.7
# Ranges that overlap by less than this share are of another scale; less apart, it is plain clipping.
MOST_SHARED = 0.1
# ... or this share of the values lies outside: no percentile or dim calibration set cuts that much.
OUTSIDE = 0.3
_MARGIN = 0.05  # of a range: what interpolation and rounding put beyond it
_PICTURE_RANK = 3


@dataclass(frozen=True, slots=True)
class _Form:
    """What pictures from black to white become by a usual normalization."""

    words: str
    range: Range


_FORMS = (
    _Form("pixels from 0 to 255", Range(0.0, 255.0)),
    _Form("pixels from 0 to 1", Range(0.0, 1.0)),
    _Form("pixels from -1 to 1", Range(-1.0, 1.0)),
    _Form("pixels from -0.5 to 0.5", Range(-0.5, 0.5)),
    _Form("pixels from -128 to 127", Range(-128.0, 127.0)),
    _Form("pixels normalized with ImageNet's mean and deviation", Range(-2.118, 2.64)),
    _Form("pixels normalized with CLIP's mean and deviation", Range(-1.792, 2.146)),
    _Form("pixels less Caffe's means", Range(-123.68, 151.06)),
)


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect input stores that would fit the pictures if these were normalized otherwise."""
    for store in evidence.stores.values():
        seen = seen_range(evidence, store.tensor)
        held = range_of(store.quantization)
        if store.layer != INPUT_LAYER or seen is None or held is None or not _is_picture(evidence, store):
            continue
        given, wanted = _form_of(seen), _form_held(held)
        outside = _outside(evidence, store)
        if given is None or wanted is None or given is wanted:
            continue
        if _alike(seen, held) > MOST_SHARED and outside < OUTSIDE:
            continue
        yield Suspicion(
            cause="preprocessing_normalization",
            layers=(),
            sources=(Source("store", store.tensor),),
            message=(
                f"Input '{store.tensor}' is stored for {wanted.words} ({held.words()}), but the data show "
                f"{given.words} ({seen.words()}): {outside:.0%} of the values are clipped"
            ),
            evidence={
                "tensor": store.tensor,
                "range": (held.low, held.high),
                "seen": (seen.low, seen.high),
                "data_look_like": given.words,
                "stored_for": wanted.words,
                "clipped_fraction": outside,
            },
            fix=(
                "Normalize calibration and data in the same way, as the network was trained: either these "
                "data are wrong, or the candidate was calibrated without the preprocessing"
            ),
            specificity=72,
            is_fault=True,
            repairs=range_repairs(evidence, store),
        )


def _is_picture(evidence: Evidence, store: Store) -> bool:
    specs = {spec.name: spec.shape for spec in evidence.pair.reference.inputs}
    return len(specs.get(store.tensor, ())) >= _PICTURE_RANK


def _form_of(seen: Range) -> _Form | None:
    """Return the normalization that the data fill best without exceeding it."""
    width = seen.high - seen.low
    fitting = []
    for form in _FORMS:
        span = form.range.high - form.range.low
        is_inside = (
            seen.low >= form.range.low - _MARGIN * span and seen.high <= form.range.high + _MARGIN * span
        )
        if is_inside and width >= LEAST_FILLED * span:
            fitting.append((width / span, form))
    return max(fitting, key=lambda item: item[0], default=(0.0, None))[1]


def _form_held(held: Range) -> _Form | None:
    """Return the normalization whose pictures the store was made for."""
    best = max(_FORMS, key=lambda form: _alike(form.range, held))
    return best if _alike(best.range, held) >= LEAST_ALIKE else None


def _alike(a: Range, b: Range) -> float:
    """Return the share of both ranges together that they have in common."""
    shared = min(a.high, b.high) - max(a.low, b.low)
    return max(0.0, shared) / max(max(a.high, b.high) - min(a.low, b.low), 1e-30)


def _outside(evidence: Evidence, store: Store) -> float:
    measured = evidence.measured.get(store.tensor)
    if measured is None or not float(measured.pooled.whole.count):
        return 0.0
    return float(measured.pooled.whole.outside) / float(measured.pooled.whole.count)


ENTRY = Detector(
    name="input_range",
    looks_at="the values of the inputs against the ranges of the stores that they are read into",
    causes=("preprocessing_normalization",),
    find=find,
)
