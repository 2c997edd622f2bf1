"""Make a set that was found cheaper: take another one of its size, close one-layer gaps between islands."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.cost import Price
from analyzers.fallback.constraints import Bounds
from analyzers.fallback.ledger import BudgetSpentError, Ledger
from analyzers.fallback.reduction import Reducer
from analyzers.steps import Steps

# A gap that is worth closing hardly ever costs score, so few trials decide about all of them.
_MOST_GAP_TRIALS = 4


def cheaper_of_its_size(
    ledger: Ledger, reducer: Reducer, forced: Sequence[str], members: tuple[str, ...], price: Price
) -> Steps[tuple[str, ...]]:
    """Return a cheaper set of no more members, each of them needed, if the trials have passed one by.

    Args:
        ledger: The trials so far.
        reducer: Finds out which members of another set are needed.
        forced: Layers that are in every set.
        members: The set without these.
        price: What sets cost.
    """
    always = frozenset(forced)
    found = always | frozenset(members)
    cost = price(found).cost
    rivals = [
        trial
        for trial in ledger.trials
        if ledger.passes(trial) and len(trial.fallback) == len(found) and always <= set(trial.fallback)
    ]
    rival = min(rivals, key=lambda trial: trial.cost, default=None)
    if rival is None or not rival.cost < cost:
        return members
    try:
        needed = yield from reducer.prune([layer for layer in rival.fallback if layer not in always])
    except BudgetSpentError:
        return members
    # Without some of its members the rival may be dearer, having more islands, but then it is smaller.
    is_better = len(needed) < len(members) or price(always | frozenset(needed)).cost < cost
    return needed if is_better else members


def close_gaps(
    ledger: Ledger, bounds: Bounds, members: Sequence[str], free: Sequence[str], price: Price
) -> Steps[tuple[str, ...]]:
    """Return the layers that join islands of a set and make it cheaper, a trial having shown each.

    Args:
        ledger: Runs the trials; a spent budget ends this early.
        bounds: The user's constraints.
        members: The set without forced layers.
        free: Layers that may join, topological.
        price: What sets cost.
    """
    start = frozenset(bounds.forced) | frozenset(members)
    whole = start
    asked: set[str] = set()
    while len(whole) < bounds.max_layers and len(asked) < _MOST_GAP_TRIALS:
        gap = _best_gap(whole, [layer for layer in free if layer not in whole | asked], price)
        if gap is None:
            break
        asked.add(gap)
        try:
            trial = yield from ledger.ask(whole | {gap}, "close-gap")
        except BudgetSpentError:
            break
        if ledger.passes(trial):
            whole |= {gap}
    return ledger.ordered(whole - start)


def _best_gap(whole: frozenset[str], free: Sequence[str], price: Price) -> str | None:
    """Return the layer that joins islands and saves most, the first of equals."""
    now = price(whole)
    if now.islands < 2:
        return None
    best, lowest = None, now.cost
    for layer in free:
        closed = price(whole | {layer})
        if closed.islands < now.islands and closed.cost < lowest:
            best, lowest = layer, closed.cost
    return best
