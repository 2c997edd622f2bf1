"""Models, plans and a search's answer for the tests of exporters."""

from __future__ import annotations

from pathlib import Path

import onnx

from analyzers.cost import make_price, rates_of, with_cost
from analyzers.fallback.front import front_of
from analyzers.fallback.islands import islands_of
from analyzers.project import Pair, open_models
from analyzers.records import (
    Array,
    Fidelity,
    Inputs,
    Notice,
    Plan,
    Sample,
    SearchOptions,
    SearchResult,
    Trial,
)
from analyzers.search_file import Provenance, SearchFile
from analyzers.target_profiles import read_profile
from analyzers.workload import workload_of
from tests.networks import NETWORKS, build, quantized, samples

FORMS = ("QDQ", "QOperator")


def make_pair(name: str, folder: Path, form: str = "QDQ") -> Pair:
    return open_models(*quantized(build(*NETWORKS[name]), folder, form=form))


def members(pair: Pair) -> list[str]:
    return [layer.name for layer in pair.pairing.layers if not layer.is_pass_through]


def plan_shapes(pair: Pair) -> list[frozenset[str]]:
    """No layer, each one alone (also between INT8 neighbours), both halves, every other one, all."""
    names = members(pair)
    half = len(names) // 2
    sets = [[], *([name] for name in names), names[:half], names[half:], names[::2], names]
    return [frozenset(names) for names in sets]


def feed(pair: Pair, seed: int = 5) -> dict[str, Array]:
    return samples(onnx.load(pair.reference.path), 1, seed=seed)[0]


class Samples:
    """A sample set of seeded inputs."""

    def __init__(self, pair: Pair, count: int = 2) -> None:
        self._feeds = samples(onnx.load(pair.reference.path), count, seed=5)
        self.names = tuple(f"s{i:03d}" for i in range(count))
        self.digest = f"seeded {count}"

    def __len__(self) -> int:
        return len(self._feeds)

    def __getitem__(self, index: int) -> Sample:
        return Sample(self.names[index], self._feeds[index])


def searched(pair: Pair, plan: Plan, **changes: object) -> SearchFile:
    """Return a search whose answer is the plan; each member is needed."""
    order = [name for name in members(pair) if name in plan.fallback]
    proof = tuple(
        Trial(tuple(n for n in order if n != name), 0.30, 128, 1.5, stage="prune") for name in order
    )
    own = Trial(tuple(order), 0.3312, 128, 1.5, stage="gallop")
    trials = tuple({t.fallback: t for t in (Trial((), 0.139, 128, 2.0, "candidate"), own, *proof)}.values())
    layers = pair.pairing.layers
    nodes = {layer.name: layer.nodes for layer in layers}
    rates, _ = rates_of(read_profile("generic"), plan.precision)
    work = workload_of(pair.reference.ir, layers)
    price = make_price(layers, work, rates, precision=plan.precision, rule=plan.rule)
    trials = tuple(with_cost(trial, price(frozenset(trial.fallback))) for trial in trials)
    proof = tuple(with_cost(trial, price(frozenset(trial.fallback))) for trial in proof)
    front = front_of(trials[:2])
    values: dict[str, object] = {
        "reached": True,
        "target": 0.326,
        "score": 0.3312,
        "reference_score": 0.341,
        "candidate_score": 0.139,
        "all_fallback_score": 0.3395,
        "fallback": tuple(order),
        "fallback_nodes": tuple(node for name in order for node in nodes[name]),
        "minimal": True,
        "proof": proof,
        "rule": plan.rule,
        "precision": plan.precision,
        "mode": "as-executed",
        "metric": "ap",
        "unit": "",
        "front": front,
        "trials": trials,
        "evaluations": 7.25,
        "fidelity": Fidelity(0.139, 0.1385, 0.0005, 0.3312),
        "ranking": tuple(members(pair)),
        "reason": f"Reached with {len(order)} layers",
        "samples": 128,
        "warnings": (Notice("unpaired_layer", "A layer has no twin", "pool"),),
        "islands": islands_of(layers, plan.fallback),
        "plan_cost": price(plan.fallback),
        "knee": front[-1],
        "cheapest": front[-1],
        "target_profile": "generic",
    }
    result = SearchResult(**(values | changes))  # type: ignore[arg-type]
    inputs = Inputs(
        reference=pair.reference.path,
        candidate=pair.candidate.path,
        data=Path("photos"),
        task=Path("task.yaml"),
        annotations=Path("ground truth.json"),
    )
    provenance = Provenance("0.1.0", pair.reference.digest, pair.candidate.digest)
    return SearchFile(result, inputs, SearchOptions(max_drop=0.015, keep_int8=("conv1*",)), provenance)
