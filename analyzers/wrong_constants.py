"""Which constants are wrong: beyond honest rounding, and not made up for by a neighbour."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from analyzers.channel_maps import compensated
from analyzers.consequences import consequences
from analyzers.constant_errors import Misfit, misfits
from analyzers.evidence import ConstantPair, Evidence
from analyzers.store_ranges import range_repairs
from analyzers.suspicions import Change, Repair, Source, SourceKind
from analyzers.weight_forms import like

MOST_NAMED = 16  # channels that a finding lists
_FEW_NODES = 8  # with more wrong nodes there is no telling whose values a range was measured on


def wrong(evidence: Evidence, role: str = "") -> list[Misfit]:
    """Return the weights and biases that are wrong, in topological order."""
    excused = {
        id(constant) for change in compensated(evidence) for constant in (*change.maker, *change.readers)
    }
    return [
        m
        for m in misfits(evidence)
        if m.is_beyond and role in ("", m.constant.role) and id(m.constant) not in excused
    ]


def sources_of(evidence: Evidence, node: str) -> tuple[Source, ...]:
    """Return what to lift for a node whose constants are wrong.

    Stores behind it whose ranges were measured on what it makes are lifted with it.
    """
    own = sources([m.constant for m in wrong(evidence) if m.constant.node == node])
    return (*own, *(Source("store", tensor) for tensor in misled(evidence, node)))


def misled(evidence: Evidence, node: str) -> tuple[str, ...]:
    """Return the stored tensors whose ranges fit a wrong node and not the reference."""
    nodes = dict.fromkeys(m.constant.node for m in wrong(evidence))
    operator = evidence.operators.get(node)
    if node not in nodes or len(nodes) > _FEW_NODES or operator is None or not operator.outputs:
        return ()
    return _misled(evidence, operator.outputs[0])


@lru_cache(maxsize=_FEW_NODES)
def _misled(evidence: Evidence, tensor: str) -> tuple[str, ...]:
    return consequences(evidence, tensor, with_itself=True)


def quantized_anew(evidence: Evidence, constant: ConstantPair) -> tuple[Repair, ...]:
    """Return the repair that quantizes the reference's own values as the candidate's were meant to be.

    Ranges that the wrong values misled are measured anew.
    """
    form = like(constant)
    if form is None:
        return ()
    changes = [Change(Source("weight", constant.node), quantization=form)]
    how = f"'{constant.node}' with the reference's weights, quantized anew"
    tensors = misled(evidence, constant.node)
    for tensor in tensors:
        repairs = range_repairs(evidence, evidence.stores[tensor])
        changes += repairs[0].changes if repairs else (Change(Source("store", tensor)),)
    biases = [m.constant for m in wrong(evidence, "bias") if m.constant.node == constant.node]
    changes += [Change(source) for source in sources(biases)]
    return (Repair(how + (", and ranges behind it measured anew" if tensors else ""), tuple(changes)),)


def sources(constants: Sequence[ConstantPair]) -> tuple[Source, ...]:
    """Return the sources of constants, weights first; for one that the candidate lacks, its layer."""
    found: dict[Source, None] = {}
    for constant in sorted(constants, key=lambda c: c.role != "weight"):
        kind: SourceKind = "weight" if constant.role == "weight" else "bias"
        found[Source(kind, constant.node) if constant.value else Source("layer", constant.layer)] = None
    return tuple(found)
