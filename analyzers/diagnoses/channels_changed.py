"""Channels that one layer has in another order or size and the next takes so: nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.channel_maps import Compensated, compensated
from analyzers.evidence import Evidence
from analyzers.suspicions import Detector, Suspicion
from analyzers.wrong_constants import MOST_NAMED


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Note pairs of layers whose changes cancel, so that nobody takes one for a fault."""
    for change in compensated(evidence):
        yield _note(change)


def _note(change: Compensated) -> Suspicion:
    maker, readers = change.maker[0], dict.fromkeys(c.node for c in change.readers)
    order, factor = change.change.order, change.change.factor
    is_moved = order != tuple(range(len(order)))
    parts = []
    if is_moved:
        parts.append("in another order")
    if abs(factor - 1).max() > abs(factor).max() * 0.01:
        parts.append(f"times {factor.min():.3g} to {factor.max():.3g}")
    return Suspicion(
        cause="healthy",
        layers=(maker.layer,),
        sources=(),
        message=(
            f"The output channels of '{maker.node}' are {' and '.join(parts)}, and {', '.join(readers)} "
            "makes up for it: values between them differ, the result does not"
        ),
        evidence={
            "node": maker.node,
            "made_up_for_by": tuple(readers),
            "permutation": order[: 4 * MOST_NAMED] if is_moved else None,
            "factors": tuple(float(f) for f in factor[: 4 * MOST_NAMED]),
        },
        fix="Nothing; repair neither of the two alone",
        specificity=0,
        unproved="info",
    )


ENTRY = Detector(
    name="channels_changed",
    looks_at="neighbouring weights that were reordered or scaled channel by channel",
    causes=("healthy",),
    find=find,
)
