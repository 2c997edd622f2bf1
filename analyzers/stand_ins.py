"""Match what has no twin: operators that were folded, absorbed, exchanged, merged, split, added or lost."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from analyzers.graph import is_float
from analyzers.likeness import kinds_meet, same_kind, shapes_fit
from analyzers.matches import State, strip_affixes
from analyzers.regions import Region, regions
from analyzers.twins import agreement, is_same

SATURATING = frozenset({"Relu", "Clip"})
_ABSORBABLE = SATURATING | {"LeakyRelu", "PRelu", "HardSigmoid", "Sigmoid", "Tanh"}
_FOLDABLE = frozenset({"BatchNormalization", "Mul", "Add", "Sub", "Div", "Identity", "Dropout"})
# What takes values apart and puts them together.
_MOVES = frozenset({"Slice", "Split", "Concat", "Pad", "Where", "Gather", "ScatterND", "ScatterElements"})
_LONGEST_DETOUR = 4


def claim(state: State, node: ir.Node, twin: ir.Node, evidence: str) -> None:
    """Match two nodes and pair what they make."""
    note_change(state, node, twin)
    state.found.nodes[node] = twin
    state.claimed.add(twin)
    for ours, theirs in zip(node.outputs, twin.outputs, strict=False):
        core = state.ours.core(ours)
        state.pair_value(core, advanced(state, node, core, state.theirs.core(theirs)), evidence)


def note_change(state: State, node: ir.Node, twin: ir.Node) -> None:
    """Remember a match whose operators or inputs differ."""
    if not same_kind(node.op_type, twin.op_type) or agreement(state, node, twin) is None:
        state.found.changed.append((node, twin))


def pass_on(state: State, node: ir.Node, *, is_last_resort: bool = False) -> bool:
    """Let a node that the candidate folded or absorbed take over its input's match.

    Args:
        state: The graphs.
        node: Reference node.
        is_last_resort: Nothing else explains what became of the node.
    """
    data = [v for v in state.ours.data_inputs(node) if v is not None]
    is_candidate = node.op_type in _ABSORBABLE or node.op_type in _FOLDABLE
    if len(data) != 1 or not is_candidate or not is_float(node.outputs[0]):
        return False
    source, output = data[0], state.ours.core(node.outputs[0])
    twin = state.found.values.get(source)
    if twin is None or len(state.ours.readers.get(source, [])) != 1 or source in state.our_outputs:
        return False
    if source.producer() is None:
        return False
    is_usual = is_last_resort and node.op_type in SATURATING | {"BatchNormalization"}
    if not (is_usual or _is_called(state, twin, node.outputs[0]) or _reads_on(state, output, twin)):
        return False
    state.pair_value(output, twin, state.found.evidence[source])
    state.found.inner.add(source)
    return True


def _is_called(state: State, twin: ir.Value, output: ir.Value) -> bool:
    """Tell whether a candidate value bears the name of the output, or its stored form does."""
    name = strip_affixes(output.name or "")
    return any(core is twin for core in state.by_stripped.get(name, []))


def _reads_on(state: State, output: ir.Value, twin: ir.Value) -> bool:
    """Return True if a reader of the output has a counterpart that reads the twin."""
    ours = _next_types(state, output)
    theirs = {n.op_type for n in state.theirs.readers.get(twin, []) if n not in state.claimed}
    is_end = output in state.our_outputs and (twin in state.their_outputs or not theirs)
    return kinds_meet(ours, theirs) or is_end or not ours


def _next_types(state: State, value: ir.Value) -> set[str]:
    """Return the operators that read a value, and those behind what may be folded or absorbed."""
    types: set[str] = set()
    for _ in range(_LONGEST_DETOUR):
        readers = state.ours.readers.get(value, [])
        types |= {n.op_type for n in readers}
        if len(readers) != 1 or readers[0].op_type not in _FOLDABLE | _ABSORBABLE:
            break
        if len([v for v in state.ours.data_inputs(readers[0]) if v is not None]) != 1:
            break
        value = state.ours.core(readers[0].outputs[0])
    return types


def advanced(state: State, node: ir.Node, ours: ir.Value, theirs: ir.Value) -> ir.Value:
    """Step over what only the candidate computes before anything reads the value.

    A bias that the reference adds inside the operator, or an activation that the reference does not have.
    """
    wanted = _next_types(state, ours)
    theirs = _overwritten(state, node, theirs, wanted)
    for _ in range(_LONGEST_DETOUR):
        readers = state.theirs.readers.get(theirs, [])
        if len(readers) != 1 or theirs in state.their_outputs:
            return theirs
        reader = readers[0]
        data = [v for v in state.theirs.data_inputs(reader) if v is not None]
        if reader in state.claimed or len(data) != 1 or reader.op_type not in _FOLDABLE | _ABSORBABLE:
            return theirs
        if kinds_meet(wanted, {reader.op_type}) or _is_exchange(state, ours, reader):
            return theirs
        after = state.theirs.core(reader.outputs[0])
        types = {n.op_type for n in state.theirs.readers.get(after, [])}
        is_end = ours in state.our_outputs and after in state.their_outputs
        if not is_end and not _leads_to(state, after, wanted, types):
            return theirs
        state.claimed.add(reader)
        state.found.added[reader] = node
        theirs = after
    return theirs


def _overwritten(state: State, node: ir.Node, theirs: ir.Value, wanted: set[str]) -> ir.Value:
    """Step over operators that rearrange a value before it is stored, which the reference does not do.

    What is stored then stands for the reference's value, whatever was done to it.
    """
    readers = state.theirs.readers.get(theirs, [])
    if theirs in state.theirs.storage or theirs in state.their_outputs or not readers:
        return theirs
    if any(r in state.claimed or r.op_type not in _MOVES or kinds_meet(wanted, {r.op_type}) for r in readers):
        return theirs
    found = regions(
        state.theirs, theirs, readers[0], lambda n: n not in state.claimed and n.op_type in _MOVES, ()
    )
    for region in found:
        if region.exit in state.theirs.storage and shapes_fit(theirs, region.exit):
            state.claimed.update(region.nodes)
            state.found.added.update(dict.fromkeys(region.nodes, node))
            return region.exit
    return theirs


def _is_exchange(state: State, ours: ir.Value, reader: ir.Node) -> bool:
    """Tell whether the reference has an activation where the candidate has another one."""
    readers = state.ours.readers.get(ours, [])
    return len(readers) == 1 and is_activation(readers[0]) and is_activation(reader)


def _leads_to(state: State, value: ir.Value, wanted: set[str], types: set[str]) -> bool:
    """Tell whether a wanted reader follows, at once or after one more step of the same sort."""
    if kinds_meet(wanted, types):
        return True
    readers = state.theirs.readers.get(value, [])
    if len(readers) != 1 or readers[0].op_type not in _FOLDABLE | _ABSORBABLE:
        return False
    after = state.theirs.readers.get(state.theirs.core(readers[0].outputs[0]), [])
    return kinds_meet(wanted, {n.op_type for n in after})


def is_activation(node: ir.Node) -> bool:
    """Tell whether the saturation of a store may do the node's work, or a converter may take it for that."""
    return node.op_type in _ABSORBABLE


def by_output_name(state: State, node: ir.Node) -> bool:
    """Pair values of equal name whose operators differ, where they share an input."""
    for output in node.outputs:
        core = state.by_name.get(output.name or "")
        twin = None if core is None else core.producer()
        if core is None or twin is None or twin in state.claimed or not _shares_input(state, node, twin):
            continue
        claim(state, node, twin, "name")
        return True
    return False


def _shares_input(state: State, node: ir.Node, twin: ir.Node) -> bool:
    known = [state.found.values.get(v) for v in state.ours.data_inputs(node) if v is not None]
    theirs = [v for v in state.theirs.data_inputs(twin) if v is not None]
    wanted = [v for v in known if v is not None]
    return not wanted or any(is_same(state, want, have, is_loose=True) for want in wanted for have in theirs)


def by_region(state: State, node: ir.Node) -> bool:
    """Match what computes one value from one other, though with other operators or none at all."""
    data = {v for v in state.ours.data_inputs(node) if v is not None}
    source = next(iter(data)) if len(data) == 1 else None
    twin = None if source is None else state.found.values.get(source)
    if source is None or twin is None or not is_float(node.outputs[0]):
        return False
    mine = list(regions(state.ours, source, node, lambda n: n not in state.found.nodes, state.our_outputs))
    their = [Region((), twin)]
    for reader in dict.fromkeys(state.theirs.readers.get(twin, [])):
        if reader not in state.claimed:
            their += regions(
                state.theirs, twin, reader, lambda n: n not in state.claimed, state.their_outputs
            )
    fits = [(a, b) for a in mine for b in their if _ends_meet(state, a, b)]
    if not fits:
        return False
    a, b = min(fits, key=lambda pair: len(pair[0].nodes) + len(pair[1].nodes))
    if b.nodes:
        state.found.nodes[a.nodes[-1]] = b.nodes[-1]
        state.claimed.update(b.nodes)
        state.found.changed.append((a.nodes[0], b.nodes[0]))
    else:
        _note_lost(state, a.nodes, source, a.exit)
    state.pair_value(a.exit, b.exit, "structure")
    return True


def _note_lost(state: State, nodes: Sequence[ir.Node], source: ir.Value, output: ir.Value) -> None:
    """Remember that a value takes the place of what the lost nodes make of it."""
    state.found.lost.extend(nodes)
    is_private = len(state.ours.readers.get(source, [])) == 1 and source not in state.our_outputs
    if is_private:
        state.found.inner.add(source)
    else:
        state.found.stand_ins.add(output)


def _ends_meet(state: State, ours: Region, theirs: Region) -> bool:
    """Tell whether readers of the two exits match, and the exits' shapes."""
    if not shapes_fit(ours.exit, theirs.exit):
        return False
    if ours.exit in state.our_outputs or theirs.exit in state.their_outputs:
        return ours.exit in state.our_outputs and theirs.exit in state.their_outputs
    readers = [n for n in state.theirs.readers.get(theirs.exit, []) if n not in state.claimed]
    return kinds_meet(
        {n.op_type for n in state.ours.readers.get(ours.exit, [])}, {n.op_type for n in readers}
    )


def pass_over(state: State, node: ir.Node) -> bool:
    """Note a node of several inputs that is lost: what reads its result reads one of its inputs."""
    data = [v for v in state.ours.data_inputs(node) if v is not None]
    output = state.ours.core(node.outputs[0])
    wanted = {n.op_type for n in state.ours.readers.get(output, [])}
    for source in data if len(data) > 1 and is_float(node.outputs[0]) else ():
        twin = state.found.values.get(source)
        if twin is None or source.producer() is None or not shapes_fit(source, output):
            continue
        readers = [n for n in state.theirs.readers.get(twin, []) if n not in state.claimed]
        is_end = output in state.our_outputs and twin in state.their_outputs
        if is_end or kinds_meet(wanted, {n.op_type for n in readers}):
            _note_lost(state, [node], source, output)
            state.pair_value(output, twin, "structure")
            return True
    return False
