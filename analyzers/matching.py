"""Match the computing nodes of the reference with those of the candidate, on evidence.

The walk follows the reference in topological order. A node is matched by name where name and operator agree
and the inputs do not contradict it, else among the candidate's nodes that read the same matched values with
the same operator; constants, attributes and readers break ties. A reference node without a match whose
meaning the candidate has taken over (BatchNormalization folded into weights, an activation absorbed by the
saturation of a quantizer) passes its input's match on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from analyzers.graph import is_constant, is_float
from analyzers.records import Array
from analyzers.skeleton import Skeleton, constant_of

_AFFIXES = re.compile(
    r"(_QuantizeLinear_Input|_QuantizeLinear_Output|_DequantizeLinear_Output|_DequantizeLinear|_QuantizeLinear"
    r"|_quantized|_dequantized|_float|_qdq|_dq|_DQ|_updated|_converted|_stored)(_\d+)?$"
)
_ABSORBABLE = frozenset({"Relu", "Clip", "LeakyRelu", "PRelu", "HardSigmoid", "Sigmoid", "Tanh"})
_SATURATING = frozenset({"Relu", "Clip"})
_FOLDABLE = frozenset({"BatchNormalization", "Mul", "Add", "Sub", "Div", "Identity", "Dropout"})
_COMPUTES = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "And", "Or", "Equal"})
_WEIGHTED_COSINE = 0.9


@dataclass(slots=True, eq=False)
class Matches:
    """What belongs to what so far.

    Attributes:
        nodes: Reference node -> candidate node.
        values: Reference core value -> candidate core value.
        evidence: Reference core value -> what made the match.
        inner: Reference core values whose candidate value means a later tensor of the same fused layer.
        changed: Reference nodes matched by name to another operator.
    """

    nodes: dict[ir.Node, ir.Node] = field(default_factory=dict)
    values: dict[ir.Value, ir.Value] = field(default_factory=dict)
    evidence: dict[ir.Value, str] = field(default_factory=dict)
    inner: set[ir.Value] = field(default_factory=set)
    changed: list[tuple[ir.Node, ir.Node]] = field(default_factory=list)


def match(reference: ir.Graph, ours: Skeleton, candidate: ir.Graph, theirs: Skeleton) -> Matches:
    """Match two graphs through their skeletons."""
    matcher = _Matcher(ours, theirs)
    matcher.match_inputs(reference, candidate)
    for node in ours.nodes:
        matcher.visit(node)
    matcher.match_outputs(reference, candidate)
    return matcher.found


class _Matcher:
    def __init__(self, ours: Skeleton, theirs: Skeleton) -> None:
        self.ours, self.theirs = ours, theirs
        self.found = Matches()
        self.claimed: set[ir.Node] = set()
        self.by_name: dict[str, ir.Value] = {}
        self.by_stripped: dict[str, list[ir.Value]] = {}
        self.order = {node: i for i, node in enumerate(theirs.nodes)}
        self.by_op: dict[str, list[ir.Node]] = {}
        for node in theirs.nodes:
            self.by_op.setdefault(node.op_type, []).append(node)
        self._index_names()

    def _index_names(self) -> None:
        aliases = [(alias, core) for alias, core in self.theirs.cores.items()]
        own = [(v, v) for node in self.theirs.nodes for v in node.outputs]
        for value, core in own + aliases:
            if value.name:
                self.by_name.setdefault(value.name, core)
                self.by_stripped.setdefault(strip_affixes(value.name), []).append(core)
        for core, storages in self.theirs.storage.items():
            for storage in storages:
                if storage.integer.name:
                    self.by_stripped.setdefault(strip_affixes(storage.integer.name), []).append(core)

    def match_inputs(self, reference: ir.Graph, candidate: ir.Graph) -> None:
        theirs = {v.name: v for v in candidate.inputs}
        rest = [v for v in candidate.inputs if v.name not in {u.name for u in reference.inputs}]
        for value in reference.inputs:
            twin = theirs.get(value.name)
            if twin is not None:
                self._pair_value(value, twin, "name")
                continue
            alike = [v for v in rest if v.dtype == value.dtype and _shape(v) == _shape(value)]
            if len(alike) == 1 or (len(rest) == 1 and len(reference.inputs) == 1):
                self._pair_value(value, (alike or rest)[0], "structure")

    def match_outputs(self, reference: ir.Graph, candidate: ir.Graph) -> None:
        """Pair graph outputs of equal name that nothing else paired."""
        theirs = {v.name: v for v in candidate.outputs}
        for value in reference.outputs:
            core = self.ours.core(value)
            twin = theirs.get(value.name)
            if core not in self.found.values and twin is not None:
                self._pair_value(core, self.theirs.core(twin), "name")

    def visit(self, node: ir.Node) -> None:
        """Match one reference node whose inputs have been visited."""
        twin, evidence = self._find(node)
        if twin is None:
            if not self._pass_on(node):
                self._by_output_name(node)
            return
        self._claim(node, twin, evidence)

    def _claim(self, node: ir.Node, twin: ir.Node, evidence: str) -> None:
        self.found.nodes[node] = twin
        self.claimed.add(twin)
        for ours, theirs in zip(node.outputs, twin.outputs, strict=False):
            self._pair_value(self.ours.core(ours), self.theirs.core(theirs), evidence)

    def _pair_value(self, ours: ir.Value, theirs: ir.Value, evidence: str) -> None:
        if ours in self.found.values:
            return
        self.found.values[ours] = theirs
        self.found.evidence[ours] = evidence

    def _find(self, node: ir.Node) -> tuple[ir.Node | None, str]:
        named = self._named(node)
        if named is not None:
            return named
        pool = [c for c in self._reading_same(node) if self._agreement(node, c) is not None]
        if not pool:
            pool = self._by_weights(node)
            return (pool[0], "weights") if pool else (None, "")
        ranked = sorted(pool, key=lambda c: (-self._likeness(node, c), self.order[c]))
        has_constants = any(constant_of(self.ours, v) is not None for v in node.inputs)
        return ranked[0], "weights" if len(ranked) > 1 and has_constants else "structure"

    def _named(self, node: ir.Node) -> tuple[ir.Node, str] | None:
        for output in node.outputs:
            if not output.name:
                continue
            exact = self.by_name.get(output.name)
            stripped = self.by_stripped.get(strip_affixes(output.name), [])
            for core, evidence in [(exact, "name"), *((c, "affix") for c in stripped)]:
                twin = None if core is None else core.producer()
                if twin is None or twin in self.claimed or twin.op_type != node.op_type:
                    continue
                if self._agreement(node, twin) is not None:
                    return twin, evidence
        return None

    def _reading_same(self, node: ir.Node) -> list[ir.Node]:
        """Return free candidate nodes of the same operator that read one of the node's matched inputs."""
        pool: dict[ir.Node, None] = {}
        known = [self.found.values.get(v) for v in self.ours.data_inputs(node) if v is not None]
        for value in known:
            for reader in self.theirs.readers.get(value, []) if value is not None else []:
                if reader.op_type == node.op_type and reader not in self.claimed:
                    pool[reader] = None
        return list(pool)

    def _agreement(self, node: ir.Node, twin: ir.Node) -> int | None:
        """Return how many inputs agree, or None if one contradicts."""
        if node.op_type in _COMPUTES and not self._same_size(node, twin):
            return None
        ours = self.ours.data_inputs(node)
        theirs = self.theirs.data_inputs(twin)
        expected = [None if v is None else self.found.values.get(v) for v in ours]
        if node.op_type in _COMMUTATIVE:
            wanted = [v for v in expected if v is not None]
            hits = sum(v in theirs for v in wanted)
            return hits if hits == len(wanted) else None
        hits = 0
        for mine, want, have in zip(ours, expected, theirs, strict=False):
            if want is None or have is None:
                if (mine is None) != (have is None) and mine is not None and want is not None:
                    return None
                continue
            if want is not have:
                return None
            hits += 1
        return hits

    def _same_size(self, node: ir.Node, twin: ir.Node) -> bool:
        """Return False if both multiply with constants of different sizes: those are different layers."""
        sizes = [_constant_size(self.ours, node), _constant_size(self.theirs, twin)]
        return None in sizes or sizes[0] == sizes[1]

    def _likeness(self, node: ir.Node, twin: ir.Node) -> float:
        score = 0.0
        for mine, their in zip(node.inputs, twin.inputs, strict=False):
            a, b = constant_of(self.ours, mine), constant_of(self.theirs, their)
            if a is not None and b is not None:
                score += 10 * similarity(a, b)
        mine_readers = sorted(n.op_type for v in node.outputs for n in self.ours.readers.get(v, []))
        their_readers = sorted(n.op_type for v in twin.outputs for n in self.theirs.readers.get(v, []))
        score += 2.0 * (mine_readers == their_readers)
        score += 1.0 * (_attributes(node) == _attributes(twin))
        return score

    def _by_weights(self, node: ir.Node) -> list[ir.Node]:
        if node.op_type not in _COMPUTES or len(node.inputs) < 2:
            return []
        weights = constant_of(self.ours, node.inputs[1])
        if weights is None:
            return []
        likes = []
        for twin in self.by_op.get(node.op_type, []):
            if twin in self.claimed or self._agreement(node, twin) is None:
                continue
            theirs = constant_of(self.theirs, twin.inputs[1])
            if theirs is not None and theirs.shape == weights.shape:
                likes.append((similarity(weights, theirs), twin))
        likes.sort(key=lambda pair: (-pair[0], self.order[pair[1]]))
        is_clear = len(likes) == 1 or (len(likes) > 1 and likes[0][0] - likes[1][0] > 0.2)
        return [likes[0][1]] if likes and likes[0][0] > _WEIGHTED_COSINE and is_clear else []

    def _pass_on(self, node: ir.Node) -> bool:
        """Let a node that the candidate folded or absorbed take over its input's match."""
        data = [v for v in self.ours.data_inputs(node) if v is not None]
        is_candidate = node.op_type in _ABSORBABLE or node.op_type in _FOLDABLE
        if len(data) != 1 or not is_candidate or not is_float(node.outputs[0]):
            return False
        source, output = data[0], self.ours.core(node.outputs[0])
        twin = self.found.values.get(source)
        if twin is None or len(self.ours.readers.get(source, [])) != 1 or source.is_graph_output():
            return False
        producer = source.producer()
        if producer is None:
            return False
        if node.op_type not in _SATURATING and not self._reads_on(output, twin):
            return False
        self._pair_value(output, twin, self.found.evidence[source])
        self.found.inner.add(source)
        return True

    def _reads_on(self, output: ir.Value, twin: ir.Value) -> bool:
        """Return True if a reader of the output has a counterpart that reads the twin."""
        ours = {n.op_type for n in self.ours.readers.get(output, [])}
        theirs = {n.op_type for n in self.theirs.readers.get(twin, [])}
        return bool(ours & theirs) or (output.is_graph_output() and not theirs) or not ours

    def _by_output_name(self, node: ir.Node) -> None:
        """Pair values of equal name whose operators differ, and remember that they do."""
        for output in node.outputs:
            core = self.by_name.get(output.name or "")
            twin = None if core is None else core.producer()
            if core is None or twin is None or twin in self.claimed:
                continue
            self.found.changed.append((node, twin))
            self._claim(node, twin, "name")
            return


def strip_affixes(name: str) -> str:
    """Return a tensor name without the affixes that known quantizers add."""
    previous = None
    while previous != name:
        previous, name = name, _AFFIXES.sub("", name)
    return name


def similarity(a: Array, b: Array) -> float:
    """Return how alike two constants are, 0..1; per output channel, so that folded scales do not matter."""
    if a.shape != b.shape:
        if a.size != b.size or a.size == 0:
            return 0.0
        b = b.T if b.T.shape == a.shape else b.reshape(a.shape)
    if a.size == 0 or a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
        return float(a.dtype == b.dtype and np.array_equal(a, b))
    if a.dtype.kind != "f" and b.dtype.kind != "f":
        return float(np.array_equal(a, b))
    rows = (a.shape[0], -1) if a.ndim > 1 else (1, -1)
    x, y = a.reshape(rows).astype(np.float64), b.reshape(rows).astype(np.float64)
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    cosines = np.abs((x * y).sum(axis=1))[norms > 0] / norms[norms > 0]
    return float(np.nanmean(cosines)) if cosines.size else float(np.array_equal(x, y))


def _constant_size(skeleton: Skeleton, node: ir.Node) -> int | None:
    """Return how many weights the node multiplies with, or None if its second input is no constant."""
    value = node.inputs[1] if len(node.inputs) > 1 else None
    core = None if value is None else skeleton.core(value)
    if core is None or not is_constant(core) or core.const_value is None:
        return None
    return int(core.const_value.size)


def _attributes(node: ir.Node) -> dict[str, str]:
    return {
        k: str(a.value)
        for k, a in node.attributes.items()
        if a.type not in (ir.AttributeType.GRAPH, ir.AttributeType.TENSOR)
    }


def _shape(value: ir.Value) -> tuple[object, ...] | None:
    return None if value.shape is None else tuple(d if isinstance(d, int) else None for d in value.shape)
