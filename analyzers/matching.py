"""Match the computing nodes of the reference with those of the candidate, on evidence.

The walk follows the reference in topological order. A node is matched by name where name and operator agree
and the inputs do not contradict it, else among the candidate's nodes that read the same matched values with
the same operator; constants, settings and readers break ties. A reference node without a match whose
meaning the candidate has taken over (BatchNormalization folded into weights, an activation absorbed by the
saturation of a quantizer) passes its input's match on. What is left is matched from behind, and as regions
that compute one value from one other: operators that were exchanged, merged, split up or lost.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from analyzers.errors import PairingError
from analyzers.graph import is_float
from analyzers.likeness import COMMUTATIVE, same_kind, shape_of, shapes_fit
from analyzers.matches import Matches, State
from analyzers.skeleton import Skeleton
from analyzers.stand_ins import (
    by_output_name,
    by_region,
    claim,
    is_activation,
    note_change,
    pass_on,
    pass_over,
)
from analyzers.twins import agreement, find_twin


def match(
    reference: ir.Graph,
    ours: Skeleton,
    candidate: ir.Graph,
    theirs: Skeleton,
    *,
    known: Mapping[ir.Value, ir.Value] | None = None,
    given: Mapping[str, str] | None = None,
) -> Matches:
    """Match two graphs through their skeletons.

    Args:
        reference: The reference.
        ours: Its skeleton.
        candidate: The candidate in QDQ form.
        theirs: Its skeleton.
        known: Values that belong together beforehand: the inputs of bodies, by the position that means them.
        given: Names of tensors that belong together, as the user says: reference -> candidate.

    Raises:
        PairingError: ``given`` names a tensor that does not exist.
    """
    state = State(reference, ours, candidate, theirs)
    _pair_given(state, given or {})
    for mine, their in (known or {}).items():
        state.pair_value(ours.core(mine), theirs.core(their), "structure")
    _match_inputs(state)
    _walk(state)
    _match_outputs(state)
    _match_backwards(state)
    _walk(state)
    _find_added(state)
    return state.found


def _pair_given(state: State, given: Mapping[str, str]) -> None:
    """Pair what the user says belongs together."""
    ours = {v.name: v for v in state.reference.inputs}
    ours |= {v.name: v for node in state.reference for v in node.outputs}
    theirs = state.by_name | {v.name or "": v for v in state.candidate.inputs}
    for mine, their in given.items():
        for name, names, side in ((mine, ours, "reference"), (their, theirs, "candidate")):
            if name not in names:
                raise PairingError(
                    "bad_name_map",
                    f"The name map names '{name}', which the {side} does not have",
                    where=name,
                    hint="Map names of reference tensors to names of candidate tensors",
                )
        value, twin = state.ours.core(ours[mine]), theirs[their]
        node, other = value.producer(), twin.producer()
        state.pair_value(value, twin, "map")
        if node is not None and other is not None and node not in state.found.nodes:
            note_change(state, node, other)
            state.found.nodes[node] = other
            state.claimed.add(other)


def _match_inputs(state: State) -> None:
    """Pair graph inputs by name, else by type and shape where that leaves no choice."""
    theirs = {v.name: v for v in state.candidate.inputs}
    taken = set(state.found.values.values())
    names = {v.name for v in state.reference.inputs}
    rest = [v for v in state.candidate.inputs if v.name not in names and v not in taken]
    unmatched = [v for v in state.reference.inputs if v.name not in theirs and v not in state.found.values]
    for value in state.reference.inputs:
        twin = theirs.get(value.name)
        if twin is not None and twin not in taken:
            state.pair_value(value, twin, "name")
    for value in unmatched:
        alike = [v for v in rest if v.dtype == value.dtype and shape_of(v) == shape_of(value)]
        rivals = [v for v in unmatched if v.dtype == value.dtype and shape_of(v) == shape_of(value)]
        if (len(alike) == 1 and len(rivals) == 1) or (len(rest) == 1 and len(unmatched) == 1):
            state.pair_value(value, (alike or rest)[0], "structure")


def _match_outputs(state: State) -> None:
    """Pair graph outputs that nothing else paired: by name, or where there is only one."""
    theirs = {v.name: v for v in state.candidate.outputs}
    taken = set(state.found.values.values())
    for value in state.reference.outputs:
        core, twin = state.ours.core(value), theirs.get(value.name)
        is_only = len(state.reference.outputs) == len(state.candidate.outputs) == 1
        evidence = "name"
        if twin is None and is_only and shapes_fit(value, state.candidate.outputs[0]):
            twin, evidence = state.candidate.outputs[0], "structure"
        if core not in state.found.values and twin is not None:
            other = state.theirs.core(twin)
            if other not in taken:
                _join(state, core, other, evidence)


def _walk(state: State) -> None:
    """Visit every reference node, inputs first."""
    for node in state.ours.nodes:
        if node not in state.found.nodes and state.ours.core(node.outputs[0]) not in state.found.values:
            _visit(state, node)


def _visit(state: State, node: ir.Node) -> None:
    twin, evidence = find_twin(state, node)
    if twin is not None:
        claim(state, node, twin, evidence)
        return
    # What bears an activation's name took its place; what bears another's may hold it folded.
    first, second = (by_output_name, pass_on) if is_activation(node) else (pass_on, by_output_name)
    for take in (first, second, by_region, pass_over):
        if take(state, node):
            return
    pass_on(state, node, is_last_resort=True)


def _match_backwards(state: State) -> None:
    """Match what matched nodes read, where only one place is left for it."""
    frontier = list(state.found.nodes.items())
    while frontier:
        node, twin = frontier.pop()
        mine = [v for v in state.ours.data_inputs(node) if v is not None]
        their = [v for v in state.theirs.data_inputs(twin) if v is not None]
        taken = set(state.found.values.values())
        if node.op_type in COMMUTATIVE:
            mine = [v for v in mine if v not in state.found.values]
            their = [v for v in their if v not in taken]
            if len(mine) != 1 or len(their) != 1:
                continue
        for value, other in zip(mine, their, strict=False) if len(mine) == len(their) else ():
            if value in state.found.values or other in taken:
                continue
            joined = _join(state, value, other, "structure")
            if joined is not None:
                frontier.append(joined)


def _join(state: State, value: ir.Value, other: ir.Value, evidence: str) -> tuple[ir.Node, ir.Node] | None:
    """Pair two values from behind, with the nodes that make them if those are alike."""
    node, twin = value.producer(), other.producer()
    if node is None or twin is None or not shapes_fit(value, other):
        return None
    if node in state.found.nodes or twin in state.claimed or not is_float(value):
        return None
    if same_kind(node.op_type, twin.op_type) and agreement(state, node, twin, is_loose=True) is not None:
        claim(state, node, twin, evidence)
        return node, twin
    state.pair_value(value, other, evidence)
    return None


def _find_added(state: State) -> None:
    """Note the candidate's nodes that nothing in the reference stands for."""
    makers = {twin: value.producer() for value, twin in state.found.values.items()}
    readers = {twin: node for node, twin in state.found.nodes.items()}
    for node in reversed(state.theirs.nodes):
        output = state.theirs.core(node.outputs[0])
        data = [v for v in state.theirs.data_inputs(node) if v is not None]
        if node in state.claimed or not is_float(node.outputs[0]) or not data:
            continue
        maker = makers.get(output)
        after = [readers.get(n) or state.found.added.get(n) for n in state.theirs.readers.get(output, [])]
        owner = maker or next((n for n in after if n is not None), None)
        if owner is not None:
            state.found.added[node] = owner
