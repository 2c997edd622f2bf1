"""An activation that the device computes in one go, quantized between its pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzers.activations import inner_stores, is_written_out
from analyzers.evidence import Evidence, Store
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.store_noise import own_db
from analyzers.store_ranges import requantized, seen_range
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion

# An activation in one piece keeps over 40 dB, and large values may hide what the small ones lose.
COARSE_DB = 40.0
_LAYERS = 12  # the worst ones; each is lifted once
# A piece below it has a fault of its own, such as a range that clips, which others explain better.
OWN_FAULT_DB = 25.0
# Ordinary tensors reach two to three times their 99 % quantile and spread over more levels.
FAR = 4.0
FEW_LEVELS = 64.0
# From here on it is the way the network was quantized and not one layer.
MANY = 4


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect the quantizers inside activations, layer by layer and all together."""
    pieces = {
        layer: stores
        for layer in evidence.layers
        if is_written_out(evidence, layer) and (stores := inner_stores(evidence, layer))
    }
    coarse = [layer for layer in pieces if _isolated_db(evidence, layer) < COARSE_DB]
    for layer in sorted(coarse, key=lambda name: _isolated_db(evidence, name))[:_LAYERS]:
        yield _of_layer(evidence, layer, pieces[layer])
        results = tuple(evidence.stores[t] for t in evidence.layers[layer].outputs if t in evidence.stores)
        # A few large values stretch the ranges all along an activation; no store of it is to blame alone.
        if results and _is_stretched(evidence, (*pieces[layer], *results)):
            yield _of_layer(evidence, layer, (*pieces[layer], *results), specificity=41)
    sound = [s for stores in pieces.values() for s in stores if not own_db(evidence, s.tensor) < OWN_FAULT_DB]
    if len(pieces) >= MANY and sound:
        yield _of_network(evidence, pieces, sound)


def _is_stretched(evidence: Evidence, stores: Sequence[Store]) -> bool:
    """Tell whether the bulk of a tensor inside shares few levels because of rare large values."""
    tails = [evidence.anatomy[s.tensor].tail for s in stores if s.tensor in evidence.anatomy]
    return any(t.levels_for_99 < FEW_LEVELS and t.max > FAR * t.p99 for t in tails)


def _isolated_db(evidence: Evidence, layer: str) -> float:
    values = []
    for tensor in evidence.layers[layer].outputs:
        anatomy = evidence.anatomy.get(tensor)
        if anatomy is not None and anatomy.stored is not None:
            values.append(float(sqnr_db(anatomy.stored.whole)))
    return min(values, default=float("inf"))


def _of_layer(evidence: Evidence, layer: str, stores: Sequence[Store], *, specificity: int = 42) -> Suspicion:
    names = tuple(s.tensor for s in stores)
    levels = [evidence.anatomy[n].tail.levels_for_99 for n in names if n in evidence.anatomy]
    return Suspicion(
        cause="activation_in_pieces",
        layers=(layer,),
        sources=tuple(Source("store", name) for name in names),
        message=(
            f"The activation of '{layer}' is quantized in pieces: {', '.join(names)} {_are(names)} stored as "
            f"integers one after the other, and the layer by itself has {_isolated_db(evidence, layer):.1f} "
            f"dB; 99 % of the values of one of them share {min(levels, default=0):.0f} levels"
        ),
        evidence={
            "tensors": names,
            "isolated_sqnr_db": _isolated_db(evidence, layer),
            "levels_for_99_percent": tuple(levels),
        },
        fix="Let the converter fuse the activation into one operator, or keep its inside in float or 16 bits",
        specificity=specificity,
        repairs=_in_16_bits(evidence, stores),
    )


def _of_network(
    evidence: Evidence, pieces: dict[str, tuple[Store, ...]], stores: Sequence[Store]
) -> Suspicion:
    return Suspicion(
        cause="activation_in_pieces",
        layers=(),
        sources=tuple(Source("store", s.tensor) for s in stores),
        message=(
            f"{len(pieces)} activations are quantized in pieces: {len(stores)} tensors inside of them are "
            "stored in 8 bits, which a device with fused activations does not do"
        ),
        evidence={"layers": tuple(pieces), "inner_tensors": len(stores)},
        fix=(
            "Let the converter fuse these activations (SiLU, HardSwish, GELU) into one operator each, or "
            "leave out the quantizers inside of them"
        ),
        specificity=42,
        scope="network",
        repairs=_in_16_bits(evidence, stores),
    )


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _in_16_bits(evidence: Evidence, stores: Sequence[Store]) -> tuple[Repair, ...]:
    changes = []
    for store in stores:
        seen = seen_range(evidence, store.tensor)
        wide = None if seen is None else requantized(store.quantization, seen, bits=16)
        if wide is None:
            return ()
        changes.append(Change(Source("store", store.tensor), quantization=wide))
    return (Repair("the inside stored in 16 bits", tuple(changes)),) if changes else ()


ENTRY = Detector(
    name="activation_in_pieces",
    looks_at="quantizers inside activations that are written out (x * sigmoid(x), GELU ...)",
    causes=("activation_in_pieces",),
    find=find,
)
