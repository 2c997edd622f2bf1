"""Bodies of If, Loop and Scan as models of their own, on both sides, reading the same inputs.

What a body reads from outside becomes an input that holds the reference's value, so that a body's own error
is measured and not what it is fed with. Whatever the candidate does to that value between the outer tensor
and the body (a second quantizer, a change of layout) comes along into the body.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from analyzers.assembly import Assembler, Made, Recipe
from analyzers.graph import FLOAT_TYPES, captured_values, is_constant, is_float, node_name
from analyzers.lifts import same
from analyzers.pairing import nearest_storage
from analyzers.project import Pair
from analyzers.skeleton import read_quantization


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A body that exists on both sides.

    Attributes:
        path: ``if_node/then_branch``.
        layer: Reference layer of the node that holds it.
        node: That node.
        attribute: Its attribute that holds the body.
        formal: Names of the body's own inputs, in order.
        outer: Names of the reference tensors that it reads from outside; inputs of the same names.
        runner: The reference's body with all its outputs, in order.
        reference: The reference's body; outputs are the floats that it computes.
        candidate: The candidate's.
    """

    path: str
    layer: str
    node: ir.Node
    attribute: str
    formal: tuple[str, ...]
    outer: tuple[str, ...]
    runner: ir.Model
    reference: ir.Model
    candidate: ir.Model


@dataclass(frozen=True, slots=True)
class ClosedBody:
    """A body that cannot be taken out, and why."""

    path: str
    layer: str
    reason: str


_LOOP_TYPES = (ir.DataType.INT64, ir.DataType.BOOL)  # iteration number and condition


class _ClosedError(Exception):
    """A body cannot be taken out; its text says why."""


def find_bodies(pair: Pair) -> Iterator[Body | ClosedBody]:
    """Yield the bodies of all matched nodes that have some, topological."""
    layer_of = {n: pair.pairing.layers[i].name for n, i in pair.paired.grouping.layer_of.items()}
    for node in pair.paired.ours.nodes:
        twin = pair.paired.matches.nodes.get(node)
        if twin is None or node not in layer_of:
            continue
        for name, attribute in node.attributes.items():
            if attribute.type != ir.AttributeType.GRAPH:
                continue
            path, layer = f"{node_name(node)}/{name}", layer_of[node]
            other = twin.attributes.get(name)
            if other is None or other.type != ir.AttributeType.GRAPH:
                yield ClosedBody(path, layer, "the candidate's operator has no such body")
                continue
            try:
                yield _body(pair, path, layer, node, (name, attribute.as_graph(), other.as_graph()))
            except _ClosedError as cause:
                yield ClosedBody(path, layer, str(cause))


def _body(pair: Pair, path: str, layer: str, node: ir.Node, graphs: tuple[str, ir.Graph, ir.Graph]) -> Body:
    attribute, ours, theirs = graphs
    if len(ours.inputs) != len(theirs.inputs) or len(ours.outputs) != len(theirs.outputs):
        raise _ClosedError("the two sides have another number of inputs or outputs")
    formal = [_Formal(v.name or f"input_{i}", _type_from_outside(node, i)) for i, v in enumerate(ours.inputs)]
    floats = [v for v in ours.outputs if is_float(v) and _is_computed(v, ours)]
    outputs = [list(ours.outputs).index(v) for v in dict.fromkeys(floats)]
    if not outputs:
        raise _ClosedError("it computes no float output")
    reference, candidate, runner = (
        _ReferenceSide(pair, ours, formal),
        _CandidateSide(pair, theirs, formal),
        _ReferenceSide(pair, ours, formal),
    )
    models = [side.model(outputs) for side in (reference, candidate)]
    everything = runner.model(range(len(ours.outputs)), is_complete=True)
    outer = {**reference.outer, **candidate.outer, **runner.outer}
    for model in (models[0], everything):
        known = {v.name for v in model.graph.inputs}
        model.graph.inputs.extend(_input(v, name, None) for name, v in outer.items() if name not in known)
    names = tuple(f.name for f in formal)
    return Body(path, layer, node, attribute, names, tuple(outer), everything, models[0], models[1])


@dataclass(frozen=True, slots=True, eq=False)
class _Formal:
    """A body's own input: its name, and the type that it has where the body does not say."""

    name: str
    type: ir.TypeProtocol | None


def _type_from_outside(node: ir.Node, index: int) -> ir.TypeProtocol | None:
    """Return the type of what the node gives its body as this input."""
    if node.op_type == "Loop" and index < len(_LOOP_TYPES):
        return ir.TensorType(_LOOP_TYPES[index])
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None else value.type


def _is_computed(value: ir.Value, graph: ir.Graph) -> bool:
    """Tell whether the body makes this output, rather than handing on what it was given."""
    node = value.producer()
    return node is not None and node.graph is graph


class _Side:
    """Takes one side's body out, with what it needs from outside."""

    def __init__(self, pair: Pair, graph: ir.Graph, formal: Sequence[_Formal], model: ir.Model) -> None:
        self.pair, self.graph, self.source = pair, graph, model
        whole = pair.reference.ir.graph
        taken = [v.name or "" for v in (*whole.inputs, *(o for n in whole for o in n.outputs))]
        self.assembler = Assembler(reserved=[*taken, *(f.name for f in formal)])
        self.formal = {v: _input(v, f.name, f.type) for v, f in zip(graph.inputs, formal, strict=True)}
        if not all(isinstance(v.type, ir.TensorType) for v in self.formal.values()):
            raise _ClosedError("its inputs are not all tensors of known types")
        self.outer: dict[str, ir.Value] = {}
        self._borders: dict[str, ir.Value] = {}

    def model(self, outputs: Sequence[int], *, is_complete: bool = False) -> ir.Model:
        """Return the body with these of its outputs.

        Args:
            outputs: Their places.
            is_complete: Also hand on what the body does not compute; outputs get names of their own.
        """
        made = [self.resolved(self.graph.outputs[index]) for index in outputs]
        if is_complete:
            made = [
                self.assembler.emit("Identity", [value], f"handed_out_{index}", dtype=value.dtype)
                for index, value in zip(outputs, made, strict=True)
            ]
        inputs = [*self.formal.values(), *self._borders.values()]
        return self.assembler.finish(inputs, made, [self.source], "body")

    def resolved(self, value: ir.Value) -> ir.Value:
        """Return the value in the new graph.

        Raises:
            _ClosedError: It comes from where it cannot be brought from.
        """
        made = self.assembler.resolve(("value", value), self.recipe)[0]
        assert made is not None
        return made

    def recipe(self, key: Hashable) -> Recipe:
        """Return how to make a value or a node."""
        assert isinstance(key, tuple)
        kind, item = key
        return self._value(item) if kind == "value" else self._node(item)

    def _value(self, value: ir.Value) -> Recipe:
        if value in self.formal:
            return Recipe((), lambda _: (self.formal[value],))
        if is_constant(value):
            return Recipe((), lambda _: (self.assembler.constant(value),))
        border = self.border(value)
        if border is not None:
            return Recipe((), lambda _: (self._from_outside(border, value),))
        node, index = value.producer(), value.index()
        if node is None or index is None:
            raise _ClosedError(f"it reads '{value.name}', which has no counterpart in the reference")
        return Recipe((("node", node),), lambda made: (made[0][index],))

    def border(self, value: ir.Value) -> ir.Value | None:
        """Return the outer reference value that stands in for a value; None where it is computed here."""
        raise NotImplementedError

    def _from_outside(self, border: ir.Value, value: ir.Value) -> ir.Value:
        name = border.name or ""
        if name not in self._borders:
            if not isinstance(border.type, ir.TensorType):
                raise _ClosedError(f"'{name}', which it reads, is no tensor of a known type")
            self.outer[name] = border
            self._borders[name] = _input(border, name, None)
        made = self._borders[name]
        if border.dtype == value.dtype or not {border.dtype, value.dtype} <= FLOAT_TYPES:
            return made
        assert value.dtype is not None
        to = ir.AttrInt64("to", value.dtype)
        return self.assembler.emit("Cast", [made], f"{name}_cast", [to], dtype=value.dtype)

    def _node(self, node: ir.Node) -> Recipe:
        values = [*node.inputs, *captured_values(node)]
        needs = tuple(("value", v) for v in values if v is not None)

        def make(made: Sequence[Made]) -> Made:
            resolved = iter(made)
            return self.assembler.copy_node(node, [None if v is None else next(resolved)[0] for v in values])

        return Recipe(needs, make)


class _ReferenceSide(_Side):
    def __init__(self, pair: Pair, graph: ir.Graph, formal: Sequence[_Formal]) -> None:
        super().__init__(pair, graph, formal, pair.reference.ir)

    def border(self, value: ir.Value) -> ir.Value | None:
        return None if _is_computed(value, self.graph) else value


class _CandidateSide(_Side):
    def __init__(self, pair: Pair, graph: ir.Graph, formal: Sequence[_Formal]) -> None:
        super().__init__(pair, graph, formal, pair.canonical)
        self.theirs = pair.paired.theirs
        inner = pair.paired.matches.inner
        matched = pair.paired.matches.values.items()
        self.meaning = {twin: v for v, twin in matched if v not in inner and not is_constant(v)}

    def border(self, value: ir.Value) -> ir.Value | None:
        """Return the reference's twin of a value that the body reads from outside.

        The producer's own store is passed by, so that its error is not charged to the body.
        """
        if _is_computed(value, self.graph):
            return None
        core = self.theirs.core(value)
        meaning = self.meaning.get(core)
        if meaning is None or value is core:
            return meaning
        node = value.producer()
        storage = nearest_storage(self.theirs, core)
        if node is None or storage is None or node.op_type != "DequantizeLinear":
            return None
        quantization = read_quantization(node)
        is_own = quantization is not None and same(storage.quantization, quantization)
        return meaning if is_own and storage.permutation is None else None


def _input(value: ir.Value, name: str, otherwise: ir.TypeProtocol | None) -> ir.Value:
    """Return a graph input like a value; dims that are not plain numbers are left open."""
    dims = None if value.shape is None else [d if isinstance(d, int) else None for d in value.shape]
    shape = None if dims is None else ir.Shape(dims)
    return ir.Value(name=name, type=value.type or otherwise, shape=shape)
