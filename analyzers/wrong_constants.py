"""Which constants are wrong: beyond honest rounding, and not made up for by a neighbour."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.channel_maps import compensated
from analyzers.constant_errors import Misfit, misfits
from analyzers.evidence import ConstantPair, Evidence
from analyzers.suspicions import Source, SourceKind

MOST_NAMED = 16  # channels that a finding lists


def wrong(evidence: Evidence, role: str = "") -> list[Misfit]:
    """Return the weights and biases that are wrong, in topological order."""
    excused = {
        id(constant) for change in compensated(evidence) for constant in (*change.maker, *change.readers)
    }
    return [
        m
        for m in misfits(evidence)
        if m.is_beyond and role in ("", m.constant.role) and id(m.constant) not in excused
    ]


def sources_of(evidence: Evidence, node: str) -> tuple[Source, ...]:
    """Return what to lift for a node whose constants are wrong."""
    return sources([m.constant for m in wrong(evidence) if m.constant.node == node])


def sources(constants: Sequence[ConstantPair]) -> tuple[Source, ...]:
    """Return the sources of constants, weights first; for one that the candidate lacks, its layer."""
    found: dict[Source, None] = {}
    for constant in sorted(constants, key=lambda c: c.role != "weight"):
        kind: SourceKind = "weight" if constant.role == "weight" else "bias"
        found[Source(kind, constant.node) if constant.value else Source("layer", constant.layer)] = None
    return tuple(found)
