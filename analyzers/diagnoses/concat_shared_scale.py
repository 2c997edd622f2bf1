"""A Concat whose branches have different ranges and share one scale."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from analyzers.evidence import Evidence, Store
from analyzers.graph import node_name
from analyzers.records import Slice
from analyzers.store_families import heads
from analyzers.store_ranges import (
    Range,
    bits_of,
    culprit,
    producers_of,
    range_in,
    range_of,
    range_repairs,
    requantized,
    seen_range,
    step_of,
    stored_before,
)
from analyzers.suspicions import Change, Detector, Repair, Source, Suspicion

# Branches that differ by this factor lose four bits (the threshold of Model Compression Toolkit).
WIDE = 16.0
# Fewer levels than this are less than four bits; a 16-bit store has more even for a thousandth.
FEW_LEVELS = 16.0
# Two stores within this of each other share a scale.
SAME_SCALE = 0.01


@dataclass(frozen=True, slots=True)
class Branch:
    """A part of a stored tensor.

    Attributes:
        name: The tensor that fills it.
        range: Its values.
        levels: Levels of the shared scale that it spans.
    """

    name: str
    range: Range
    levels: float


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect stores of joined tensors in which a branch is starved, and inputs forced to such a scale."""
    joined: set[str] = set()
    for tensor, store in evidence.stores.items():
        step, branches = step_of(store.quantization), _branches(evidence, store)
        if step is None or len(branches) < 2:
            continue
        if joined & {b for b in (tensor, stored_before(evidence, tensor)) if b is not None}:
            joined.add(tensor)  # handed on by a pass-through operator: the same fault
            continue
        starved = starved_of(branches)
        if starved:
            joined.add(tensor)
            forced = [s for s in (_forced(evidence, b.name, step) for b in starved) if s is not None]
            yield _suspicion(evidence, store, _joint(evidence, store), branches, starved, forced)
    yield from _without_store(evidence)


def _branches(evidence: Evidence, store: Store) -> list[Branch]:
    measured = evidence.measured.get(store.tensor)
    step = step_of(store.quantization)
    if measured is None or step is None:
        return []
    found: list[Branch] = []
    part: Slice
    for part, moments in zip(measured.slices, measured.pooled.slices, strict=True):
        values = range_in(moments)
        if values is not None and values.span > 0:
            name = part.name or f"{part.start}:{part.stop}"
            found.append(Branch(name, values, values.span / step))
    return found


def starved_of(branches: list[Branch]) -> list[Branch]:
    """Return the branches that a wider one leaves too few levels."""
    widest = max(b.range.span for b in branches)
    return [b for b in branches if widest >= WIDE * b.range.span and b.levels < FEW_LEVELS]


def _forced(evidence: Evidence, branch: str, step: float) -> Store | None:
    """Return the store of a branch if it has the joint scale, which does not suit it."""
    tensor = branch if branch in evidence.stores else stored_before(evidence, branch)
    store = None if tensor is None else evidence.stores[heads(evidence)[tensor]]
    own = None if store is None else step_of(store.quantization)
    if store is None or own is None or abs(own - step) > SAME_SCALE * step:
        return None
    held, seen = range_of(store.quantization), seen_range(evidence, store.tensor)
    return store if held is not None and seen is not None and WIDE * seen.span <= held.span else None


def _joint(evidence: Evidence, store: Store) -> str:
    """Return what to blame: the Concat itself where only pass-through operators follow it."""
    producers = producers_of(evidence)
    node = producers.get(store.tensor)
    while node is not None and node.op_type != "Concat":
        operator = evidence.operators.get(node_name(node))
        layer = None if operator is None else evidence.layers.get(operator.layer)
        if layer is None or not layer.is_pass_through or node.inputs[0] is None:
            return culprit(evidence, store)
        node = producers.get(node.inputs[0].name or "")
    return culprit(evidence, store) if node is None else node_name(node)


def _without_store(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect Concats that are not stored themselves but whose inputs were given one scale."""
    for node in evidence.pair.reference.ir.graph:
        output = node.outputs[0].name or ""
        if node.op_type != "Concat" or output in evidence.stores:
            continue
        stores: list[Store] = []
        for value in node.inputs:
            name = "" if value is None else value.name or ""
            tensor = name if name in evidence.stores else stored_before(evidence, name)
            if tensor is not None:
                stores.append(evidence.stores[heads(evidence)[tensor]])
        branches = [b for b in (_own_branch(evidence, s) for s in stores) if b is not None]
        steps = [step_of(s.quantization) or 0.0 for s in stores]
        if len(branches) < 2 or max(steps) - min(steps) > SAME_SCALE * max(steps):
            continue
        starved = starved_of(branches)
        if starved:
            names = {b.name for b in starved}
            forced = [s for s in stores if s.tensor in names]
            yield _suspicion(evidence, None, node_name(node), branches, starved, forced)


def _own_branch(evidence: Evidence, store: Store) -> Branch | None:
    seen, step = seen_range(evidence, store.tensor), step_of(store.quantization)
    if seen is None or step is None or seen.span == 0:
        return None
    return Branch(store.tensor, seen, seen.span / step)


def _suspicion(
    evidence: Evidence,
    store: Store | None,
    blamed: str,
    branches: list[Branch],
    starved: list[Branch],
    forced: list[Store],
) -> Suspicion:
    stores = [*([] if store is None else [store]), *forced]
    step = step_of(stores[0].quantization) or 0.0
    widest = max(branches, key=lambda b: b.range.span)
    small = min(starved, key=lambda b: b.levels)
    is_erased = max(abs(small.range.low), abs(small.range.high)) < step / 2
    how = "is erased: all of it rounds to zero" if is_erased else f"is left {small.levels:.1f} levels"
    inputs = ""
    if forced:
        names = ", ".join(f"'{s.tensor}'" for s in forced)
        inputs = f". The inputs are forced to the same scale, so {names} is lost before it"
    return Suspicion(
        cause="concat_shared_scale",
        layers=(blamed,),
        sources=tuple(Source("store", s.tensor) for s in stores),
        message=(
            f"'{blamed}' joins '{widest.name}' ({widest.range.words()}) and '{small.name}' "
            f"({small.range.words()}) under one scale of {step:.4g}: '{small.name}' {how}{inputs}"
        ),
        evidence={
            "scale": step,
            "branches": tuple(b.name for b in branches),
            "branch_lows": tuple(b.range.low for b in branches),
            "branch_highs": tuple(b.range.high for b in branches),
            "branch_levels": tuple(b.levels for b in branches),
            "starved": tuple(b.name for b in starved),
            "range_ratio": widest.range.span / small.range.span,
            "erased": is_erased,
            "forced_inputs": tuple(s.tensor for s in forced),
        },
        fix=(
            f"Give each branch a scale of its own: split the outputs, bring '{widest.name}' to the range of "
            "the others (boxes to 0 .. 1), or keep the Concat and what it forces in float"
        ),
        specificity=74,
        is_fault=is_erased,
        repairs=_repairs(evidence, store, forced),
    )


def _repairs(evidence: Evidence, store: Store | None, forced: list[Store]) -> tuple[Repair, ...]:
    """Return own scales for the branches, and 16 bits for all."""
    own = [change for s in forced for change in range_repairs(evidence, s)[0].changes]
    repairs: list[Repair] = []
    joint = () if store is None else (Change(Source("store", store.tensor)),)
    if own:
        how = "each branch with a scale of its own, joined in float"
        repairs.append(Repair(how, (*joint, *own)))
    elif store is not None:
        repairs.append(
            Repair("branches kept apart (joined in float), each with the scale of its input", joint)
        )
    wide = []
    for s in [*([] if store is None else [store]), *forced]:
        seen = seen_range(evidence, s.tensor)
        anew = None if seen is None else requantized(s.quantization, seen, bits=16)
        if anew is not None and (bits_of(s.quantization) or 16) < 16:
            wide.append(Change(Source("store", s.tensor), quantization=anew))
    if wide:
        repairs.append(Repair("stored in 16 bits", tuple(wide)))
    return tuple(repairs)


ENTRY = Detector(
    name="concat_shared_scale",
    looks_at="the ranges of branches that share the scale of a Concat, at its output and at its inputs",
    causes=("concat_shared_scale",),
    find=find,
)
