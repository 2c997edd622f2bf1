"""An Add of inputs so different that one is starved by a shared scale, or lost in the sum's step."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from analyzers.evidence import Evidence, Store
from analyzers.graph import is_constant, node_name
from analyzers.records import Fact
from analyzers.store_families import heads
from analyzers.store_ranges import (
    Range,
    range_repairs,
    seen_range,
    step_of,
    stored_before,
)
from analyzers.suspicions import Detector, Source, Suspicion

# Inputs that differ by this factor lose four bits where they share a scale (threshold of Model Compression
# Toolkit).
WIDE = 16.0
# Fewer levels than this are less than four bits.
FEW_LEVELS = 16.0
SAME_SCALE = 0.01
_SUMS = frozenset({"Add", "Sub", "Sum"})


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect sums whose smaller input is starved at the input, or vanishes in the output's step."""
    for node in evidence.pair.reference.ir.graph:
        inputs = _inputs(evidence, node) if node.op_type in _SUMS else {}
        if len(inputs) < 2:
            continue
        small = min(inputs, key=lambda name: inputs[name].span)
        large = max(inputs, key=lambda name: inputs[name].span)
        if inputs[large].span < WIDE * inputs[small].span:
            continue
        stores = {name: _store(evidence, name) for name in (small, large)}
        output = evidence.stores.get(node.outputs[0].name or "")
        if _is_forced(stores[small], stores[large], inputs[small]):
            yield _forced(evidence, node, inputs, small, large, output)
        elif output is not None and _is_lost(inputs[small], output):
            yield _lost(evidence, node, inputs, small, large, output)


def _inputs(evidence: Evidence, node: ir.Node) -> dict[str, Range]:
    """Return the ranges of the inputs that are computed and not zero."""
    found: dict[str, Range] = {}
    for value in node.inputs:
        seen = None if value is None or is_constant(value) else seen_range(evidence, value.name or "")
        if value is not None and seen is not None and seen.span > 0:
            found[value.name or ""] = seen
    return found


def _store(evidence: Evidence, name: str) -> Store | None:
    tensor = name if name in evidence.stores else stored_before(evidence, name)
    return None if tensor is None else evidence.stores[heads(evidence)[tensor]]


def _is_forced(small: Store | None, large: Store | None, seen: Range) -> bool:
    if small is None or large is None or small is large:
        return False
    own, other = step_of(small.quantization), step_of(large.quantization)
    if own is None or other is None or abs(own - other) > SAME_SCALE * other:
        return False
    return seen.span / own < FEW_LEVELS


def _is_lost(seen: Range, output: Store) -> bool:
    step = step_of(output.quantization)
    return step is not None and max(abs(seen.low), abs(seen.high)) < step / 2


def _forced(
    evidence: Evidence, node: ir.Node, inputs: dict[str, Range], small: str, large: str, output: Store | None
) -> Suspicion:
    store = _store(evidence, small)
    assert store is not None
    step = step_of(store.quantization) or 1.0
    both = [store] if output is None else [store, output]
    return Suspicion(
        cause="concat_shared_scale",
        layers=(node_name(node),),
        sources=tuple(Source("store", s.tensor) for s in both),
        message=(
            f"'{node_name(node)}' adds '{large}' ({inputs[large].words()}) and '{small}' "
            f"({inputs[small].words()}) that were given one scale of {step:.4g}: '{small}' is left "
            f"{inputs[small].span / step:.1f} levels"
        ),
        evidence=_facts(inputs, small, large) | {"scale": step},
        fix=f"Give '{small}' a scale of its own: an Add can rescale its inputs",
        specificity=70,
        repairs=range_repairs(evidence, store),
    )


def _lost(
    evidence: Evidence, node: ir.Node, inputs: dict[str, Range], small: str, large: str, output: Store
) -> Suspicion:
    step = step_of(output.quantization) or 1.0
    return Suspicion(
        cause="concat_shared_scale",
        layers=(node_name(node),),
        sources=(Source("store", output.tensor),),
        message=(
            f"'{node_name(node)}' adds '{small}' ({inputs[small].words()}) to '{large}' "
            f"({inputs[large].words()}): all of it is under half a step ({step / 2:.4g}) of the sum and lost"
        ),
        evidence=_facts(inputs, small, large) | {"half_step": step / 2},
        fix="Store the sum in 16 bits or in float, or bring its inputs to like ranges",
        specificity=48,
        repairs=tuple(reversed(range_repairs(evidence, output))),
    )


def _facts(inputs: dict[str, Range], small: str, large: str) -> dict[str, Fact]:
    return {
        "small": small,
        "large": large,
        "small_range": (inputs[small].low, inputs[small].high),
        "large_range": (inputs[large].low, inputs[large].high),
        "range_ratio": inputs[large].span / inputs[small].span,
    }


ENTRY = Detector(
    name="unequal_requantization",
    looks_at="the ranges of what is added, against the scales of the inputs and the step of the sum",
    causes=("concat_shared_scale",),
    find=find,
)
