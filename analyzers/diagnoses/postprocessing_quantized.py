"""Box decoding, top-k and the like behind the last convolutions, stored in integers."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from analyzers.evidence import Evidence, Store
from analyzers.graph import is_float, node_name
from analyzers.likeness import MULTIPLIES
from analyzers.store_ranges import own_stores, range_of, seen_range
from analyzers.suspicions import Detector, Source, Suspicion

# What decodes boxes, joins heads or selects detections; classifiers end in none of these.
_DECODES = frozenset(
    {"Concat", "Exp", "TopK", "NonMaxSuppression", "GatherND", "GatherElements", "ScatterND"}
)
# Coordinates in pixels beside scores differ by more than this in range.
APART = 16.0
# A store whose range does not fit its values has a fault of its own, which others explain better.
TOO_NARROW = 0.95
TOO_WIDE = 4.0


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect all stores behind the last operators with weights together, where they decode detections."""
    tail = _tail(evidence)
    if not any(node.op_type in _DECODES for node in tail):
        return
    names = {node_name(node) for node in tail}
    stores = [s for s in own_stores(evidence) if s.node in names]
    if len(stores) < 2 or not all(_fits(evidence, s) for s in stores):
        return
    spans = [held.span for s in stores if (held := range_of(s.quantization)) is not None]
    if spans and max(spans) >= APART * min(spans):
        yield _suspicion(stores, max(spans), min(spans))


def _fits(evidence: Evidence, store: Store) -> bool:
    held, seen = range_of(store.quantization), seen_range(evidence, store.tensor)
    if held is None or seen is None or not seen.span > 0:
        return False
    is_held = held.high >= TOO_NARROW * seen.high and held.low <= TOO_NARROW * seen.low
    return is_held and held.span <= TOO_WIDE * seen.span


def _tail(evidence: Evidence) -> list[ir.Node]:
    """Return the float operators from which no operator with weights leads to an output."""
    ours = evidence.pair.paired.ours
    found: set[ir.Node] = set()
    for node in reversed(ours.nodes):
        readers = [r for v in node.outputs for r in ours.readers.get(ours.core(v), [])]
        is_late = all(r in found for r in readers)
        if is_late and node.op_type not in MULTIPLIES and any(is_float(v) for v in node.outputs):
            found.add(node)
    return [n for n in ours.nodes if n in found]


def _suspicion(stores: list[Store], largest: float, smallest: float) -> Suspicion:
    layers = tuple(dict.fromkeys(s.layer for s in stores))
    return Suspicion(
        cause="postprocessing_quantized",
        layers=layers,
        sources=tuple(Source("store", s.tensor) for s in stores),
        message=(
            f"What comes behind the last convolutions is stored in integers too: {len(stores)} tensors from "
            f"'{layers[0]}' to '{layers[-1]}', with ranges from {smallest:.3g} to {largest:.3g}"
        ),
        evidence={
            "tensors": tuple(s.tensor for s in stores),
            "largest_range": largest,
            "smallest_range": smallest,
        },
        fix=(
            "Cut the graph at the outputs of the last convolutions and decode in float on the CPU, or "
            "exclude these operators from quantization"
        ),
        specificity=46,
    )


ENTRY = Detector(
    name="postprocessing_quantized",
    looks_at="stores behind the last operators with weights, where boxes are decoded and selected",
    causes=("postprocessing_quantized",),
    find=find,
)
