"""An operator that the candidate computes in another way, does not compute, or computes in addition."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from analyzers.evidence import Evidence
from analyzers.graph import node_name
from analyzers.layer_parts import name_of
from analyzers.likeness import same_kind
from analyzers.operator_faults import OperatorFault, changed_twins, operator_faults
from analyzers.records import Fact
from analyzers.suspicions import Detector, Suspicion

EXCHANGED = 72  # read off the two files
ADDED = 58
UNEXPLAINED = 35  # only the numbers say so


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect layers whose operators differ, and say how as far as the graphs show it."""
    for fault in operator_faults(evidence):
        changed = [(a, b) for a, b in changed_twins(fault) if not same_kind(a.op_type, b.op_type)]
        lost = [n for n in fault.parts.lost if n in evidence.pair.paired.matches.lost]
        if changed:
            yield _exchanged(fault, changed)
        elif lost:
            yield _lost(fault, lost)
        elif fault.parts.added:
            yield _added(fault)
        else:
            yield _unexplained(fault)


def _exchanged(fault: OperatorFault, changed: list[tuple[ir.Node, ir.Node]]) -> Suspicion:
    ours, theirs = changed[0]
    return _suspicion(
        fault,
        tuple(node_name(a) for a, _ in changed),
        f"'{node_name(ours)}' computes {ours.op_type} in the reference and {theirs.op_type} in the "
        f"candidate; {fault.numbers}. This is a fault of the conversion, not a loss by quantization",
        {"reference_operator": ours.op_type, "candidate_operator": theirs.op_type},
        f"Correct the conversion of {ours.op_type}, or write it in operators that the converter knows",
        EXCHANGED,
    )


def _lost(fault: OperatorFault, lost: list[ir.Node]) -> Suspicion:
    names = tuple(node_name(n) for n in lost)
    return _suspicion(
        fault,
        names,
        f"The candidate has nothing that computes {', '.join(name_of(n) for n in lost)}: what reads its "
        f"result reads its input instead; {fault.numbers}. This is a fault of the conversion",
        {"lost_operators": tuple(n.op_type for n in lost)},
        "Convert again and keep the operator; look at the converter's fusions",
        EXCHANGED,
    )


def _added(fault: OperatorFault) -> Suspicion:
    added = fault.parts.added
    return _suspicion(
        fault,
        (fault.layer,),
        f"In '{fault.layer}' the candidate computes {', '.join(name_of(n) for n in added)} besides what the "
        f"reference does; {fault.numbers}. This is a fault of the conversion",
        {"added_operators": tuple(n.op_type for n in added)},
        "Convert again without the additional operators; look at the converter's fusions",
        ADDED,
    )


def _unexplained(fault: OperatorFault) -> Suspicion:
    return _suspicion(
        fault,
        (fault.layer,),
        f"The operators of '{fault.layer}' look alike on both sides, but {fault.numbers}",
        {},
        "Compare the layer's operators, their inputs and their order in both files; convert it again",
        UNEXPLAINED,
    )


def _suspicion(
    fault: OperatorFault,
    layers: tuple[str, ...],
    message: str,
    facts: dict[str, Fact],
    fix: str,
    specificity: int,
) -> Suspicion:
    return Suspicion(
        cause="operator_changed",
        layers=layers,
        sources=fault.sources,
        message=message,
        evidence={
            "tensor": fault.tensor,
            "operator_sqnr_db": fault.operator_db,
            "isolated_sqnr_db": fault.isolated_db,
            **facts,
        },
        fix=fix,
        specificity=specificity,
        is_fault=True,
    )


ENTRY = Detector(
    name="operator_changed",
    looks_at="each layer's operators, fed with the reference's values and constants, with nothing quantized",
    causes=("operator_changed",),
    find=find,
)
