"""Activations with a small negative lobe, as one operator or written out."""

from __future__ import annotations

import onnx_ir as ir

from analyzers.evidence import Evidence, Store
from analyzers.graph import node_name

# Bounded below by a small value while they grow without bounds above.
LOBED = frozenset({"HardSwish", "Swish", "Gelu", "FastGelu", "QuickGelu", "Mish", "Elu", "Celu", "Selu"})
# These scale the negative side down.
LEAKY = frozenset({"LeakyRelu", "PRelu"})
_CURVES = frozenset({"Sigmoid", "HardSigmoid", "Erf", "Tanh", "Softplus"})


def nodes_of(evidence: Evidence, layer: str) -> tuple[ir.Node, ...]:
    """Return the reference nodes of a layer."""
    names = set(evidence.layers[layer].nodes)
    return tuple(n for n in evidence.pair.reference.ir.graph if node_name(n) in names)


def is_written_out(evidence: Evidence, layer: str) -> bool:
    """Tell whether the layer holds an activation ``x * curve(x)`` of several operators."""
    types = [node.op_type for node in nodes_of(evidence, layer)]
    return "Mul" in types and any(t in _CURVES for t in types)


def lobe_of(evidence: Evidence, store: Store) -> str:
    """Return what makes a stored tensor an activation with a negative lobe; "" if it is none."""
    operator, layer = evidence.operators.get(store.node), evidence.layers.get(store.layer)
    if operator is None or layer is None:
        return ""
    if operator.op_type in LOBED | LEAKY:
        return operator.op_type
    if operator.op_type == "Mul" and store.tensor in layer.outputs and is_written_out(evidence, store.layer):
        curve = next(n.op_type for n in nodes_of(evidence, store.layer) if n.op_type in _CURVES)
        return {"Sigmoid": "SiLU", "HardSigmoid": "HardSwish", "Softplus": "Mish", "Tanh": "GELU"}.get(
            curve, "GELU"
        )
    return ""


def inner_stores(evidence: Evidence, layer: str) -> tuple[Store, ...]:
    """Return the stores of tensors inside a layer, which nobody outside of it reads."""
    outputs = set(evidence.layers[layer].outputs)
    return tuple(s for s in evidence.stores.values() if s.layer == layer and s.tensor not in outputs)
