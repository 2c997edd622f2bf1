"""Make a set that reaches the target smaller: give up members, and look for other sets with fewer.

Gains come from the ranking and only say what is tried first and what is not worth a trial. The last pass of
``prune`` asks about every member, whatever it promised: its answers are the proof.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from analyzers.fallback.ledger import Ledger
from analyzers.fallback.proposals import best_sums
from analyzers.records import Ranking
from analyzers.steps import Steps

# A member with this share of its set's gain is hardly one that can go: it is asked about last.
_KEY_SHARE = 0.1
# A set that promises nearly as much as the best one that missed may well reach the target...
_NEARLY = 0.9
_MAX_LIKELY_TRIALS = 4
# ... and on few samples even unlikely sets cost little: images that may be run for them.
_UNLIKELY_IMAGES = 200
# Most proposals are ruled out by trials that are known; there are too many to look at them all.
_MAX_PROPOSALS = 2000


class Reducer:
    """Reduces sets by trials; members are named without the forced ones, which are in every set."""

    def __init__(self, ledger: Ledger, forced: Sequence[str], ranking: Ranking, *, samples: int) -> None:
        self._ledger = ledger
        self._forced = frozenset(forced)
        self._ranking = ranking
        self._gains = dict(zip(ranking.layers, ranking.gains, strict=True))
        self._place = {layer: place for place, layer in enumerate(ranking.layers)}
        self._likely_trials = _MAX_LIKELY_TRIALS
        self._unlikely_trials = _UNLIKELY_IMAGES // samples

    def reduce(self, members: Sequence[str]) -> Steps[tuple[str, ...]]:
        """Return a set of which every member was asked about and is needed."""
        found = yield from self._trim(members)
        found = yield from self._shrink(found)
        return (yield from self._prune(found))

    def reaches(self, members: Sequence[str] | frozenset[str], stage: str) -> Steps[bool]:
        """Tell whether these members and the forced layers reach the target."""
        trial = yield from self._ledger.ask(self._forced | frozenset(members), stage)
        return self._ledger.passes(trial)

    def _trim(self, members: Sequence[str]) -> Steps[tuple[str, ...]]:
        """Give up groups of members, larger ones first, then single ones, least promising first."""
        kept = self._by_promise(members)
        size = len(kept) // 2
        while size >= 2:
            kept = yield from self._without_groups(kept, size)
            size = min(size, len(kept)) // 2
        total = self._gain(kept)
        for member in kept:
            if self._gains[member] > _KEY_SHARE * total:
                break
            if len(kept) > 1 and (yield from self.reaches(_minus(kept, [member]), "prune")):
                kept = _minus(kept, [member])
        return kept

    def _without_groups(self, kept: tuple[str, ...], size: int) -> Steps[tuple[str, ...]]:
        start = 0
        while start + size <= len(kept) and size < len(kept):
            group = kept[start : start + size]
            is_minor = self._gain(group) <= self._gain(kept) / 2
            if is_minor and (yield from self.reaches(_minus(kept, group), "prune")):
                kept = _minus(kept, group)
            else:
                start += size
        return kept

    def _prune(self, members: Sequence[str]) -> Steps[tuple[str, ...]]:
        """Ask about every member until none of those that are left can go."""
        kept = self._by_promise(members)
        position = 0
        while position < len(kept) and len(kept) > 1:
            rest = _minus(kept, [kept[position]])
            if (yield from self.reaches(rest, "prune")):
                # What was needed beside the member may not be needed without it.
                kept, position = rest, 0
            else:
                position += 1
        return kept

    def _shrink(self, members: tuple[str, ...]) -> Steps[tuple[str, ...]]:
        """Look for a set with one member less, and again from there."""
        while len(members) > 1:
            smaller = yield from self._smaller(len(members) - 1)
            if smaller is None:
                break
            members = yield from self._trim(smaller)
        return members

    def _smaller(self, size: int) -> Steps[tuple[str, ...] | None]:
        """Return a set of this size that reaches the target, if one is found within the allowance."""
        missed = self._best_missed_gain()
        for chosen in itertools.islice(best_sums(self._ranking.gains, size), _MAX_PROPOSALS):
            proposal = tuple(self._ranking.layers[place] for place in chosen)
            whole = frozenset(proposal) | self._forced
            if self._ledger.known(whole) or self._ledger.has_failed_superset(whole):
                continue
            if not self._is_affordable(is_likely=self._gain(proposal) >= _NEARLY * missed):
                return None
            if (yield from self.reaches(proposal, "refine")):
                return proposal
        return None

    def _is_affordable(self, *, is_likely: bool) -> bool:
        if is_likely and self._likely_trials > 0:
            self._likely_trials -= 1
            return True
        self._unlikely_trials -= 1
        return self._unlikely_trials >= 0

    def _best_missed_gain(self) -> float:
        missed = (t for t in self._ledger.trials if not t.score >= self._ledger.target)
        return max((self._gain(t.fallback) for t in missed), default=0.0)

    def _gain(self, members: Sequence[str]) -> float:
        return sum(self._gains.get(member, 0.0) for member in members)

    def _by_promise(self, members: Sequence[str]) -> tuple[str, ...]:
        """Return members, least promising first."""
        return tuple(sorted(members, key=lambda layer: -self._place[layer]))


def _minus(members: Sequence[str], gone: Sequence[str]) -> tuple[str, ...]:
    return tuple(member for member in members if member not in gone)
