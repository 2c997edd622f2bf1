"""From suspicions to causes: what lifting them gives back decides (DESIGN section 7).

The world is one function, from a set of changes to the output's SQNR. Suspicions are grouped by what they
would lift; a minimal set of groups whose common lifting recovers the output is what is to blame, so that
interacting causes are found together and a layer that merely looks bad is not named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from analyzers.suspicions import Change, Source, Suspicion

Score = Callable[[Sequence[Change]], float]

MOVES_DB = 3.0  # noise that halves is a move; less is within what samples scatter
FAULT_DB = 6.0  # what repairing a mistake must give where the output survives it
HEALTHY_MARGIN_DB = 0.0  # an output this far above the threshold needs no further repair
_SINGLES = 40  # suspicions that are lifted one at a time before they are lifted together
_CLAMP_DB = 100.0  # differences beyond it mean nothing: both are exact


@dataclass(frozen=True, slots=True, eq=False)
class Blamed:
    """A group of suspicions on the same sources that was proved.

    Attributes:
        chosen: The most specific one, which names the finding.
        others: The rest.
        before: Output SQNR in dB without its lift (with those of the others, if it takes several).
        after: With it.
        alone: What lifting it alone gives, in dB.
    """

    chosen: Suspicion
    others: tuple[Suspicion, ...]
    before: float
    after: float
    alone: float


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """What was proved.

    Attributes:
        blamed: Those that are to blame, those that give most first.
        base: Output SQNR of the candidate, in dB.
        repaired: With all that are blamed lifted.
        everything: With all suspicions lifted.
        dropped: Suspicions that were not proved.
    """

    blamed: tuple[Blamed, ...]
    base: float
    repaired: float
    everything: float
    dropped: tuple[Suspicion, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    sources: frozenset[Source]
    suspicions: tuple[Suspicion, ...]
    alone: float

    @property
    def chosen(self) -> Suspicion:
        return self.suspicions[0]

    @property
    def is_fault(self) -> bool:
        return any(s.is_fault for s in self.suspicions)


def prove(
    suspicions: Sequence[Suspicion],
    score: Score,
    *,
    threshold_db: float,
    is_bad: bool,
    lifted: frozenset[Source] = frozenset(),
) -> Proof:
    """Find the suspicions that are to blame.

    Args:
        suspicions: What the detectors suspect, in topological order; all can be lifted.
        score: Output SQNR in dB of the candidate with some changes.
        threshold_db: Below it the output is bad.
        is_bad: The candidate counts as bad, by its outputs or by its task's score.
        lifted: Sources that stay lifted throughout, since they are explained already.
    """
    always = _lifts(lifted)

    def at(groups: Sequence[_Group]) -> float:
        return clamp(score([*always, *_changes_of(groups, lifted)]))

    base = at(())
    groups = _grouped(suspicions, lambda g: at([g]))
    if not groups:
        return Proof((), base, base, base, tuple(suspicions))
    everything = max(at(groups), max(g.alone for g in groups))
    chosen: list[_Group] = []
    if is_bad and everything - base >= MOVES_DB:
        target = min(everything - MOVES_DB, max(threshold_db + HEALTHY_MARGIN_DB, base + MOVES_DB))
        chosen = _narrowed(_smallest(groups, at, target), groups, at, target)
    chosen += _further_faults(groups, chosen, at)
    repaired = at(chosen)
    blamed = [_blamed(group, chosen, at, repaired) for group in chosen]
    blamed.sort(key=lambda b: -(b.after - b.before))
    proved = {id(s) for b in blamed for s in (b.chosen, *b.others)}
    dropped = tuple(s for s in suspicions if id(s) not in proved)
    return Proof(tuple(blamed), base, repaired, everything, dropped)


def singles(suspicions: Sequence[Suspicion]) -> list[list[Change]]:
    """Return what ``prove`` will lift one at a time, so that it can be run beforehand, with progress."""
    ordered = sorted(_by_sources(suspicions), key=lambda item: -max(s.specificity for s in item[1]))
    return [_lifts(sources) for sources, _ in ordered[:_SINGLES]]


def clamp(value: float) -> float:
    """Return decibels limited to where differences mean something."""
    return max(-_CLAMP_DB, min(_CLAMP_DB, value))


def _lifts(sources: Iterable[Source]) -> list[Change]:
    return [Change(source) for source in sorted(sources, key=lambda s: (s.kind, s.name))]


def _changes_of(groups: Sequence[_Group], lifted: frozenset[Source]) -> list[Change]:
    return _lifts({source for group in groups for source in group.sources} - lifted)


def _by_sources(suspicions: Sequence[Suspicion]) -> list[tuple[frozenset[Source], list[Suspicion]]]:
    found: dict[frozenset[Source], list[Suspicion]] = {}
    for suspicion in suspicions:
        if suspicion.sources:
            found.setdefault(frozenset(suspicion.sources), []).append(suspicion)
    return list(found.items())


def _grouped(suspicions: Sequence[Suspicion], alone: Callable[[_Group], float]) -> list[_Group]:
    """Return one group per set of sources, the most telling first; ties stay topological."""
    groups = []
    ordered = sorted(_by_sources(suspicions), key=lambda item: -max(s.specificity for s in item[1]))
    for place, (sources, found) in enumerate(ordered):
        found.sort(key=lambda s: -s.specificity)
        bare = _Group(sources, tuple(found), float("-inf"))
        value = alone(bare) if place < _SINGLES else float("-inf")
        groups.append(_Group(sources, tuple(found), value))
    return groups


def _smallest(
    groups: Sequence[_Group], at: Callable[[Sequence[_Group]], float], target: float
) -> list[_Group]:
    """Return a 1-minimal set of groups that reaches the target.

    A single group that does is preferred, the most specific of those; else groups join by what each gives
    alone until the target is reached, and every member that is not needed leaves again.
    """
    single = [g for g in groups if g.alone >= target]
    if single:
        return [max(single, key=lambda g: (g.chosen.specificity, g.alone))]
    order = sorted(groups, key=lambda g: (-g.alone, -g.chosen.specificity))
    size = _first_reaching(order, at, target)
    chosen = order[:size]
    for group in list(reversed(chosen)):
        rest = [g for g in chosen if g is not group]
        if rest and at(rest) >= target:
            chosen = rest
    return chosen


def _narrowed(
    chosen: Sequence[_Group],
    groups: Sequence[_Group],
    at: Callable[[Sequence[_Group]], float],
    target: float,
) -> list[_Group]:
    """Return the set with each member replaced by a more specific part of it, where that does as well.

    Groups of many sources give much when they are lifted and so are tried early; among several causes one
    that was read off a file would hide behind them.
    """
    found = list(chosen)
    for place, group in enumerate(chosen):
        others = [g for i, g in enumerate(found) if i != place]
        for part in groups:
            is_part = part.sources < group.sources and part not in others
            if (
                is_part
                and part.chosen.specificity > group.chosen.specificity
                and at([*others, part]) >= target
            ):
                found[place] = part
                break
    return found


def _first_reaching(order: Sequence[_Group], at: Callable[[Sequence[_Group]], float], target: float) -> int:
    """Return a prefix length that reaches the target, by galloping and bisection."""
    high = 1
    while high < len(order) and at(order[:high]) < target:
        high *= 2
    high = min(high, len(order))
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if at(order[:middle]) >= target:
            high = middle
        else:
            low = middle
    return high


def _further_faults(
    groups: Sequence[_Group], chosen: Sequence[_Group], at: Callable[[Sequence[_Group]], float]
) -> list[_Group]:
    """Return mistakes that the chosen ones leave and whose repair gives much more."""
    added: list[_Group] = []
    current = at(chosen)
    for group in groups:
        covered = {source for g in (*chosen, *added) for source in g.sources}
        if not group.is_fault or group.sources <= covered:
            continue
        value = at([*chosen, *added, group])
        if value - current >= FAULT_DB:
            added.append(group)
            current = value
    return added


def _blamed(
    group: _Group, chosen: Sequence[_Group], at: Callable[[Sequence[_Group]], float], repaired: float
) -> Blamed:
    rest = [g for g in chosen if g is not group]
    return Blamed(group.chosen, group.suspicions[1:], at(rest), repaired, group.alone)
