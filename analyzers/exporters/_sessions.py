"""Run an exported model as its users will, beside the session that trials ran in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analyzers import graph
from analyzers.backends.onnxruntime import PLAN_CHANGING_OPTIMIZERS, open_session
from analyzers.contracts import Runner, SampleSet
from analyzers.records import Array, Notice
from analyzers.simulate import simulate

if TYPE_CHECKING:
    from analyzers.exporters import ExportRequest

SAMPLES = 2
VISIBLE_DB = 1.0
VISIBLE_ROUNDING_DB = 6.0


@dataclass(frozen=True, slots=True)
class Agreement:
    """How near an exported model is to the reference, and how near the trials were.

    One rounding that falls the other way changes many integers after it, so two exact runs of one plan may
    agree with each other no better than with the reference; what has to be the same is their distance to it.

    Attributes:
        is_identical: Every output of the file is what the trial session yields.
        file_db: Signal-to-noise ratio of the file's worst output against the reference.
        trial_db: The same of the trial session.
    """

    is_identical: bool
    file_db: float
    trial_db: float


def session_notices(
    path: Path, request: ExportRequest, *, rounds_elsewhere: bool = False
) -> tuple[Notice, ...]:
    """Run the file on a few samples with onnxruntime's defaults and say where it differs from the trials.

    Args:
        path: The exported model.
        request: What it was made from; without samples nothing is run.
        rounds_elsewhere: The file holds float16 nodes, which round where the runtime does, not where trials
            do; on a CPU, onnxruntime computes neighbouring ones in float32 without rounding between them.
    """
    notices = []
    if request.search is not None and request.search.result.mode == "literal":
        text = "The score belongs to the mode 'literal'; give the session disable_quant_qdq=1 to repeat it"
        notices.append(Notice("needs_session_option", text, "session.disable_quant_qdq"))
    agreement = None if request.samples is None else measure_agreement(path, request, request.samples)
    if agreement is not None and not _is_same(agreement, rounds_elsewhere=rounds_elsewhere):
        text = (
            f"With onnxruntime's default options the file is {agreement.file_db:.1f} dB from the reference; "
            f"in trials the plan was {agreement.trial_db:.1f} dB. To repeat a trial, open it with "
            f"disabled_optimizers={list(PLAN_CHANGING_OPTIMIZERS)} and session.x64quantprecision=1"
        )
        notices.append(Notice("needs_session_option", text, "session.x64quantprecision"))
    return tuple(notices)


def _is_same(agreement: Agreement, *, rounds_elsewhere: bool) -> bool:
    gain_db = agreement.file_db - agreement.trial_db
    if rounds_elsewhere:
        return agreement.is_identical or gain_db >= -VISIBLE_ROUNDING_DB
    return agreement.is_identical or abs(gain_db) <= VISIBLE_DB


def measure_agreement(path: Path, request: ExportRequest, samples: SampleSet) -> Agreement:
    """Run reference, trial session and exported file on the first samples."""
    with tempfile.TemporaryDirectory(prefix="tearline-") as folder:
        reference = open_session(
            graph.save_model(request.pair.reference.ir.clone(), Path(folder), name="a.onnx")
        )
        simulated = graph.save_model(simulate(request.pair, request.plan), Path(folder))
        trial = open_session(simulated, is_simulated=True)
        file = open_session(path, is_plain=True)
        rows = [_row(samples[i].feeds, reference, trial, file) for i in range(min(SAMPLES, len(samples)))]
    names = rows[0][0] if rows else {}
    return Agreement(
        is_identical=all(np.array_equal(t[n], f[n], equal_nan=True) for _, t, f in rows for n in names),
        file_db=min((_pooled_db((r[n], f[n]) for r, _, f in rows) for n in names), default=np.inf),
        trial_db=min((_pooled_db((r[n], t[n]) for r, t, _ in rows) for n in names), default=np.inf),
    )


def _row(
    feeds: Mapping[str, Array], reference: Runner, trial: Runner, file: Runner
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
    return reference.run(feeds), trial.run(feeds), file.run(feeds)


def _pooled_db(pairs: Iterator[tuple[Array, Array]]) -> float:
    energy = noise = 0.0
    for reference, other in pairs:
        signal, value = reference.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(signal)
        energy += float(np.square(signal[finite]).sum())
        noise += float(np.square(signal - value)[finite].sum())
    if noise == 0:
        return float("inf")
    return 10 * float(np.log10(energy / noise)) if energy > 0 and np.isfinite(noise) else float("-inf")
