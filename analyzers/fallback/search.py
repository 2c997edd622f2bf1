"""The fallback search of DESIGN section 6, on a function that scores sets of layers.

The ranking proposes, real scores decide: gallop along it, binary-search the prefix, prune to a set of which
every member is needed, look for a smaller one. What is claimed of the answer is what a trial has shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from analyzers.contracts import ScoreFunction
from analyzers.cost import Price, count_price, priced
from analyzers.errors import InputError
from analyzers.fallback.answer import Ending, Setting, result_of, unproven
from analyzers.fallback.constraints import Bounds, resolve
from analyzers.fallback.gaps import close_gaps
from analyzers.fallback.ledger import BudgetSpentError, Ledger
from analyzers.fallback.reduction import Reducer
from analyzers.records import Layer, Notice, Ranking, SearchOptions, SearchResult
from analyzers.steps import Step, Steps

RankFunction = Callable[[tuple[str, ...]], Steps[Ranking]]

# Bounds that miss by less than this may be noise of the score, so they do not end the search.
SLACK = {"": 0.005, "dB": 0.5}
DEFAULT_BUDGET = 100.0
BUDGET_IMAGES = 4096
# Layers that are tried one by one on top of a prefix that nearly reaches the target.
NEAR_TRIALS = 4


def search(
    layers: Sequence[Layer],
    score: ScoreFunction,
    rank: RankFunction,
    *,
    options: SearchOptions,
    setting: Setting,
    price: Price | None = None,
) -> Steps[SearchResult]:
    """Find a small set of layers whose fallback reaches the target.

    Args:
        layers: All layers, topological.
        score: Scores a set on the full set of samples; the empty set is the candidate as it is.
        rank: Orders the layers that it is given; asked at most once, and only if there is a search.
        options: Target, budget and constraints.
        setting: What is known already.
        price: What sets cost on the target; by default each layer costs one.

    Raises:
        InputError: The constraints contradict each other or match nothing, or a drop is asked for in dB.
    """
    bounds = resolve(layers, options)
    target = target_of(options, setting)
    price = price or count_price(layers)
    ledger = Ledger(
        priced(score, price),
        order=[layer.name for layer in layers],
        target=target,
        samples=setting.samples,
        budget=budget_of(options, setting.samples),
        spent=setting.spent,
    )
    reason = why_hopeless(setting, target)
    if reason:
        ending = Ending(bounds.forced, reason)
    else:
        ending = yield from _Search(ledger, bounds, rank, setting, price).run()
    return result_of(layers, ledger, bounds, setting, ending, price)


def budget_of(options: SearchOptions, samples: int) -> float:
    """Return the full-set equivalents that may be spent; small sets may be run more often."""
    return max(DEFAULT_BUDGET, BUDGET_IMAGES / samples) if options.budget is None else options.budget


def target_of(options: SearchOptions, setting: Setting) -> float:
    """Return the lowest acceptable score.

    Raises:
        InputError: A drop is asked for in a unit in which the reference itself is infinite.
    """
    if options.target is not None:
        return options.target
    if setting.unit == "dB":
        raise InputError(
            "max_drop_without_task",
            f"A largest drop has no meaning for {setting.metric}: the reference's own value is infinite",
            where="--max-drop",
            hint="Give --target with a value in dB",
        )
    assert options.max_drop is not None
    return setting.reference_score - options.max_drop


def why_hopeless(setting: Setting, target: float) -> str:
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

    def __init__(
        self, ledger: Ledger, bounds: Bounds, rank: RankFunction, setting: Setting, price: Price
    ) -> None:
        self.ledger = ledger
        self.bounds = bounds
        self.rank = rank
        self.setting = setting
        self.price = price
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
        forced = self.bounds.forced
        start = yield from self.ledger.ask((), "candidate")
        if forced:
            start = yield from self.ledger.ask(forced, "forced")
        if self.ledger.passes(start):
            return self._end(start.fallback, "The candidate reaches the target as it is")
        free = yield from self._safe_layers()
        if free is None:
            return self._end(self._best(), self._not_by_these_bounds())
        self.ranking = _complete((yield from self.rank(free)), free)
        self.ledger.spent += self.ranking.evaluations
        reducer = Reducer(self.ledger, forced, self.ranking, samples=self.setting.samples)
        prefix = yield from self._promising_set(reducer)
        if prefix is None:
            return self._end(self._best(), "No prefix of the ranking reaches the target")
        members = yield from reducer.reduce(prefix)
        if len(members) + len(forced) > self.bounds.max_layers:
            return (yield from self._too_large(members))
        gaps = yield from close_gaps(self.ledger, self.bounds, members, free, self.price)
        return replace(self._end(members, self._reached_reason(members)), closed_gaps=gaps)

    def _safe_layers(self) -> Steps[tuple[str, ...] | None]:
        """Return the layers that may leave INT8 without overflow, or None if even all of them miss."""
        free = self.bounds.free
        trial = yield from self.ledger.ask((*self.bounds.forced, *free), "all-fallback")
        self.all_fallback_score = trial.score
        while trial.overflow:
            unsafe = frozenset(trial.overflow)
            self._warn_overflow(trial.overflow)
            forced_unsafe = unsafe & frozenset(self.bounds.forced)
            safe = tuple(layer for layer in free if layer not in unsafe)
            if forced_unsafe or len(safe) == len(free):
                return None
            free = safe
            trial = yield from self.ledger.ask((*self.bounds.forced, *free), "all-fallback-where-safe")
        if trial.score < self.ledger.target - SLACK.get(self.setting.unit, 0.0) or not free:
            return None
        return free

    def _promising_set(self, reducer: Reducer) -> Steps[tuple[str, ...] | None]:
        """Gallop to a prefix of the ranking that reaches the target, then halve the distance back.

        Where a prefix misses by a hair, it is tried with one more layer, in the order of the ranking, before
        it is doubled: beyond the layers that matter scores lie on a plateau, where more layers buy nothing.
        """
        order = self.ranking.layers
        low, high = 0, 1
        while not (yield from reducer.reaches(order[:high], "gallop")):
            if high >= len(order):
                return None
            if self._is_near(order[:high]):
                for layer in order[high : high + NEAR_TRIALS]:
                    if (yield from reducer.reaches((*order[:high], layer), "near")):
                        return (*order[:high], layer)
            low, high = high, min(high * 2, len(order))
        while high - low > 1:
            middle = (low + high) // 2
            if (yield from reducer.reaches(order[:middle], "search")):
                high = middle
            else:
                low = middle
        return order[:high]

    def _is_near(self, members: Sequence[str]) -> bool:
        trial = self.ledger.known((*self.bounds.forced, *members))
        slack = SLACK.get(self.setting.unit, 0.0)
        return trial is not None and trial.score >= self.ledger.target - slack

    def _too_large(self, members: tuple[str, ...]) -> Steps[Ending]:
        limit = self.bounds.max_layers
        free = max(0, limit - len(self.bounds.forced))
        yield from self.ledger.ask((*self.bounds.forced, *self.ranking.layers[:free]), "max-layers")
        size = len(members) + len(self.bounds.forced)
        reason = f"Not reached with at most {limit} layers; the smallest set found that does has {size}"
        return self._end(self._best(), reason)

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
            return min(reaching, key=lambda t: (len(t.fallback), t.cost, -t.score)).fallback
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
        last = self.ledger.trials[-1]
        if last.overflow:
            return f"Not reached by these bounds: {', '.join(last.overflow)} overflows half precision"
        reason = (
            "Not reached by these bounds: with every layer that may leave INT8 the score is "
            f"{last.score:.4g}, the target {self.ledger.target:.4g}"
        )
        unsafe = [notice.where for notice in self.warnings if notice.code == "fp16_overflow"]
        if unsafe:
            reason += f". {', '.join(unsafe)} does not fit half precision: search again with float32 or INT16"
        return reason

    def _reached_reason(self, members: Sequence[str]) -> str:
        forced = len(self.bounds.forced)
        count = f"{len(members)} layer{'s' if len(members) != 1 else ''}"
        if forced:
            count += f" and {forced} forced"
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
