"""Task scores of reference and candidate, from the trial store where they are known already."""

from __future__ import annotations

import tempfile
from pathlib import Path

from analyzers.bench import make_bench, samples_of
from analyzers.pool import WorkerPool
from analyzers.project import Pair
from analyzers.records import Inputs, Score
from analyzers.steps import Step, Steps
from analyzers.trial import Scoring, TrialScorer
from analyzers.trial_store import FILE_NAME, TrialStore


def task_scores(pair: Pair, inputs: Inputs) -> Steps[tuple[Score | None, Score | None]]:
    """Return the scores of reference and candidate, or (None, None) where there are no annotations.

    Raises:
        InputError: Something that the metric needs is wrong.
        BackendError: A model cannot be run.
    """
    if inputs.annotations is None:
        return None, None
    with (
        tempfile.TemporaryDirectory(prefix="tearline-") as folder,
        TrialStore(inputs.workspace / FILE_NAME) as store,
        WorkerPool(inputs.workers) as workers,
    ):
        bench = make_bench(pair, inputs, Path(folder) / "reference")
        indices = tuple(range(len(samples_of(bench))))
        scoring = Scoring(indices, inputs.precision, inputs.rule, inputs.mode)
        scorer = TrialScorer(pair, bench, scoring, executor=workers, store=store, folder=Path(folder))
        yield Step("score", 0, 2, f"Scoring the reference on {len(indices)} samples")
        scorer.score_reference()
        yield Step("score", 1, 2, f"Scoring the candidate on {len(indices)} samples")
        scorer.score_candidate()
        yield Step("score", 2, 2)
        return scorer.full_score("reference"), scorer.full_score("candidate")
