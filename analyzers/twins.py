"""Find the candidate node that computes what a reference node does: by name, by inputs, by weights."""

from __future__ import annotations

import onnx_ir as ir

from analyzers.graph import subgraphs
from analyzers.likeness import (
    COMMUTATIVE,
    MULTIPLIES,
    constants_likeness,
    same_kind,
    told_the_same,
    weight_likeness,
    weight_size,
)
from analyzers.matches import State, strip_affixes
from analyzers.skeleton import constant_of

_ALIKE_WEIGHTS = 0.9
_CLEARLY = 0.2  # how far the second best weights must be behind
_FEWEST_WEIGHTS = 8  # the direction of shorter rows says nothing
_LONGEST_DETOUR = 4


def find_twin(state: State, node: ir.Node) -> tuple[ir.Node | None, str]:
    """Return the twin of a reference node and what makes it one; None and "" if there is none."""
    named = _named(state, node)
    if named is not None:
        return named
    pool = [c for c in _reading_same(state, node) if agreement(state, node, c) is not None]
    pool = [c for c in pool if not _is_anothers(state, node, c)]
    if not pool:
        pool = _by_weights(state, node)
        return (pool[0], "weights") if pool else (None, "")
    ranked = sorted(pool, key=lambda c: (-_likeness(state, node, c), state.order[c]))
    has_constants = any(constant_of(state.ours, v) is not None for v in node.inputs)
    return ranked[0], "weights" if len(ranked) > 1 and has_constants else "structure"


def _named(state: State, node: ir.Node) -> tuple[ir.Node, str] | None:
    twins: list[tuple[ir.Node | None, str]] = []
    for output in node.outputs:
        if output.name:
            exact = state.by_name.get(output.name)
            twins.append((None if exact is None else exact.producer(), "name"))
            stripped = state.by_stripped.get(strip_affixes(output.name), [])
            twins += [(core.producer(), "affix") for core in stripped]
    if node.name:
        twins.append((state.by_node_name.get(strip_affixes(node.name)), "name"))
    for twin, evidence in twins:
        if twin is None or twin in state.claimed or not same_kind(node.op_type, twin.op_type):
            continue
        if agreement(state, node, twin, is_loose=True) is not None:
            return twin, evidence
        if evidence == "name" and _has_its_weights(state, node, twin):
            return twin, evidence  # wired to something else
    return None


def _has_its_weights(state: State, node: ir.Node, twin: ir.Node) -> bool:
    if not _same_size(state, node, twin):
        return False
    likeness = weight_likeness(state.ours, node, state.theirs, twin)
    size = weight_size(state.ours, node) or 0
    return likeness is not None and likeness > _ALIKE_WEIGHTS and size >= _FEWEST_WEIGHTS


def _reading_same(state: State, node: ir.Node) -> list[ir.Node]:
    """Return free candidate nodes of the same kind that read one of the node's matched inputs."""
    pool: dict[ir.Node, None] = {}
    known = [state.found.values.get(v) for v in state.ours.data_inputs(node) if v is not None]
    for value in known:
        for reader in state.theirs.readers.get(value, []) if value is not None else []:
            if same_kind(node.op_type, reader.op_type) and reader not in state.claimed:
                pool[reader] = None
    return list(pool)


def agreement(state: State, node: ir.Node, twin: ir.Node, *, is_loose: bool = False) -> int | None:
    """Return how many inputs agree, or None if one contradicts.

    Args:
        state: The graphs.
        node: Reference node.
        twin: Candidate node.
        is_loose: An input also agrees if operators without a counterpart lie in between.
    """
    if node.op_type in MULTIPLIES and not _same_size(state, node, twin):
        return None
    ours = state.ours.data_inputs(node)
    theirs = state.theirs.data_inputs(twin)
    expected = [None if v is None else state.found.values.get(v) for v in ours]
    if node.op_type in COMMUTATIVE or any(subgraphs(node)):
        wanted = [v for v in expected if v is not None]
        hits = sum(any(is_same(state, v, w, is_loose=is_loose) for w in theirs if w) for v in wanted)
        return hits if hits == len(wanted) else None
    hits = 0
    for mine, want, have in zip(ours, expected, theirs, strict=False):
        if want is None or have is None:
            if (mine is None) != (have is None) and mine is not None and want is not None:
                return None
            continue
        if not is_same(state, want, have, is_loose=is_loose):
            return None
        hits += 1
    return hits


def is_same(state: State, want: ir.Value, have: ir.Value, *, is_loose: bool) -> bool:
    """Tell whether a candidate value is the wanted one, or loosely, is made of it by unmatched operators."""
    return want is have or (is_loose and comes_from(state, have, want))


def comes_from(state: State, value: ir.Value, source: ir.Value) -> bool:
    """Tell whether a value is made of another by operators without a counterpart."""
    frontier = [value]
    for _ in range(_LONGEST_DETOUR):
        above: list[ir.Value] = []
        for current in frontier:
            node = current.producer()
            if node is not None and node not in state.claimed:
                above += [v for v in state.theirs.data_inputs(node) if v is not None]
        if source in above:
            return True
        frontier = above
    return False


def _same_size(state: State, node: ir.Node, twin: ir.Node) -> bool:
    """Return False if both multiply with constants of different sizes: those are different layers."""
    sizes = [weight_size(state.ours, node), weight_size(state.theirs, twin)]
    return None in sizes or sizes[0] == sizes[1]


def _is_anothers(state: State, node: ir.Node, twin: ir.Node) -> bool:
    """Tell whether the weights of a candidate node are those of another reference node."""
    own = weight_likeness(state.ours, node, state.theirs, twin)
    if own is None or own > _ALIKE_WEIGHTS or (weight_size(state.ours, node) or 0) < _FEWEST_WEIGHTS:
        return False
    for other in state.ours.nodes:
        if other is node or other in state.found.nodes or not same_kind(other.op_type, twin.op_type):
            continue
        if _same_size(state, other, twin):
            likeness = weight_likeness(state.ours, other, state.theirs, twin)
            if likeness is not None and likeness > max(_ALIKE_WEIGHTS, own + _CLEARLY):
                return True
    return False


def _likeness(state: State, node: ir.Node, twin: ir.Node) -> float:
    score = 10 * constants_likeness(state.ours, node, state.theirs, twin)
    mine_readers = sorted(n.op_type for v in node.outputs for n in state.ours.readers.get(v, []))
    their_readers = sorted(n.op_type for v in twin.outputs for n in state.theirs.readers.get(v, []))
    score += 2.0 * (mine_readers == their_readers) + 0.5 * (node.op_type == twin.op_type)
    return score + 1.0 * told_the_same(node, twin, state.opset)


def _by_weights(state: State, node: ir.Node) -> list[ir.Node]:
    if node.op_type not in MULTIPLIES or (weight_size(state.ours, node) or 0) < _FEWEST_WEIGHTS:
        return []
    likes: list[tuple[float, ir.Node]] = []
    for twin in state.theirs.nodes:
        if twin in state.claimed or not same_kind(node.op_type, twin.op_type):
            continue
        if agreement(state, node, twin, is_loose=True) is None:
            continue
        likeness = weight_likeness(state.ours, node, state.theirs, twin)
        if likeness is not None:
            likes.append((likeness, twin))
    likes.sort(key=lambda pair: (-pair[0], state.order[pair[1]]))
    is_clear = len(likes) == 1 or (len(likes) > 1 and likes[0][0] - likes[1][0] > _CLEARLY)
    return [likes[0][1]] if likes and likes[0][0] > _ALIKE_WEIGHTS and is_clear else []
