"""Constants that exist on both sides, the reference's in the layout in which the candidate holds them.

What the candidate folded is folded here exactly: BatchNormalization and constant factors and offsets go into
weights and biases wherever the candidate has no operator of its own for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from analyzers.constant_values import Known, known_constant
from analyzers.evidence import ConstantPair
from analyzers.folding import Affine, Vector, followers
from analyzers.graph import node_name
from analyzers.likeness import COMMUTATIVE, MULTIPLIES
from analyzers.project import Pair
from analyzers.records import Array
from analyzers.skeleton import read_quantization
from analyzers.weighted import ADDS, Side, fits, fixed_offset, product, side_of

# Constants of operators that do not multiply matrices: operator -> input index -> role.
_ROLES = {
    "LayerNormalization": {1: "weight", 2: "bias"},
    "SimplifiedLayerNormalization": {1: "weight"},
    "SkipLayerNormalization": {2: "weight", 3: "bias", 4: "bias"},
    "RMSNormalization": {1: "weight"},
    "InstanceNormalization": {1: "weight", 2: "bias"},
    "GroupNormalization": {1: "weight", 2: "bias"},
    "BatchNormalization": {1: "weight", 2: "bias", 3: "bias", 4: "weight"},
    "PRelu": {1: "weight"},
    "Mul": {0: "weight", 1: "weight"},
    "Div": {0: "weight", 1: "weight"},
    "Add": {0: "bias", 1: "bias"},
    "Sub": {0: "bias", 1: "bias"},
    "Gather": {0: "weight"},
    "Pow": {1: "other"},
    "Concat": dict.fromkeys(range(64), "other"),
    "Where": {1: "other", 2: "other"},
    "LSTM": {1: "weight", 2: "weight", 3: "bias"},
    "GRU": {1: "weight", 2: "weight", 3: "bias"},
    "RNN": {1: "weight", 2: "weight", 3: "bias"},
    "Einsum": {0: "weight", 1: "weight"},
}
_MOVES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "MaxPool", "Identity"})


def constant_pairs(pair: Pair) -> tuple[ConstantPair, ...]:
    """Return the constants of every matched operator, in topological order of the reference.

    Where the reference has a bias and the candidate none at all, ``value`` is "" and ``candidate`` zero.
    """
    found = list(_Pairing(pair).run())
    readers: dict[str, list[str]] = {}
    for _, initializer, constant in found:
        readers.setdefault(initializer, []).append(constant.node)
    return tuple(
        replace(constant, shared_by=tuple(dict.fromkeys(readers[initializer])))
        if initializer
        else replace(constant, shared_by=(constant.node,))
        for _, initializer, constant in sorted(found, key=lambda item: item[0])
    )


_Found = tuple[int, str, ConstantPair]  # position of the operator, name of the initializer, the pair


class _Pairing:
    def __init__(self, pair: Pair) -> None:
        paired = pair.paired
        self.ours, self.theirs, self.matches = paired.ours, paired.theirs, paired.matches
        self.nodes = paired.matches.nodes
        self.layer_of = {n: pair.pairing.layers[i].name for n, i in paired.grouping.layer_of.items()}
        self.order = {node: i for i, node in enumerate(self.ours.nodes)}
        self.done: set[ir.Node] = set()

    def run(self) -> Iterator[_Found]:
        """Yield the pairs; operators with weights first, since they say which additions are their biases."""
        matched = [(node, twin) for node, twin in self.nodes.items() if node in self.layer_of]
        for node, twin in matched:
            if node.op_type in MULTIPLIES:
                yield from self._linear(node, twin)
        for node, twin in matched:
            if node not in self.done:
                yield from self._plain(node, twin)

    def _linear(self, node: ir.Node, twin: ir.Node) -> Iterator[_Found]:
        ours, theirs = side_of(node), side_of(twin)
        if ours is None or theirs is None or not fits(ours, theirs):
            return
        self.done.add(node)
        ours = self._with_folded(ours)
        theirs = self._with_followers(theirs, ours)
        own = ours.layout.out_first(ours.weight.array) * ours.layout.alpha
        shape = theirs.layout.out_first(theirs.weight.array).shape
        undone = theirs.factor() * theirs.layout.alpha

        def as_theirs(by: Vector) -> NDArray[np.float64]:
            scaled = own * (by / undone).reshape(-1, *(1,) * (own.ndim - 1))
            return theirs.layout.back(scaled.reshape(shape), theirs.weight.array.shape)

        factor = ours.factor()
        is_folded = any(step.node not in self.nodes for step in ours.behind)
        yield self._found(
            node,
            node,
            "weight",
            (twin.inputs[1], theirs.weight),
            as_theirs(factor),
            unfolded=as_theirs(np.ones_like(factor)) if is_folded else None,
            channel_axis=theirs.layout.channel_axis(theirs.weight.array),
        )
        yield from self._biases(ours, theirs, is_folded=is_folded)

    def _with_folded(self, side: Side) -> Side:
        """Add what lies behind the reference operator, up to the last one without a counterpart."""
        behind = followers(
            self.ours,
            side.node,
            side.channels,
            side.layout.from_end(side.weight.array),
            lambda n: n not in self.nodes or n.op_type in ADDS,
        )
        while behind and not self._is_folded(behind[-1]):
            behind.pop()
        return replace(side, behind=tuple(behind))

    def _is_folded(self, step: Affine) -> bool:
        """Tell whether the candidate has nothing of its own for a step, and goes on behind it."""
        if step.node in self.nodes:
            return False
        goes_on = self.ours.core(step.node.outputs[0]) in self.matches.values
        return goes_on or step.node in self.matches.lost

    def _with_followers(self, side: Side, ours: Side) -> Side:
        """Add what lies behind the candidate operator, up to where it means the end of our chain."""
        last = ours.behind[-1].node if ours.behind else ours.node
        target = self.matches.values.get(self.ours.core(last.outputs[0]))
        start = self.theirs.core(side.node.outputs[0])
        if target is None or target is start:
            return side
        from_end = side.layout.from_end(side.weight.array)
        behind = followers(self.theirs, side.node, side.channels, from_end, lambda _: True)
        ends = [self.theirs.core(step.node.outputs[0]) for step in behind]
        count = ends.index(target) + 1 if target in ends else 0
        behind = behind[:count]
        if np.any(product(behind, side.channels) == 0):
            return side
        return replace(side, behind=tuple(behind))

    def _biases(self, ours: Side, theirs: Side, *, is_folded: bool) -> Iterator[_Found]:
        """Yield the places where the candidate holds the bias; each part goes to the place that means it."""
        slots = theirs.slots()
        names = {self.nodes[s.node]: s.node for s in ours.behind if s.node in self.nodes}
        self.done.update(names.values())
        parts = [(ours.node, ours.bias(), ours.factor())]
        for index, step in enumerate(ours.behind):
            parts.append((step.node, step.offset, product(ours.behind[index + 1 :], ours.channels)))
        if not slots:
            total = sum((part * gain for _, part, gain in parts), np.zeros(ours.channels))
            if np.any(total != 0) and self._has_no_bias(theirs):
                yield self._found(
                    ours.node, ours.node, "bias", (None, None), total, unfolded=None, channel_axis=0
                )
            return
        at = 0
        totals, plain = ([np.zeros(ours.channels) for _ in slots] for _ in range(2))
        for node, part, gain in parts:
            twin = self.nodes.get(node)
            at = next((i for i, slot in enumerate(slots) if slot.node is twin), at)
            totals[at] += part * gain
            plain[at] += part if node is ours.node or node in self.nodes else 0.0
        fixed = fixed_offset(theirs, slots)
        for index, slot in enumerate(slots):
            total = totals[index] - (fixed if index == 0 else 0.0)
            arrays = [_shaped(v / slot.gain, slot.known.array.shape) for v in (total, plain[index])]
            if arrays[0] is None or arrays[1] is None:
                continue
            owner = names.get(slot.node, ours.node)
            yield self._found(
                owner,
                ours.node,
                "bias",
                (slot.value, slot.known),
                arrays[0],
                unfolded=arrays[1] if is_folded else None,
                channel_axis=_long_axis(slot.known.array.shape),
                scales=self._scales(theirs) if slot.node is theirs.node else None,
            )

    def _has_no_bias(self, theirs: Side) -> bool:
        """Tell whether the candidate adds nothing at all, neither in the operator nor behind it."""
        node = theirs.node
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            return False
        readers = self.theirs.readers.get(self.theirs.core(node.outputs[0]), [])
        return not any(n.op_type in ADDS | {"BatchNormalization"} for n in readers)

    def _scales(self, theirs: Side) -> tuple[Array | None, Array | None]:
        weight = theirs.weight.quantization
        return _input_scale(theirs.node.inputs[0]), None if weight is None else weight.scale

    def _plain(self, node: ir.Node, twin: ir.Node) -> Iterator[_Found]:
        roles = _ROLES.get(node.op_type, {0: "weight", 1: "weight"} if node.op_type in MULTIPLIES else {})
        if node.op_type != twin.op_type or not roles:
            return
        ours, theirs = ([known_constant(v) for v in n.inputs] for n in (node, twin))
        order = list(range(len(theirs)))
        if (
            node.op_type in COMMUTATIVE
            and len(ours) == len(theirs) == 2
            and (ours[0] is None) != (theirs[0] is None)
        ):
            order.reverse()
        for index, role in roles.items():
            if index >= len(ours) or index >= len(order):
                continue
            known, value = theirs[order[index]], twin.inputs[order[index]]
            mine = ours[index]
            reference = None if mine is None or known is None else _aligned(mine.array, known.array.shape)
            if reference is None or known is None:
                continue
            axis = _long_axis(reference.shape)
            yield self._found(node, node, role, (value, known), reference, unfolded=None, channel_axis=axis)

    def _found(
        self,
        node: ir.Node,
        at: ir.Node,
        role: str,
        held: tuple[ir.Value | None, Known | None],
        reference: NDArray[np.float64],
        *,
        unfolded: NDArray[np.float64] | None,
        channel_axis: int | None,
        scales: tuple[Array | None, Array | None] | None = None,
    ) -> _Found:
        value, known = held
        pair = ConstantPair(
            layer=self.layer_of.get(node, self.layer_of[at]),
            node=node_name(node),
            op_type=node.op_type,
            role=role,
            value="" if value is None else value.name or "",
            reference=reference,
            candidate=np.zeros_like(reference) if known is None else known.array,
            integers=None if known is None else known.integers,
            quantization=None if known is None else known.quantization,
            unfolded=unfolded,
            channel_axis=channel_axis,
            input_scale=None if scales is None else scales[0],
            weight_scale=None if scales is None else scales[1],
        )
        initializer = "" if known is None else known.initializer.name or ""
        return self.order[at], initializer, pair


def _shaped(vector: Vector, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    """Return one number per channel in the shape in which they are held."""
    if vector.size == int(np.prod(shape)):
        return vector.reshape(shape)
    is_single = int(np.prod(shape)) == 1 and np.all(vector == vector[0])
    return vector[:1].reshape(shape) if is_single else None


def _aligned(reference: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    if reference.size == int(np.prod(shape)):
        return reference.reshape(shape)
    return np.broadcast_to(reference, shape).copy() if reference.size == 1 else None


def _long_axis(shape: tuple[int, ...]) -> int | None:
    """Return the only axis that is longer than one."""
    long = [axis for axis, size in enumerate(shape) if size > 1]
    return long[0] if len(long) == 1 else None


def _input_scale(value: ir.Value | None) -> Array | None:
    """Return the scale of the activation that an operator reads, if it is constant."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in _MOVES:
        value = node.inputs[0]
        node = None if value is None else value.producer()
    if node is None or node.op_type != "DequantizeLinear":
        return None
    quantization = read_quantization(node)
    return None if quantization is None else quantization.scale
