"""The fallback search of DESIGN section 6, on a function that scores sets of layers.

The ranking proposes, real scores decide: gallop along it, binary-search the prefix, prune to a set of which
every member is needed, look for a smaller one. What is claimed of the answer is what a trial has shown.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from analyzers import ddmin
from analyzers.contracts import ScoreFunction
from analyzers.errors import InputError
from analyzers.fallback.answer import Ending, Setting, result_of, unproven
from analyzers.fallback.constraints import Bounds, resolve
from analyzers.fallback.ledger import BudgetSpentError, Ledger
from analyzers.fallback.proposals import best_sums
from analyzers.records import Layer, Notice, Ranking, SearchOptions, SearchResult, Trial
from analyzers.steps import Step, Steps

RankFunction = Callable[[tuple[str, ...]], Steps[Ranking]]

# Bounds that miss by less than this may be noise of the score, so they do not end the search.
SLACK = {"": 0.005, "dB": 0.5}
DEFAULT_BUDGET = 100.0
BUDGET_IMAGES = 4096
# Images that may be run to look for smaller sets once a minimal one is known: a search over a handful of
# samples can afford to try many sets, one over thousands only the most promising.
REFINE_IMAGES = 512
# Most proposals are ruled out by trials that are known; there are too many to look at them all.
MAX_PROPOSALS = 2000


def search(
    layers: Sequence[Layer],
    score: ScoreFunction,
    rank: RankFunction,
    *,
    options: SearchOptions,
    setting: Setting,
) -> Steps[SearchResult]:
    """Find a small set of layers whose fallback reaches the target.

    Args:
        layers: All layers, topological.
        score: Scores a set on the full set of samples; the empty set is the candidate as it is.
        rank: Orders the layers that it is given; asked at most once, and only if there is a search.
        options: Target, budget and constraints.
        setting: What is known already.

    Raises:
        InputError: The constraints contradict each other or match nothing, or a drop is asked for in dB.
    """
    bounds = resolve(layers, options)
    if options.max_drop is not None and setting.unit == "dB":
        raise InputError(
            "max_drop_without_task",
            f"A largest drop has no meaning for {setting.metric}: the reference's own value is infinite",
            where="--max-drop",
            hint="Give --target with a value in dB",
        )
    target = options.target
    if target is None:
        target = setting.reference_score - (options.max_drop or 0.0)
    ledger = Ledger(
        score,
        order=[layer.name for layer in layers],
        target=target,
        samples=setting.samples,
        budget=budget_of(options, setting.samples),
        spent=setting.spent,
    )
    hopeless = _hopeless(setting, target)
    if hopeless:
        ending = Ending(bounds.forced, hopeless)
    else:
        ending = yield from _Search(ledger, bounds, rank, setting).run()
    return result_of(layers, ledger, bounds, setting, ending)


def budget_of(options: SearchOptions, samples: int) -> float:
    """Return the full-set equivalents that may be spent; small sets may be run more often."""
    return max(DEFAULT_BUDGET, BUDGET_IMAGES / samples) if options.budget is None else options.budget


def _hopeless(setting: Setting, target: float) -> str:
    """Return why no trial is worth running, or "" if one is."""
    score = setting.reference_score
    if setting.floor is not None and not score >= setting.floor:
        return (
            f"The reference itself scores only {score:.4g} ({setting.metric}): check preprocessing and "
            "decoder of the task before any layer is blamed"
        )
    if not score >= target:
        return (
            f"The reference itself scores {score:.4g}, less than the target of {target:.4g}: lower the "
            "target, or check preprocessing and decoder of the task"
        )
    return ""


class _Search:
    """The state that the stages share: what was ranked, which layers overflow, the best answer so far."""

    def __init__(self, ledger: Ledger, bounds: Bounds, rank: RankFunction, setting: Setting) -> None:
        self.ledger = ledger
        self.bounds = bounds
        self.rank = rank
        self.setting = setting
        self.ranking = Ranking((), (), 0.0)
        self.all_fallback_score = float("nan")
        self.warnings: list[Notice] = []

    def run(self) -> Steps[Ending]:
        """Run the stages; a spent budget ends them with the best that is known."""
        try:
            return (yield from self._stages())
        except BudgetSpentError:
            return self._ended_by_budget()

    def _stages(self) -> Steps[Ending]:
        start = yield from self._ask((), "candidate")
        if self.bounds.forced:
            start = yield from self._ask(self.bounds.forced, "forced")
        if self.ledger.passes(start):
            return self._end(start.fallback, "The candidate reaches the target as it is")
        free = yield from self._safe_layers()
        if free is None:
            return self._end(self._best(), self._not_by_these_bounds())
        self.ranking = _complete((yield from self.rank(free)), free)
        self.ledger.spent += self.ranking.evaluations
        prefix = yield from self._shortest_prefix()
        if prefix is None:
            return self._end(self._best(), "No prefix of the ranking reaches the target")
        members = yield from self._prune(prefix)
        members = yield from self._shrink(members)
        if len(members) > self.bounds.max_layers:
            return (yield from self._too_large(members))
        return self._end(members, self._reached_reason(members))

    def _safe_layers(self) -> Steps[tuple[str, ...] | None]:
        """Return the layers that may leave INT8 without overflow, or None if even all of them miss."""
        free = self.bounds.free
        trial = yield from self._ask((*self.bounds.forced, *free), "all-fallback")
        self.all_fallback_score = trial.score
        while trial.overflow:
            unsafe = frozenset(trial.overflow)
            self._warn_overflow(trial.overflow)
            forced_unsafe = unsafe & frozenset(self.bounds.forced)
            safe = tuple(layer for layer in free if layer not in unsafe)
            if forced_unsafe or len(safe) == len(free):
                return None
            free = safe
            trial = yield from self._ask((*self.bounds.forced, *free), "all-fallback-where-safe")
        if trial.score < self.ledger.target - SLACK.get(self.setting.unit, 0.0) or not free:
            return None
        return free

    def _shortest_prefix(self) -> Steps[tuple[str, ...] | None]:
        """Gallop to a prefix of the ranking that reaches the target, then halve the distance back."""
        order = self.ranking.layers
        low, high = 0, 1
        while not (yield from self._prefix_passes(min(high, len(order)), "gallop")):
            if high >= len(order):
                return None
            low, high = high, high * 2
        high = min(high, len(order))
        while high - low > 1:
            middle = (low + high) // 2
            if (yield from self._prefix_passes(middle, "search")):
                high = middle
            else:
                low = middle
        return order[:high]

    def _prefix_passes(self, size: int, stage: str) -> Steps[bool]:
        trial = yield from self._ask((*self.bounds.forced, *self.ranking.layers[:size]), stage)
        return self.ledger.passes(trial)

    def _prune(self, members: Sequence[str]) -> Steps[tuple[str, ...]]:
        """Give up members, least promising first, groups before single ones, until each is needed."""

        def is_enough(kept: frozenset[str]) -> Steps[bool]:
            trial = yield from self._ask((*self.bounds.forced, *kept), "prune")
            return self.ledger.passes(trial)

        place = {layer: index for index, layer in enumerate(self.ranking.layers)}
        by_promise = sorted(members, key=lambda layer: -place[layer])
        return (yield from ddmin.minimize(by_promise, is_enough, try_parts=False))

    def _shrink(self, members: tuple[str, ...]) -> Steps[tuple[str, ...]]:
        """Look for a set with one member less, as long as the images for that last."""
        allowance = max(1, REFINE_IMAGES // self.setting.samples)
        while len(members) > 1 and allowance > 0:
            smaller = None
            proposals = best_sums(self.ranking.gains, len(members) - 1)
            for chosen in itertools.islice(proposals, MAX_PROPOSALS):
                proposal = frozenset(self.ranking.layers[i] for i in chosen)
                whole = proposal | frozenset(self.bounds.forced)
                if self.ledger.known(whole) or self.ledger.has_failed_superset(whole):
                    continue
                allowance -= 1
                trial = yield from self._ask(whole, "refine")
                if self.ledger.passes(trial):
                    smaller = yield from self._prune(tuple(proposal))
                if smaller is not None or allowance <= 0:
                    break
            if smaller is None:
                break
            members = smaller
        return members

    def _too_large(self, members: tuple[str, ...]) -> Steps[Ending]:
        limit = self.bounds.max_layers
        yield from self._ask(
            (*self.bounds.forced, *self.ranking.layers[: limit - len(self.bounds.forced)]), "max-layers"
        )
        size = len(members) + len(self.bounds.forced)
        reason = f"Not reached with at most {limit} layers; the smallest set found that does has {size}"
        return self._end(self._best(), reason)

    def _ask(self, fallback: Sequence[str] | frozenset[str], stage: str) -> Steps[Trial]:
        return (yield from self.ledger.ask(fallback, stage))

    def _end(self, members: Sequence[str], reason: str) -> Ending:
        fallback = self.ledger.ordered(frozenset(members) | frozenset(self.bounds.forced))
        return Ending(fallback, reason, self.ranking.layers, self.all_fallback_score, tuple(self.warnings))

    def _best(self) -> tuple[str, ...]:
        """Return the best set within the bounds: smallest of those that reach, else highest score."""
        trials = [
            t
            for t in self.ledger.trials
            if not t.overflow
            and len(t.fallback) <= self.bounds.max_layers
            and frozenset(self.bounds.forced) <= frozenset(t.fallback)
        ]
        reaching = [t for t in trials if self.ledger.passes(t)]
        if reaching:
            return min(reaching, key=lambda t: (len(t.fallback), -t.score)).fallback
        if not trials:
            return self.bounds.forced
        return max(trials, key=lambda t: (_number(t.score), -len(t.fallback))).fallback

    def _ended_by_budget(self) -> Ending:
        best = self._best()
        trial = self.ledger.known(best)
        if trial is not None and self.ledger.passes(trial):
            reason = "The budget ended before every member of the set was proven to be needed"
            if not unproven(self.ledger, self.bounds, best):
                reason = "The budget ended while smaller sets were being looked for"
        else:
            reason = "The budget ended before a set that reaches the target was found"
        return self._end(best, reason)

    def _not_by_these_bounds(self) -> str:
        target = self.ledger.target
        last = self.ledger.trials[-1]
        subject = "every layer that may leave INT8"
        if last.overflow:
            return f"Not reached by these bounds: {', '.join(last.overflow)} overflows and is forced"
        return (
            f"Not reached by these bounds: with {subject} the score is {last.score:.4g}, target {target:.4g}"
        )

    def _reached_reason(self, members: Sequence[str]) -> str:
        forced = len(self.bounds.forced)
        count = f"{len(members)} layer{'s' if len(members) != 1 else ''}" + (
            f" and {forced} forced" * bool(forced)
        )
        return f"Reached with {count}; taking any one of them back to INT8 misses the target"

    def _warn_overflow(self, overflow: tuple[str, ...]) -> None:
        text = "Values beyond 65504 do not fit half precision; the layer stays as the candidate computes it"
        self.warnings += [Notice("fp16_overflow", text, layer) for layer in overflow]


def _complete(ranking: Ranking, free: tuple[str, ...]) -> Ranking:
    """Append layers that the ranking left out, in topological order, as the least promising."""
    missing = tuple(layer for layer in free if layer not in ranking.layers)
    return Ranking(ranking.layers + missing, ranking.gains + (0.0,) * len(missing), ranking.evaluations)


def _number(score: float) -> float:
    return score if score == score else float("-inf")


def ranked(order: Sequence[str], gains: Sequence[float] | None = None) -> RankFunction:
    """Return a rank function that gives a fixed order, without cost."""

    def rank(free: tuple[str, ...]) -> Steps[Ranking]:
        yield Step("rank", done=len(order), total=len(order))
        kept = [i for i, layer in enumerate(order) if layer in free]
        values = gains if gains is not None else [1.0] * len(order)
        return Ranking(tuple(order[i] for i in kept), tuple(values[i] for i in kept), 0.0)

    return rank
