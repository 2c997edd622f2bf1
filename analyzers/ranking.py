"""Order layers by what each alone does to the output: proposals for the search, never claims.

Measured on one model with switches, so a layer costs two runs of one sample and no session: once with only
this layer in INT8, once with only this layer lifted out of the candidate. Noise adds up well in the first
direction; in the second it drowns where the candidate is bad, so that one is the cross-check and counts half.

What counts as noise is what the task would notice, where detections can be compared; else the noise of the
outputs, part by part. (Of a network that decodes its boxes itself the outputs' SQNR is blind to the 2 pixels
that cost 4 points of AP.)
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from math import isnan
from pathlib import Path

import numpy as np

from analyzers import opening, shards
from analyzers.bench import Bench, Side, metric_of, spread
from analyzers.graph import save_model
from analyzers.project import Pair
from analyzers.records import Array, Ranking, Rule
from analyzers.steps import Step, Steps
from analyzers.switches import Switched, mask_of, switch_layers

# In the order in which they are tried.
DETECTIONS = "agreement"
OUTPUTS = "slice-sqnr"
_SEEN_FOR_CHOICE = 8
# A part whose noise is this many times its signal is dead; being more dead is not more of a loss.
_DEAD = 10.0
# The order of the best layers is looked at again on further samples; that of the others hardly matters.
_LOOKED_AT_AGAIN = 32
_IMAGES_PER_RUN = 2  # both sides of every layer are computed
_LIFT_WEIGHT = 0.5

Job = tuple[int, frozenset[str]]


class SwitchedRunner:
    """Runs plans in float32 on one model with switches; the model's file belongs to the caller's folder.

    Attributes:
        images: Samples that were run through a full graph so far.
    """

    def __init__(
        self, pair: Pair, layers: Sequence[str], bench: Bench, executor: Executor, folder: Path, *, rule: Rule
    ) -> None:
        self.images = 0
        self._bench = bench
        self._executor = executor
        self._switched: Switched = switch_layers(pair, layers, rule=rule)
        self._path = save_model(self._switched.model, folder, name="switches.onnx")

    def observe(self, jobs: Sequence[Job]) -> Steps[list[Array]]:
        """Run plans, each on one sample, and return what the bench's metric keeps; steps count the runs."""
        masks = [(index, mask_of(self._switched.layers, fallback)) for index, fallback in jobs]
        futures = [
            self._executor.submit(
                shards.observe_masks, self._bench, self._path, self._switched.mask, masks[start:stop]
            )
            for start, stop in shards.cut(len(masks))
        ]
        observations: list[Array] = []
        try:
            for future in futures:
                observations += future.result()
                yield Step("rank", done=len(observations), total=len(jobs))
        finally:
            for future in futures:
                future.cancel()
        self.images += _IMAGES_PER_RUN * len(jobs)
        return observations


def rank_layers(
    pair: Pair,
    bench: Bench,
    free: Sequence[str],
    indices: Sequence[int],
    *,
    executor: Executor,
    folder: Path,
    rule: Rule,
    chosen: int,
    affordable: float = float("inf"),
) -> Steps[Ranking]:
    """Rank the layers that may join a fallback set.

    Args:
        pair: The models.
        bench: Samples, task and reference; its metric plays no part.
        free: The layers, topological.
        indices: The samples of the full set.
        executor: Runs the models.
        folder: For the model with switches.
        rule: Storage rule; "nodes-to-exclude" is ranked as "per-edge", which is close enough for an order.
        chosen: Samples to measure on, one to four; the first is used for all layers.
        affordable: Full-set equivalents that may be spent; topological order if they do not suffice.
    """
    if not free or _IMAGES_PER_RUN * len(free) / len(indices) > affordable:
        return Ranking(tuple(free), (0.0,) * len(free), 0.0)
    bench, samples, seen = _what_to_look_at(bench, indices, chosen, executor)
    eligible = [la.name for la in pair.pairing.layers if la.is_quantized and not la.is_pass_through]
    runner = SwitchedRunner(
        pair, eligible, bench, executor, folder, rule="hybrid" if rule == "hybrid" else "per-edge"
    )
    everything = frozenset(eligible)

    def noises(jobs: Sequence[Job]) -> Steps[list[float]]:
        observations = yield from runner.observe(jobs)
        return [_noise(bench, row) for row in observations]

    alone = yield from noises([(samples[0], everything - {layer}) for layer in free])
    gains = np.array(_shares(alone))
    best = np.argsort(-gains, kind="stable")[:_LOOKED_AT_AGAIN]
    again = _IMAGES_PER_RUN * (len(best) + 1) / len(indices)
    if runner.images / len(indices) + again <= affordable:
        lifts = [frozenset[str](), *(frozenset({free[place]}) for place in best)]
        lifted = yield from noises([(samples[0], lift) for lift in lifts])
        relief = np.maximum(0.0, lifted[0] - np.array(lifted[1:])) / max(lifted[0], 1e-30)
        gains[best] = np.maximum(gains[best], _LIFT_WEIGHT * relief)
    for index in samples[1:]:
        if runner.images / len(indices) + again > affordable:
            break
        more = yield from noises([(index, everything - {free[place]}) for place in best])
        # Their shares of the noise that they make together, beside the first sample's shares.
        gains[best] += gains[best].sum() * np.array(_shares(more))
    order = np.argsort(-gains, kind="stable")
    total = float(gains.sum())
    return Ranking(
        layers=tuple(free[place] for place in order),
        gains=tuple(float(gains[place] / total) if total else 0.0 for place in order),
        evaluations=(runner.images + seen) / len(indices),
    )


def _what_to_look_at(
    bench: Bench, indices: Sequence[int], chosen: int, executor: Executor
) -> tuple[Bench, tuple[int, ...], int]:
    """Choose metric and samples: those on which the reference detects most, if it detects anything.

    Returns:
        The bench to measure on, the samples, and how many were run to find them.
    """
    spread_out = tuple(indices[place] for place in spread(len(indices), max(chosen, _SEEN_FOR_CHOICE)))
    task = opening.open_task(bench.inputs)
    if task is not None and task.decoder is not None:
        detecting = replace(bench, metric=DETECTIONS)
        observed = executor.submit(
            shards.observe, detecting, Side(bench.inputs.reference), spread_out
        ).result()
        found = [metric_of(detecting).score([""], [row]).details.get("weight", 0.0) for row in observed]
        busiest = sorted(range(len(spread_out)), key=lambda place: -found[place])[:chosen]
        if all(found[place] > 0 for place in busiest):
            return detecting, tuple(spread_out[place] for place in busiest), len(spread_out)
    few = tuple(indices[place] for place in spread(len(indices), chosen))
    return replace(bench, metric=OUTPUTS), few, 0


def _noise(bench: Bench, observation: Array) -> float:
    """Return how much one run differs from the reference, as a power: independent causes add up."""
    score = metric_of(bench).score([""], [observation])
    if score.metric == DETECTIONS:
        return (1.0 - score.value) ** 2
    parts = score.details.values()
    return float(sum(min(_DEAD, 10 ** (-db / 10)) for db in parts if not isnan(db)))


def _shares(noises: Sequence[float]) -> list[float]:
    total = sum(noises)
    return [noise / total if total > 0 else 0.0 for noise in noises]
