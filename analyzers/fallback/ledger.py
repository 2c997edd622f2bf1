"""Ask for scores, each set once, and keep the books of what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from analyzers.contracts import ScoreFunction
from analyzers.records import Trial
from analyzers.steps import Step, Steps


class BudgetSpentError(Exception):
    """The next trial would exceed the budget; never leaves this package."""


class Ledger:
    """Scored sets of one search.

    Attributes:
        target: Lowest acceptable score.
        trials: Every set that was scored, in order.
        spent: Full-set equivalents used so far.
    """

    def __init__(
        self,
        score: ScoreFunction,
        *,
        order: Sequence[str],
        target: float,
        samples: int,
        budget: float,
        spent: float,
    ) -> None:
        self.target = target
        self.trials: list[Trial] = []
        self.spent = spent
        self._score = score
        self._place = {layer: index for index, layer in enumerate(order)}
        self._samples = samples
        self._budget = budget
        self._known: dict[frozenset[str], Trial] = {}

    def ask(self, fallback: Iterable[str], stage: str) -> Steps[Trial]:
        """Return the trial of this set, running it if it is new.

        Raises:
            BudgetSpentError: It is new and there is nothing left to pay for it.
        """
        members = frozenset(fallback)
        if members in self._known:
            return self._known[members]
        if self.spent + 1 > self._budget:
            raise BudgetSpentError
        scored = self._score(members, stage=stage)
        trial = replace(scored, fallback=self.ordered(members), stage=stage)
        self.spent += trial.samples / self._samples
        self._known[members] = trial
        self.trials.append(trial)
        yield Step("search", done=len(self.trials), text=self._line(trial), record=trial)
        return trial

    def known(self, fallback: Iterable[str]) -> Trial | None:
        """Return the trial of this set if there was one."""
        return self._known.get(frozenset(fallback))

    def passes(self, trial: Trial) -> bool:
        """Tell whether the trial reaches the target with values that half precision can hold."""
        return trial.score >= self.target and not trial.overflow

    def has_failed_superset(self, fallback: frozenset[str]) -> bool:
        """Tell whether a larger set is known to miss, so that this one is a poor bet."""
        return any(fallback < known and trial.score < self.target for known, trial in self._known.items())

    def ordered(self, members: Iterable[str]) -> tuple[str, ...]:
        """Return layer names in topological order."""
        return tuple(sorted(members, key=lambda layer: self._place[layer]))

    def drop_from_smaller_to_larger(self) -> tuple[Trial, Trial] | None:
        """Return a set that passes and a larger one that misses, if two such were scored."""
        sound = [trial for trial in self.trials if not trial.overflow]
        for small in sound:
            for large in sound:
                if set(small.fallback) < set(large.fallback) and self.passes(small) > self.passes(large):
                    return small, large
        return None

    def _line(self, trial: Trial) -> str:
        names = ", ".join(trial.fallback[:4]) + (" ..." if len(trial.fallback) > 4 else "")
        verdict = "reaches" if self.passes(trial) else "misses"
        subject = f"{len(trial.fallback)} layers ({names})" if trial.fallback else "no layer"
        text = f"{trial.stage}: {subject}: {trial.score:.4g}, {verdict} {self.target:.4g}"
        return f"{text}; overflows in {', '.join(trial.overflow)}" if trial.overflow else text
