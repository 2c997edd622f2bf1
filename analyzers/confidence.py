"""What a search may claim of other images: proven and undecided members, and how surely the target holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from analyzers import resampling
from analyzers.records import MemberProof, ProvenSet, SearchResult, Statistics, Trial
from analyzers.resampling import FEWEST_IMAGES, PROVEN_SHARE, RESAMPLES, Series
from analyzers.serialize import DB_LIMIT
from analyzers.steps import Step, Steps

SeriesOf = Callable[[frozenset[str] | None], Series]
"""Resampled scores of a set that was scored on all images; of the reference for None."""


def with_statistics(
    result: SearchResult,
    series_of: SeriesOf,
    score: Callable[[frozenset[str]], Trial],
    *,
    forced: Iterable[str] = (),
    affordable: float = math.inf,
) -> Steps[SearchResult]:
    """Return the result with what paired resamples say of it.

    Args:
        result: A finished search with a set.
        series_of: Resampled scores.
        score: Scores a further set, for the proven members alone.
        forced: Members that the user wanted; nothing has to be proven of them.
        affordable: Full-set equivalents that may be spent.
    """
    images = result.samples
    if images < FEWEST_IMAGES or not result.fallback or not result.reached:
        undecided = tuple(proof.layer for proof in _proofs(result))
        return replace(result, undecided=undecided if result.reached else ())
    claims = _Claims(result, series_of)
    yield Step("search", text=f"Resampling {images} images {RESAMPLES} times")
    members = tuple(claims.member(p.layer, p.trial) for p in _proofs(result))
    proven = tuple(m.layer for m in members if m.is_proven)
    undecided = tuple(m.layer for m in members if not m.is_proven)
    whole = frozenset(result.fallback)
    low, high = claims.interval(whole, result.score)
    smaller: ProvenSet | None = None
    trials: tuple[Trial, ...] = ()
    if proven and undecided:
        kept = frozenset(proven) | (frozenset(forced) & whole)
        smaller, trials = yield from _proven_set(claims, score, kept, frozenset(forced), affordable)
        known = {trial.fallback for trial in result.trials}
        trials = tuple(trial for trial in trials if trial.fallback not in known)
    every = (*result.trials, *trials)
    statistics = Statistics(
        confidence=1.0 - claims.missing(whole, result.score),
        drop=claims.drop(result.score),
        drop_low=low,
        drop_high=high,
        members=members,
        proven_set=smaller,
        sets_tried=len({trial.fallback for trial in every}),
        resamples=RESAMPLES,
        images=images,
    )
    return replace(
        result,
        proven=proven,
        undecided=undecided,
        statistics=statistics,
        trials=every,
        evaluations=result.evaluations + sum(t.samples for t in trials) / images,
    )


class _Claims:
    """Answers questions about sets, for one target."""

    def __init__(self, result: SearchResult, series_of: SeriesOf) -> None:
        self._is_db = result.unit == "dB"  # a reference has no noise to be compared with
        self._reference_score = 0.0 if self._is_db else result.reference_score
        self._allowed = self._reference_score - result.target
        self._all_series = series_of
        self._samples = result.samples
        self._order = {layer: place for place, layer in enumerate(result.ranking)}
        first = self._series_of(frozenset(result.fallback))
        self._reference = np.zeros_like(first) if self._is_db else series_of(None)

    def _series_of(self, members: frozenset[str]) -> Series:
        series = self._all_series(members)
        return np.clip(series, -DB_LIMIT, DB_LIMIT) if self._is_db else series

    def drop(self, score: float) -> float:
        bounded = max(-DB_LIMIT, min(DB_LIMIT, score)) if self._is_db else score
        return self._reference_score - bounded

    def missing(self, members: frozenset[str], score: float) -> float:
        return resampling.missing_share(
            self._reference,
            self._series_of(members),
            full_drop=self.drop(score),
            allowed_drop=self._allowed,
        )

    def interval(self, members: frozenset[str], score: float) -> tuple[float, float]:
        return resampling.interval(self._reference, self._series_of(members), full_drop=self.drop(score))

    def member(self, layer: str, without: Trial) -> MemberProof:
        """Return how sure it is that a set needs a member, from the trial without it.

        A trial that stopped early was further below the target than resamples scatter.
        """
        if without.samples < self._samples:
            share = 1.0
        else:
            share = self.missing(frozenset(without.fallback), without.score)
        return MemberProof(layer, without.score, share, share >= PROVEN_SHARE)


class _Proof:
    """A member and the trial without it."""

    def __init__(self, layer: str, trial: Trial) -> None:
        self.layer, self.trial = layer, trial


def _proofs(result: SearchResult) -> Sequence[_Proof]:
    whole = frozenset(result.fallback)
    found = []
    for trial in result.proof:
        gone = whole - frozenset(trial.fallback)
        if len(gone) == 1:
            found.append(_Proof(next(iter(gone)), trial))
    return found


def _proven_set(
    claims: _Claims,
    score: Callable[[frozenset[str]], Trial],
    members: frozenset[str],
    forced: frozenset[str],
    affordable: float,
) -> Steps[tuple[ProvenSet | None, tuple[Trial, ...]]]:
    """Score the proven members alone, and that each of them is needed there too."""
    asked = [members, *(members - {layer} for layer in sorted(members - forced))]
    if len(asked) > affordable:
        return None, ()
    trials: list[Trial] = []
    for place, fallback in enumerate(asked):
        if not fallback:
            continue
        yield Step("search", place, len(asked), "Scoring the proven members alone")
        trials.append(score(fallback))
    alone = trials[0]
    proofs = [claims.member(next(iter(members - frozenset(t.fallback))), t) for t in trials[1:]]
    if not all(p.is_proven for p in proofs):
        return None, tuple(trials)
    confidence = 1.0 - claims.missing(members, alone.score)
    return ProvenSet(alone.fallback, alone.score, confidence, tuple(proofs)), tuple(trials)
