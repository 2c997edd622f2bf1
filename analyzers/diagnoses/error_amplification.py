"""A layer that is right by itself and makes a large error of a small one that it is given."""

from __future__ import annotations

import math
from collections.abc import Iterator

from analyzers.evidence import Evidence
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.records import Layer
from analyzers.suspicions import Detector, Source, Suspicion

# An ordinary layer hands on what it is given, give or take a few dB; this is four times the error.
JUMP_DB = 12.0
# The layer's own error is no part of the story.
OWN_MARGIN_DB = 10.0


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect the inputs of layers whose accumulated error jumps although their own error is small."""
    makers = {t: layer for layer in evidence.layers.values() for t in layer.outputs}
    for layer in evidence.layers.values():
        before = {t: _accumulated(evidence, t) for t in layer.inputs}
        before = {t: value for t, value in before.items() if not math.isnan(value)}
        for tensor in layer.outputs:
            after, own = _accumulated(evidence, tensor), _isolated(evidence, tensor)
            if before and after < min(before.values()) - JUMP_DB and own > after + OWN_MARGIN_DB:
                protected = [t for t in before if t in makers]
                names = tuple(dict.fromkeys(makers[t].name for t in protected))
                sources = tuple(dict.fromkeys(_source(evidence, t, makers[t]) for t in protected))
                if protected:
                    numbers = (min(before.values()), after, own)
                    yield _suspicion(layer, tensor, names, sources, numbers)
                break


def _source(evidence: Evidence, tensor: str, maker: Layer) -> Source:
    """Return what protects an input: its store where it has one, else the layer that makes it."""
    return Source("store", tensor) if tensor in evidence.stores else Source("layer", maker.name)


def _accumulated(evidence: Evidence, tensor: str) -> float:
    measured = evidence.measured.get(tensor)
    return math.nan if measured is None else float(sqnr_db(measured.pooled.whole))


def _isolated(evidence: Evidence, tensor: str) -> float:
    anatomy = evidence.anatomy.get(tensor)
    stored = None if anatomy is None else anatomy.stored
    return math.nan if stored is None else float(sqnr_db(stored.whole))


def _suspicion(
    layer: Layer,
    tensor: str,
    names: tuple[str, ...],
    sources: tuple[Source, ...],
    numbers: tuple[float, float, float],
) -> Suspicion:
    before, after, own = numbers
    return Suspicion(
        cause="error_amplification",
        layers=names,
        sources=sources,
        message=(
            f"'{layer.name}' ({layer.op_type}) makes a large error of a small one: its inputs have "
            f"{before:.1f} dB, its result {after:.1f} dB, and by itself it has {own:.1f} dB. Protecting it "
            f"does not help; protect what it reads: {', '.join(names)}"
        ),
        evidence={
            "amplifier": layer.name,
            "tensor": tensor,
            "inputs_sqnr_db": before,
            "result_sqnr_db": after,
            "isolated_sqnr_db": own,
        },
        fix=f"Keep the inputs of '{layer.name}' in 16 bits or float: {', '.join(names)}",
        specificity=34,
    )


ENTRY = Detector(
    name="error_amplification",
    looks_at="layers whose accumulated error jumps although they add little of their own",
    causes=("error_amplification",),
    find=find,
)
