"""How a bisection can end, and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.bisection.hybrids import Hybrids
from analyzers.records import BisectOptions, Culprit, Notice


@dataclass(frozen=True, slots=True)
class Found:
    """How the search ended: what was found and the words for it."""

    culprits: tuple[Culprit, ...]
    verdict: str
    warnings: tuple[Notice, ...] = ()


def accumulated(hybrids: Hybrids, culprits: Sequence[Culprit], kept: Sequence[Culprit]) -> Found:
    """No further layer stands out; what was found stays as far as it makes half of a loss."""
    if not kept:
        return Found((), "accumulation")
    text = (
        f"With these layers repaired the output is at {culprits[-1].repaired_sqnr_db:.1f} dB, below "
        f"{hybrids.threshold_db:g} dB; what remains adds up over many layers, none of which stands out"
    )
    where = ", ".join(c.layer for c in culprits)
    return Found(tuple(kept), _verdict(kept), (Notice("remaining_accumulation", text, where),))


def _verdict(kept: Sequence[Culprit]) -> str:
    """Culprits, or layers of which each ruins the output and none can be shown to be the one."""
    if not kept:
        return "accumulation"
    return "culprits" if any(c.is_confirmed for c in kept) else "interacting"


def nearly_recovered(hybrids: Hybrids, culprits: Sequence[Culprit]) -> Found:
    """Repairing the culprits leaves a small rest, a little below the threshold."""
    text = (
        f"With these layers repaired the output is at {culprits[-1].repaired_sqnr_db:.1f} dB, a little below "
        f"{hybrids.threshold_db:g} dB: of the loss that is a small rest, for which no further layer is blamed"
    )
    confirmed = tuple(c for c in culprits if c.is_confirmed)
    where = ", ".join(c.layer for c in culprits)
    return Found(confirmed, "culprits", (Notice("small_rest", text, where),))


def most_layers(needed: Sequence[str]) -> Found:
    """Every layer, more or less, has to be repaired: none of them is the cause."""
    text = (
        f"The output recovers only with {len(needed)} layers repaired, most of all: no single layer is to "
        "blame; look at what they share, such as the calibration set or the range of the input"
    )
    return Found((), "accumulation", (Notice("most_layers_needed", text, ", ".join(needed)),))


def outside(culprits: Sequence[Culprit]) -> Found:
    """Even the reference's layers throughout do not bring the output back."""
    text = (
        "The output stays below the threshold with every layer computed as in the reference: the sides "
        "differ in their inputs or in parts that were not paired"
    )
    return Found(
        tuple(c for c in culprits if c.is_confirmed), "outside_layers", (Notice("outside_layers", text),)
    )


def stopped(kept: Sequence[Culprit], options: BisectOptions) -> Found:
    """The allowed runs are used up."""
    text = f"Stopped after {options.max_runs} runs; the layers found so far do not explain the whole loss"
    return Found(tuple(kept), _verdict(kept), (Notice("runs_used_up", text),))


def non_monotone_notice(hybrids: Hybrids) -> tuple[Notice, ...]:
    """Return a notice if more candidate layers once made a better output."""
    rise = hybrids.rise()
    if rise is None:
        return ()
    fewer, more = rise
    text = (
        f"Errors cancel: a hybrid at {fewer.sqnr_db:.1f} dB rose to {more.sqnr_db:.1f} dB when more layers "
        "were left as the candidate computes them; a culprit may hide behind another"
    )
    return (Notice("non_monotone", text, fewer.layer),)
