"""Make a set that was found cheaper: close one-layer gaps between its islands where that pays."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.cost import Price
from analyzers.fallback.constraints import Bounds
from analyzers.fallback.ledger import BudgetSpentError, Ledger
from analyzers.steps import Steps

# A gap that is worth closing hardly ever costs score, so few trials decide about all of them.
_MOST_TRIALS = 4


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
    while len(whole) < bounds.max_layers and len(asked) < _MOST_TRIALS:
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
