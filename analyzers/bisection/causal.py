"""Causal bisect: the search of DESIGN section 5, on a function that scores hybrids.

The candidate is a hybrid with nothing repaired; the reference one with everything repaired. Binary search
finds two neighbouring cuts, one good and one bad. That alone proves little: on a slope of small errors every
threshold is crossed somewhere. A layer is a culprit by its own jump and by what its repair does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from analyzers import ddmin
from analyzers.bisection import endings
from analyzers.bisection.hybrids import Hybrids, OutOfRunsError, noise, noise_of, share
from analyzers.records import BisectOptions, BisectResult, BisectStep, Culprit, Notice
from analyzers.steps import Steps

HALF = 0.5
# A layer that adds less than this share of the candidate's noise is part of a slope. (The first of
# thirty equal layers is a pure jump seen from the input: everything before it is exact.)
MIN_SHARE = 0.1
# Where what remains is this small a share of the loss, and less than so many times the noise at the
# threshold, the search ends: the next layer would be blamed for a threshold that it barely crosses.
NEARLY_NOTHING = 0.1
BARELY_BAD = 4.0

_Pair = tuple[BisectStep, BisectStep]
"""Neighbouring cuts, the first good and the second bad."""


def bisect(
    chain: Sequence[str],
    score: Callable[[frozenset[str]], float],
    *,
    options: BisectOptions | None = None,
    first_divergence: str | None = None,
    warnings: tuple[Notice, ...] = (),
) -> Steps[BisectResult]:
    """Find the layers whose repair brings the output back.

    Args:
        chain: Layers in topological order, without those that take their producer's precision.
        score: Output SQNR in dB of the hybrid that computes these layers as the reference does, read
            unquantized by all, and the others as the candidate does.
        options: Threshold, limits, and the names that stand in the result.
        first_divergence: From a comparison; passed on into the result.
        warnings: Passed on into the result.

    Returns:
        Culprits in the order in which they were found, and every hybrid that was run. One culprit whose
        repair recovers the output is confirmed within ``ceil(log2 n) + 3`` runs.
    """
    options = options or BisectOptions()
    hybrids = Hybrids(chain, score, threshold_db=options.threshold_db, max_runs=options.max_runs)
    whole = yield from hybrids.candidate_prefix(len(hybrids.chain))
    if not whole.is_bad:
        found = endings.Found((), "healthy")
    else:
        found = yield from _search(hybrids, options)
    return BisectResult(
        first_divergence=first_divergence,
        culprits=found.culprits,
        monotone=hybrids.rise() is None,
        steps=tuple(hybrids.steps),
        chain=hybrids.chain,
        candidate_sqnr_db=whole.sqnr_db,
        threshold_db=options.threshold_db,
        verdict=found.verdict,
        samples=options.samples,
        metric=options.metric,
        warnings=warnings + found.warnings + endings.non_monotone_notice(hybrids),
    )


def _search(hybrids: Hybrids, options: BisectOptions) -> Steps[endings.Found]:
    """Repair culprits one after the other until the output recovers or no layer stands out."""
    culprits: list[Culprit] = []
    kept: list[Culprit] = []
    loss = noise(hybrids.steps[0])
    try:
        while len(culprits) < options.max_culprits:
            repaired = tuple(c.layer for c in culprits)
            if len(repaired) == len(hybrids.chain):
                return endings.outside(kept)
            culprit = yield from _next_culprit(hybrids, repaired)
            if culprit is None:
                origin = yield from hybrids.candidate_prefix(0, repaired)
                return (
                    endings.outside(kept) if origin.is_bad else endings.accumulated(hybrids, culprits, kept)
                )
            culprits.append(culprit)
            whole = yield from hybrids.candidate_prefix(len(hybrids.chain), repaired)
            if culprit.is_confirmed or _own_share((culprit.good, culprit.bad), whole) >= HALF:
                kept.append(culprit)
            if culprit.repaired_sqnr_db >= hybrids.threshold_db:
                return (yield from _recovered(hybrids, culprits))
            if culprit.is_confirmed and _is_nearly_recovered(culprit, loss, hybrids.threshold_db):
                return endings.nearly_recovered(hybrids, culprits)
            if culprit not in kept and _relief(culprit, whole) < MIN_SHARE:
                return endings.accumulated(hybrids, culprits, kept)
        return (yield from _interacting(hybrids))
    except OutOfRunsError:
        return endings.stopped(kept, options)


def _relief(culprit: Culprit, whole: BisectStep) -> float:
    """Return the share of the loss that its repair takes away, with all others as they are."""
    return share(noise(whole) - noise_of(culprit.repaired_sqnr_db), noise(whole))


def _is_nearly_recovered(culprit: Culprit, loss: float, threshold_db: float) -> bool:
    """Tell whether repairing the culprits so far leaves only a small rest, near the threshold."""
    rest = noise_of(culprit.repaired_sqnr_db)
    return rest <= NEARLY_NOTHING * loss and rest <= BARELY_BAD * noise_of(threshold_db)


def _next_culprit(hybrids: Hybrids, repaired: tuple[str, ...]) -> Steps[Culprit | None]:
    """Examine the layer at the threshold, or the one at half of the loss if only that makes half of it."""
    whole = yield from hybrids.candidate_prefix(len(hybrids.chain), repaired)
    jumps: list[_Pair] = []
    for level_db in (hybrids.threshold_db, whole.sqnr_db + 3.0103):
        pair = yield from _crossing(hybrids, repaired, level_db)
        if pair is None:
            break
        if _stands_out(pair, whole):
            jumps.append(pair)
        if _stands_out(pair, whole) and _own_share(pair, whole) >= HALF:
            return (yield from _examine(hybrids, pair, repaired))
    return (yield from _examine(hybrids, jumps[0], repaired)) if jumps else None


def _crossing(hybrids: Hybrids, repaired: tuple[str, ...], level_db: float) -> Steps[_Pair | None]:
    """Binary search for neighbouring cuts, the first at or above the level and the second below it.

    Returns:
        None if even with no candidate layer the score is below the level.
    """
    cuts = [0] + [index + 1 for index, layer in enumerate(hybrids.chain) if layer not in repaired]
    low, high = 0, len(cuts) - 1
    while high - low > 1:
        middle = (low + high) // 2
        step = yield from hybrids.candidate_prefix(cuts[middle], repaired)
        if step.sqnr_db >= level_db:
            low = middle
        else:
            high = middle
    good = yield from hybrids.candidate_prefix(cuts[low], repaired)
    if not good.sqnr_db >= level_db:
        return None
    bad = yield from hybrids.candidate_prefix(cuts[high], repaired)
    return good, bad


def _stands_out(pair: _Pair, whole: BisectStep) -> bool:
    """Tell a jump from a crossing on a slope."""
    good, bad = pair
    return share(noise(bad) - noise(good), noise(bad)) >= HALF and _own_share(pair, whole) >= MIN_SHARE


def _own_share(pair: _Pair, whole: BisectStep) -> float:
    """Return the share of the loss that the layer makes by itself, with all behind it exact."""
    good, bad = pair
    return share(noise(bad) - noise(good), noise(whole))


def _examine(hybrids: Hybrids, pair: _Pair, repaired: tuple[str, ...]) -> Steps[Culprit]:
    """Repair the layer between the cuts, and look at its jump from the other side."""
    good, bad = pair
    layer = bad.layer
    after = yield from hybrids.repair((*repaired, layer))
    suffix = yield from hybrids.reference_prefix(hybrids.chain.index(layer), repaired)
    jump_fraction = share(noise(bad) - noise(good), noise(bad))
    # The repaired run stands in for the suffix that starts after the layer: it holds that suffix's noise
    # and the prefix's, so this is a lower bound of the reverse jump, and saves a run.
    reverse_jump_fraction = share(noise(suffix) - noise(after), noise(suffix))
    has_jump = jump_fraction >= HALF and reverse_jump_fraction >= HALF
    return Culprit(
        layer=layer,
        good=good,
        bad=bad,
        jump_fraction=jump_fraction,
        reverse_jump_fraction=reverse_jump_fraction,
        repaired_sqnr_db=after.sqnr_db,
        is_confirmed=has_jump or not after.is_bad,
    )


def _recovered(hybrids: Hybrids, culprits: Sequence[Culprit]) -> Steps[endings.Found]:
    """Drop culprits that the others make unnecessary; those that stay are confirmed by being needed."""

    def is_enough(layers: frozenset[str]) -> Steps[bool]:
        ordered = tuple(layer for layer in hybrids.chain if layer in layers)
        step = yield from hybrids.repair(ordered)
        return not step.is_bad

    # The last one found is the one whose repair recovered, so it is given up last.
    needed = yield from ddmin.minimize([c.layer for c in culprits], is_enough)
    if len(needed) > max(2, len(hybrids.chain) // 2):
        return endings.most_layers(needed)
    kept = tuple(replace(c, is_confirmed=True) for c in culprits if c.layer in needed)
    dropped = tuple(c.layer for c in culprits if c.layer not in needed)
    warnings: tuple[Notice, ...] = ()
    if dropped:
        text = "The output recovers without repairing these layers, though the search passed them"
        warnings = (Notice("repair_not_needed", text, ", ".join(dropped)),)
    return endings.Found(kept, "culprits", warnings)


def _interacting(hybrids: Hybrids) -> Steps[endings.Found]:
    """Find a minimal set of layers whose common repair recovers the output."""

    def is_enough(layers: frozenset[str]) -> Steps[bool]:
        step = yield from hybrids.repair(tuple(layer for layer in hybrids.chain if layer in layers))
        return not step.is_bad

    if not (yield from is_enough(frozenset(hybrids.chain))):
        return endings.outside([])
    needed = yield from ddmin.minimize(hybrids.chain, is_enough)
    if len(needed) > max(2, len(hybrids.chain) // 2):
        return endings.most_layers(needed)
    members = []
    for layer in needed:
        members.append((yield from _member(hybrids, layer, needed)))
    return endings.Found(tuple(members), "interacting")


def _member(hybrids: Hybrids, layer: str, needed: tuple[str, ...]) -> Steps[Culprit]:
    """Describe one member of an interacting set: what it does alone, and what the set does without it."""
    together = yield from hybrids.repair(needed)
    without = yield from hybrids.repair(tuple(name for name in needed if name != layer))
    alone = yield from hybrids.alone(layer)
    whole = yield from hybrids.candidate_prefix(len(hybrids.chain))
    return Culprit(
        layer=layer,
        good=together,
        bad=without,
        jump_fraction=share(noise(alone), noise(whole)),
        reverse_jump_fraction=share(noise(without) - noise(together), noise(without)),
        repaired_sqnr_db=together.sqnr_db,
        is_confirmed=True,
    )
