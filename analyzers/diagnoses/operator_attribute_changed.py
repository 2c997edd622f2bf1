"""An operator that is told something else: another axis, other pads, another way to map coordinates."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from analyzers.attributes import Setting, differing, settings
from analyzers.consequences import consequences
from analyzers.evidence import Evidence
from analyzers.graph import constant_array, node_name
from analyzers.operator_faults import OperatorFault, operator_faults
from analyzers.suspicions import Detector, Source, Suspicion

_SAME_FACTOR = 0.02


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect operators of the same type with other settings, where that changes what they compute."""
    opset = int(evidence.pair.reference.ir.graph.opset_imports.get("", 13))
    for fault in operator_faults(evidence):
        for node, twin in fault.parts.twins.items():
            if node.op_type == twin.op_type:
                yield from _judge(fault, node, twin, opset)
    yield from _factors(evidence, opset)


def _factors(evidence: Evidence, opset: int) -> Iterator[Suspicion]:
    """Suspect Gemms whose factor changed while their weights did not: the product is off by as much."""
    twins = {node_name(node): (node, twin) for node, twin in evidence.pair.paired.matches.nodes.items()}
    for constant in evidence.constants:
        node, twin = twins.get(constant.node, (None, None))
        if constant.role != "weight" or node is None or twin is None or node.op_type != twin.op_type:
            continue
        ours, theirs = (settings(n, constant_array, opset).get("alpha") for n in (node, twin))
        if node.op_type != "Gemm" or not isinstance(ours, float) or not isinstance(theirs, float):
            continue
        energy = float(np.square(constant.reference).sum())
        gain = float((constant.reference * constant.candidate).sum()) / energy if energy > 0 else 1.0
        if ours == 0 or abs(theirs / ours - 1) < _SAME_FACTOR or abs(gain * ours / theirs - 1) > _SAME_FACTOR:
            continue
        misled = consequences(evidence, node.outputs[0].name or "")
        yield Suspicion(
            cause="operator_attribute_changed",
            layers=(constant.node,),
            sources=(Source("layer", constant.layer), *(Source("store", t) for t in misled)),
            message=(
                f"Gemm '{constant.node}' has another factor in the candidate: alpha {ours:g} became "
                f"{theirs:g}, and its weights do not make up for it. This is a fault of the conversion"
            ),
            evidence={"attributes": ("alpha",), "reference_value": ours, "candidate_value": theirs},
            fix="Set alpha as in the reference, or scale the weights by the same factor",
            specificity=92,
            is_fault=True,
        )


def _judge(fault: OperatorFault, node: ir.Node, twin: ir.Node, opset: int) -> Iterator[Suspicion]:
    ours, theirs = (settings(n, constant_array, opset) for n in (node, twin))
    names = differing(ours, theirs)
    if not names:
        return
    words = ", ".join(f"{name} {_words(ours[name])} became {_words(theirs[name])}" for name in names)
    name = node_name(node)
    yield Suspicion(
        cause="operator_attribute_changed",
        layers=(name,),
        sources=fault.sources,
        message=(
            f"{node.op_type} '{name}' has other attributes in the candidate: {words}; {fault.numbers}. "
            "This is a fault of the conversion, not a loss by quantization"
        ),
        evidence={
            "tensor": fault.tensor,
            "attributes": names,
            "reference_values": tuple(_words(ours[n]) for n in names),
            "candidate_values": tuple(_words(theirs[n]) for n in names),
            "operator_sqnr_db": fault.operator_db,
            "isolated_sqnr_db": fault.isolated_db,
        },
        fix=(
            f"Set {', '.join(names)} as in the reference. Where the device cannot, change it in the "
            "reference and train or evaluate with that"
        ),
        specificity=74,
        is_fault=True,
    )


def _words(value: Setting) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


ENTRY = Detector(
    name="operator_attribute_changed",
    looks_at="attributes of matched operators (axes, pads, strides, coordinates ...), defaults filled in",
    causes=("operator_attribute_changed",),
    find=find,
)
