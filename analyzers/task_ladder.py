"""What fixes give back in the task's own score, one on top of the other, over the whole set."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from analyzers import shards
from analyzers.bench import Bench, Side, metric_of, samples_of
from analyzers.lab import Lab
from analyzers.records import Array, Diagnosis, Finding, Gain
from analyzers.steps import Step, Steps
from analyzers.suspicions import Change

MOST_FIXES = 6  # each rung costs a run over the whole set


@dataclass(frozen=True, slots=True, eq=False)
class Fix:
    """A finding and the changes that were simulated to fix it."""

    finding: Finding
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TaskLadder:
    """Scores what-if models with the task's metric.

    All rungs run in literal mode, the first one too, since scores of different modes are not compared.

    Attributes:
        bench: Samples and the task's metric.
        lab: Builds the models.
        executor: Runs them.
        folder: For the models' files.
    """

    bench: Bench
    lab: Lab
    executor: Executor
    folder: Path

    def with_gains(self, diagnosis: Diagnosis, fixes: Sequence[Fix]) -> Steps[Diagnosis]:
        """Return the diagnosis with gains in the task's score; fixes past the first few keep theirs."""
        metric = metric_of(self.bench)
        changes: dict[object, Change] = {}
        score = yield from self._score((), "the candidate")
        gains: dict[int, Gain] = {}
        for place, fix in enumerate(fixes[:MOST_FIXES]):
            changes |= {change.source: change for change in fix.changes}
            higher = yield from self._score(tuple(changes.values()), f"fix {place + 1} of {len(fixes)}")
            known = fix.finding.gain
            how = "" if known is None else known.how.split(", with ")[0]
            how += ", on top of the fixes above" if place else ""
            gains[id(fix.finding)] = Gain(score, higher, how, metric.name, len(samples_of(self.bench)))
            score = higher
        findings = tuple(replace(f, gain=gains.get(id(f), f.gain)) for f in diagnosis.findings)
        return replace(diagnosis, findings=findings)

    def _score(self, changes: Sequence[Change], words: str) -> Steps[float]:
        path = self.lab.save(changes, self.folder / f"rung-{len(changes)}")
        side = Side(path, mode="literal", is_simulated=True)
        count = len(samples_of(self.bench))
        futures = [
            self.executor.submit(shards.observe, self.bench, side, tuple(range(start, stop)))
            for start, stop in shards.cut(count)
        ]
        observations: list[Array] = []
        for future in futures:
            observations += future.result()
            yield Step("diagnose", len(observations), count, f"Scoring {words}")
        return metric_of(self.bench).score(samples_of(self.bench).names, observations).value
