"""Run hybrids of candidate and reference layers, each one once, and keep the record of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from analyzers.records import BisectStep
from analyzers.steps import Step, Steps

CANDIDATE_PREFIX = "candidate-prefix"
REFERENCE_PREFIX = "reference-prefix"
REPAIR = "repair"

NON_MONOTONE_DB = 1.0

_LIMIT_DB = 200.0


class OutOfRunsError(Exception):
    """The allowed number of runs is used up; never leaves this package."""


class Hybrids:
    """Hybrids along one chain of layers.

    Attributes:
        chain: Layers in the order that cuts follow.
        threshold_db: Below it a hybrid is bad.
        steps: Every hybrid that was run, in order.
    """

    def __init__(
        self,
        chain: Sequence[str],
        score: Callable[[frozenset[str]], float],
        *,
        threshold_db: float,
        max_runs: int,
    ) -> None:
        self.chain = tuple(chain)
        self.threshold_db = threshold_db
        self.steps: list[BisectStep] = []
        self._score = score
        self._max_runs = max_runs
        self._scores: dict[frozenset[str], float] = {}

    def candidate_prefix(self, cut: int, repaired: Sequence[str] = ()) -> Steps[BisectStep]:
        """Run candidate layers before the cut and reference layers from it on."""
        return self._run(frozenset(self.chain[cut:]), cut, CANDIDATE_PREFIX, tuple(repaired))

    def reference_prefix(self, cut: int, repaired: Sequence[str] = ()) -> Steps[BisectStep]:
        """Run reference layers before the cut and candidate layers from it on."""
        return self._run(frozenset(self.chain[:cut]), cut, REFERENCE_PREFIX, tuple(repaired))

    def repair(self, repaired: Sequence[str]) -> Steps[BisectStep]:
        """Run the candidate with these layers as the reference computes them."""
        return self._run(frozenset(), len(self.chain), REPAIR, tuple(repaired))

    def alone(self, layer: str) -> Steps[BisectStep]:
        """Run the reference with only this layer as the candidate computes it."""
        others = tuple(name for name in self.chain if name != layer)
        return self._run(frozenset(), len(self.chain), REPAIR, others)

    def rise(self) -> tuple[BisectStep, BisectStep] | None:
        """Return two runs of which the second has more candidate layers and yet clearly scored better."""
        runs = list(zip(self._scores, self.steps, strict=True))
        for fewer_fallback, more in runs:
            for fallback, fewer in runs:
                if fewer_fallback < fallback and more.sqnr_db > fewer.sqnr_db + NON_MONOTONE_DB:
                    return fewer, more
        return None

    def _run(
        self, fallback: frozenset[str], cut: int, direction: str, repaired: tuple[str, ...]
    ) -> Steps[BisectStep]:
        fallback = fallback | frozenset(repaired)
        is_new = fallback not in self._scores
        if is_new:
            if len(self.steps) >= self._max_runs:
                raise OutOfRunsError
            self._scores[fallback] = self._score(fallback)
        sqnr_db = self._scores[fallback]
        step = BisectStep(
            cut=cut,
            layer=self.chain[cut - 1] if cut else "",
            direction=direction,
            repaired=repaired,
            sqnr_db=sqnr_db,
            # An undefined score is bad: one side became NaN or constant, which no threshold excuses.
            is_bad=not sqnr_db >= self.threshold_db,
        )
        if is_new:
            self.steps.append(step)
            yield Step("bisect", done=len(self.steps), text=_line(step), record=step)
        return step


def noise(step: BisectStep) -> float:
    """Return the output noise power of a run; see ``noise_of``."""
    return noise_of(step.sqnr_db)


def noise_of(sqnr_db: float) -> float:
    """Return noise power as a fraction of signal power, ``10 ** (-sqnr / 10)``.

    Limited to what 200 dB either way mean; an undefined ratio counts as drowned in noise.
    """
    if math.isnan(sqnr_db):
        return float(10 ** (_LIMIT_DB / 10))
    return float(10 ** (-max(-_LIMIT_DB, min(_LIMIT_DB, sqnr_db)) / 10))


def share(part: float, whole: float) -> float:
    """Return ``part / whole``; 0 where there is no whole."""
    return part / whole if whole > 0 else 0.0


def _line(step: BisectStep) -> str:
    verdict = "bad" if step.is_bad else "good"
    if step.direction == REPAIR:
        subject = f"{len(step.repaired)} layers as the reference computes them"
        if len(step.repaired) <= 3:
            subject = f"repaired {', '.join(step.repaired)}"
    else:
        first, second = step.direction.split("-")
        subject = f"{first} {second} of {step.cut} layers, up to {step.layer or 'the inputs'}"
    return f"{subject}: {step.sqnr_db:.1f} dB, {verdict}"
