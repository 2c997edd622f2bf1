"""What a search may claim: the result, its proofs and its notices, from the books of the trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

from analyzers.cost import Price
from analyzers.fallback.constraints import Bounds
from analyzers.fallback.front import front_of, knee_of, point_of
from analyzers.fallback.islands import islands_of
from analyzers.fallback.ledger import Ledger
from analyzers.records import Fidelity, Layer, Mode, Notice, Precision, Rule, SearchResult, Trial


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known before the search starts, and stands in its result.

    Attributes:
        reference_score: Score of the reference on the full set.
        floor: A reference below it scores nothing; None where the metric has no such level.
        fidelity: Simulated against given candidate.
        spent: Full-set equivalents that were used to get here.
        samples: Samples of the full set.
        metric: Name of the score.
        unit: Its unit.
        mode: Session mode that scores the trials.
        rule: Storage rule of every plan.
        precision: Fallback precision.
        warnings: Notices so far.
        target_profile: Name of the target that costs are of.
    """

    reference_score: float
    floor: float | None
    fidelity: Fidelity
    spent: float
    samples: int
    metric: str
    unit: str = ""
    mode: Mode = "as-executed"
    rule: Rule = "per-edge"
    precision: Precision = "fp16"
    warnings: tuple[Notice, ...] = ()
    target_profile: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the search ended: the set, why it is this one, and what was learnt on the way."""

    fallback: tuple[str, ...]
    reason: str
    ranking: tuple[str, ...] = ()
    all_fallback_score: float = nan
    warnings: tuple[Notice, ...] = ()
    closed_gaps: tuple[str, ...] = ()


def result_of(
    layers: Sequence[Layer], ledger: Ledger, bounds: Bounds, setting: Setting, ending: Ending, price: Price
) -> SearchResult:
    """Return the result; every claim in it is backed by a trial."""
    own = ledger.known(ending.fallback)
    front = front_of(ledger.trials)
    cheapest = _cheapest(ledger, bounds)
    reached = own is not None and ledger.passes(own)
    candidate = ledger.known(())
    members = frozenset(ending.fallback)
    proofs = [proof_of(ledger, ending.fallback, m) for m in ending.fallback if m not in bounds.forced]
    return SearchResult(
        reached=reached,
        target=ledger.target,
        score=own.score if own is not None else nan,
        reference_score=setting.reference_score,
        candidate_score=candidate.score if candidate is not None else setting.fidelity.given_score,
        all_fallback_score=ending.all_fallback_score,
        fallback=ending.fallback,
        fallback_nodes=tuple(node for layer in layers if layer.name in members for node in layer.nodes),
        minimal=reached and None not in proofs,
        proof=tuple(trial for trial in proofs if trial is not None),
        rule=setting.rule,
        precision=setting.precision,
        mode=setting.mode,
        metric=setting.metric,
        unit=setting.unit,
        front=front,
        trials=tuple(ledger.trials),
        evaluations=ledger.spent,
        fidelity=setting.fidelity,
        ranking=ending.ranking,
        reason=ending.reason,
        samples=setting.samples,
        warnings=(
            *setting.warnings,
            *ending.warnings,
            *_non_monotone(ledger),
            *(_not_proven(ledger, bounds, ending.fallback) if reached else ()),
        ),
        islands=islands_of(layers, members),
        plan_cost=price(members),
        knee=knee_of(front),
        cheapest=None if cheapest is None else point_of(cheapest),
        closed_gaps=ending.closed_gaps,
        target_profile=setting.target_profile,
    )


def _cheapest(ledger: Ledger, bounds: Bounds) -> Trial | None:
    """Return the cheapest trial within the bounds that reaches the target, the smaller of equals."""
    reaching = [
        trial
        for trial in ledger.trials
        if ledger.passes(trial)
        and len(trial.fallback) <= bounds.max_layers
        and set(bounds.forced) <= set(trial.fallback)
    ]
    return min(reaching, key=lambda t: (t.cost, t.layers, -t.score), default=None)


def unproven(ledger: Ledger, bounds: Bounds, fallback: Sequence[str]) -> tuple[str, ...]:
    """Return the members, forced ones aside, without a trial that shows that they are needed."""
    return tuple(m for m in fallback if m not in bounds.forced and proof_of(ledger, fallback, m) is None)


def proof_of(ledger: Ledger, fallback: Sequence[str], member: str) -> Trial | None:
    """Return the trial of the set without this member if there is one and it missed the target."""
    trial = ledger.known(layer for layer in fallback if layer != member)
    return trial if trial is not None and not ledger.passes(trial) else None


def _not_proven(ledger: Ledger, bounds: Bounds, fallback: Sequence[str]) -> tuple[Notice, ...]:
    text = "Not proven to be needed: no trial without this layer missed the target"
    return tuple(Notice("member_not_proven", text, member) for member in unproven(ledger, bounds, fallback))


def _non_monotone(ledger: Ledger) -> tuple[Notice, ...]:
    drop = ledger.drop_from_smaller_to_larger()
    if drop is None:
        return ()
    small, large = drop
    text = (
        f"Errors cancel, or the score is noisy: {len(small.fallback)} layers score {small.score:.4g}, "
        f"{len(large.fallback)} layers that include them {large.score:.4g}"
    )
    return (Notice("non_monotone", text, ", ".join(small.fallback)),)
