"""What is wrong inside the bodies of If, Loop and Scan."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analyzers.body_diagnosis import GOOD_DB, Inside, diagnose_body, named_inside
from analyzers.body_runs import RecordedRuns, record_runs
from analyzers.errors import TearlineError
from analyzers.evidence import Evidence
from analyzers.records import Fact
from analyzers.subgraphs import Body, ClosedBody, find_bodies
from analyzers.suspicions import Detector, Source, Suspicion

# Below it, a node whose inside shows nothing, or cannot be looked into, is named itself.
HARM_DB = 20.0
# What was proved inside is closer to the cause than anything that the node shows from outside.
PROVED_INSIDE = 80
NOTHING_INSIDE = 30
_SHOWN = 6


@dataclass(frozen=True, slots=True, eq=False)
class _Opened:
    body: Body
    runs: RecordedRuns
    inside: Inside


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Diagnose each body that some of the looked-at samples run."""
    if evidence.samples is None:
        return
    found = list(find_bodies(evidence.pair))
    opened, closed = _open(evidence, [body for body in found if isinstance(body, Body)])
    closed += [body for body in found if isinstance(body, ClosedBody)]
    for layer in dict.fromkeys(body.layer for body in found):
        guilty = [o for o in opened if o.body.layer == layer and o.inside.blamed]
        if guilty:
            yield _proved(evidence, layer, guilty)
        elif _isolated_db(evidence, layer) < HARM_DB:
            own = [o for o in opened if o.body.layer == layer]
            yield _unexplained(evidence, layer, own, [body for body in closed if body.layer == layer])


def _open(evidence: Evidence, bodies: Sequence[Body]) -> tuple[list[_Opened], list[ClosedBody]]:
    """Diagnose the bodies that run; those that cannot be run by themselves stay closed."""
    assert evidence.samples is not None
    opened: list[_Opened] = []
    closed: list[ClosedBody] = []
    try:
        recorded = record_runs(evidence.pair, bodies, evidence.samples) if bodies else {}
    except TearlineError as cause:
        return [], [ClosedBody(body.path, body.layer, cause.message) for body in bodies]
    for body in bodies:
        runs = recorded[body.path]
        if not len(runs):
            closed.append(ClosedBody(body.path, body.layer, "none of the samples looked at runs it"))
            continue
        try:
            with tempfile.TemporaryDirectory(prefix="tearline-") as folder:
                opened.append(_Opened(body, runs, diagnose_body(body, runs, Path(folder))))
        except TearlineError as cause:
            closed.append(ClosedBody(body.path, body.layer, cause.message))
    return opened, closed


def _proved(evidence: Evidence, layer: str, guilty: Sequence[_Opened]) -> Suspicion:
    """Return all that was proved inside one node: it can be lifted only as a whole."""
    worst = min(guilty, key=lambda o: o.inside.base)
    chosen = worst.inside.blamed[0].chosen
    everything = [
        (o, blamed.chosen)
        for o in (worst, *(o for o in guilty if o is not worst))
        for blamed in o.inside.blamed
    ]
    names = [name for o, suspicion in everything for name in named_inside(o.body, suspicion)]
    return Suspicion(
        cause=chosen.cause,
        layers=tuple(dict.fromkeys(names)),
        sources=(Source("layer", layer),),
        message=" ".join(_words(o, [s for other, s in everything if other is o]) for o in guilty),
        evidence={**chosen.evidence, **_facts(evidence, layer, worst)},
        fix=chosen.fix,
        specificity=max(PROVED_INSIDE, chosen.specificity),
        is_fault=any(suspicion.is_fault for _, suspicion in everything),
    )


def _words(opened: _Opened, suspicions: Sequence[Suspicion]) -> str:
    body, runs, inside = opened.body, opened.runs, opened.inside
    found = "; ".join(s.message for s in suspicions)
    return (
        f"In the body '{body.path}', {_who(body, runs)}: {found}. The body by itself has "
        f"{inside.base:.1f} dB, repaired {inside.repaired:.1f} dB."
    )


def _who(body: Body, runs: RecordedRuns) -> str:
    count = len(runs.taken_by) + len(runs.passed_by)
    if body.node.op_type != "If":
        return f"which runs {runs.iterations} times on {count} samples"
    if not runs.passed_by:
        return f"which all {count} samples looked at take"
    more = f" and {len(runs.taken_by) - _SHOWN} more" if len(runs.taken_by) > _SHOWN else ""
    return f"which {len(runs.taken_by)} of {count} take ({', '.join(runs.taken_by[:_SHOWN])}{more})"


def _facts(evidence: Evidence, layer: str, opened: _Opened) -> dict[str, Fact]:
    runs, inside = opened.runs, opened.inside
    facts: dict[str, Fact] = {
        "body": opened.body.path,
        "body_sqnr_db": inside.base,
        "body_repaired_sqnr_db": inside.repaired,
        "runs_looked_at": len(runs),
    }
    if opened.body.node.op_type != "If":
        return {**facts, "iterations": runs.iterations}
    facts |= {"taken_by": runs.taken_by, "not_taken_by": runs.passed_by}
    for name, samples in (("sqnr_where_taken_db", runs.taken_by), ("sqnr_elsewhere_db", runs.passed_by)):
        value = _middle_db(evidence, layer, samples)
        if not math.isnan(value):
            facts[name] = value
    return facts


def _middle_db(evidence: Evidence, layer: str, samples: Sequence[str]) -> float:
    """Return the median SQNR of the layer's outputs on some samples, as the whole network computes them."""
    values = [
        float(value)
        for tensor in evidence.layers[layer].outputs
        if (measured := evidence.measured.get(tensor)) is not None
        for name, value in zip(measured.samples, measured.by_sample[1], strict=True)
        if name in samples and not math.isnan(value)
    ]
    return float(np.median(values)) if values else math.nan


def _isolated_db(evidence: Evidence, layer: str) -> float:
    """Return the lowest SQNR of the layer's outputs, fed with the reference's values; inf where unknown."""
    rows = [evidence.rows.get(tensor) for tensor in evidence.layers[layer].outputs]
    values = [row.isolated.sqnr_db for row in rows if row is not None and row.isolated is not None]
    return min((value for value in values if not math.isnan(value)), default=math.inf)


def _unexplained(
    evidence: Evidence, layer: str, opened: Sequence[_Opened], closed: Sequence[ClosedBody]
) -> Suspicion:
    """Name the node itself, unless each run of its bodies is fine and the many of them add up."""
    value = _isolated_db(evidence, layer)
    lowest = min((o.inside.base for o in opened), default=-math.inf)
    runs = max((o.runs.iterations / len(o.runs.taken_by) for o in opened), default=0.0)
    adds_up = lowest >= GOOD_DB and runs >= 2
    why = "; ".join(f"'{body.path}' was not looked into: {body.reason}" for body in closed)
    message = f"'{layer}' has {value:.1f} dB by itself, and nothing stands out in its bodies"
    if adds_up:
        message = (
            f"'{layer}' has {value:.1f} dB by itself, though a single iteration has {lowest:.1f} dB: "
            f"the errors of {runs:.0f} iterations add up"
        )
    return Suspicion(
        cause="cumulative_error",
        layers=() if adds_up else (layer,),
        sources=(Source("layer", layer),),
        message=message + (f" ({why})" if why else ""),
        evidence={
            "layer": layer,
            "isolated_sqnr_db": value,
            "body_sqnr_db": lowest,
            "bodies_not_looked_into": tuple(body.path for body in closed),
        },
        fix="16 bits for what the iterations hand on" if adds_up else "Keep this operator in float",
        specificity=NOTHING_INSIDE,
    )


ENTRY = Detector(
    name="bodies",
    looks_at="the bodies of If, Loop and Scan, run by themselves on what the reference gives them",
    causes=("cumulative_error",),  # and, from inside a body, those of all others
    find=find,
)
