"""How the channels of a weight were reordered and scaled, and whether the next layer makes up for it.

Converters equalize neighbouring layers (a factor per channel, its inverse in the next weights) and reorder
channels. Each weight alone then looks wrong, and repairing one alone makes things worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import onnx_ir as ir

from analyzers.array_relations import UNEXPLAINED, Values, same_channels, unexplained
from analyzers.constant_errors import misfits
from analyzers.evidence import ConstantPair, Evidence
from analyzers.graph import node_name
from analyzers.skeleton import Skeleton

SAME_GAIN = 0.1  # factors that differ by less cancel: rounding moves those of small channels by some percent
_LINEAR = frozenset({"Conv", "Gemm", "MatMul"})
# What keeps channels apart, and lets a positive factor pass; of several inputs if all were changed alike.
_PASSES_FACTORS = frozenset(
    "Relu LeakyRelu PRelu MaxPool AveragePool GlobalAveragePool GlobalMaxPool Identity Dropout Flatten "
    "Reshape Squeeze Unsqueeze Resize Upsample Pad ReduceMean Add Sub Sum Max Min".split()
)
_PASSES_ORDER = _PASSES_FACTORS | frozenset(
    "Clip Sigmoid Tanh HardSwish HardSigmoid Elu Selu Gelu Erf Softplus Mish Exp Abs Pow Mul Div".split()
)


@dataclass(frozen=True, slots=True, eq=False)
class ChannelMap:
    """Channel ``i`` of the candidate is ``factor[i]`` times channel ``order[i]`` of the reference."""

    order: tuple[int, ...]
    factor: Values

    @property
    def is_plain(self) -> bool:
        """Nothing was moved or scaled."""
        return self.order == tuple(range(len(self.order))) and bool(
            np.all(np.abs(self.factor - 1) < SAME_GAIN)
        )

    def is_same(self, other: ChannelMap) -> bool:
        """Tell whether another change is this one."""
        return self.order == other.order and bool(np.all(np.abs(self.factor / other.factor - 1) < SAME_GAIN))


@dataclass(frozen=True, slots=True, eq=False)
class Compensated:
    """A consistent change of neighbouring layers.

    Attributes:
        maker: Constants whose output channels were changed.
        readers: Weights that make up for it.
        change: What was done to the channels.
    """

    maker: tuple[ConstantPair, ...]
    readers: tuple[ConstantPair, ...]
    change: ChannelMap


def channel_map(reference: Values, candidate: Values, allowed: float = UNEXPLAINED) -> ChannelMap | None:
    """Return how the rows of one array follow from those of another, or None if they do not.

    Args:
        reference: One row per channel.
        candidate: The same shape.
        allowed: Share of the candidate's energy that may be left, for rounding.
    """
    if reference.shape != candidate.shape or reference.ndim != 2 or not np.all(np.isfinite(candidate)):
        return None
    order = tuple(range(len(reference)))
    factor = _factors(reference, candidate)
    if unexplained(reference * factor[:, None], candidate) > allowed:
        found = same_channels(reference, candidate)
        if found is None:
            return None
        order, moved = found, reference[list(found)]
        factor = _factors(moved, candidate)
        if unexplained(moved * factor[:, None], candidate) > allowed:
            return None
    # A channel that is lost, or has the other sign, cannot be made up for behind an activation.
    return ChannelMap(order, factor) if np.all(factor > 0) else None


def _factors(reference: Values, candidate: Values) -> Values:
    energy = (reference**2).sum(axis=1)
    is_dead = energy <= 0
    factor = (reference * candidate).sum(axis=1) / np.where(is_dead, 1.0, energy)
    return np.where(is_dead, 1.0, factor)


@lru_cache(maxsize=1)
def compensated(evidence: Evidence) -> tuple[Compensated, ...]:
    """Return the changes of output channels that all readers make up for."""
    return tuple(_Search(evidence).run())


class _Search:
    def __init__(self, evidence: Evidence) -> None:
        self.ours: Skeleton = evidence.pair.paired.ours
        self.twins = evidence.pair.paired.matches.nodes  # what has none was folded or absorbed
        self.weights = {c.node: c for c in evidence.constants if c.role == "weight" and c.op_type in _LINEAR}
        self.biases = {c.node: c for c in evidence.constants if c.role == "bias"}
        self.wrong = {m.constant.node for m in misfits(evidence) if m.is_beyond}
        self.allowed = {id(m.constant): max(UNEXPLAINED, 4 * m.rounding) for m in misfits(evidence)}

    def run(self) -> Iterator[Compensated]:
        """Look at every weight that is wrong."""
        for node in self.ours.nodes:
            name = node_name(node)
            weight = self.weights.get(name)
            if weight is None or name not in self.wrong or self._is_depthwise(node, weight):
                continue
            change = self._out_map(weight)
            if change is None or change.is_plain or not self._bias_fits(name, change):
                continue
            readers = self._readers(node, change)
            if readers:
                bias = [self.biases[name]] if name in self.biases else []
                yield Compensated((weight, *bias), tuple(readers), change)

    def _bias_fits(self, name: str, change: ChannelMap) -> bool:
        bias = self.biases.get(name)
        if bias is None or bias.reference.size != len(change.order):
            return bias is None
        expected = bias.reference.reshape(-1)[list(change.order)] * change.factor
        return not np.any(expected) or unexplained(expected, bias.candidate.reshape(-1)) <= UNEXPLAINED

    def _readers(self, node: ir.Node, change: ChannelMap) -> list[ConstantPair] | None:
        """Return the weights that make up for a change, or None if one reader does not."""
        found: list[ConstantPair] = []
        changed = {self.ours.core(node.outputs[0]): change}
        for reader in self.ours.nodes:
            data = [v for v in self.ours.data_inputs(reader) if v is not None]
            known = [changed[v] for v in data if v in changed]
            if not known:
                continue
            weight = self.weights.get(node_name(reader))
            if weight is not None and not self._is_depthwise(reader, weight):
                if not _makes_up(weight, known[0], self.allowed[id(weight)]):
                    return None
                found.append(weight)
                continue
            is_one = len(known) == len(data) and all(k.is_same(known[0]) for k in known)
            passed = known[0] if weight is None else self._through(weight, known[0])
            is_passing = weight is not None or reader not in self.twins or _passes(reader, known[0])
            if not is_one or passed is None or not is_passing:
                return None
            found += [] if weight is None else [weight]
            changed.update((self.ours.core(v), passed) for v in reader.outputs)
        leaves = any(self.ours.core(v) in changed for v in node.graph.outputs) if node.graph else True
        return None if leaves else found

    def _through(self, weight: ConstantPair, change: ChannelMap) -> ChannelMap | None:
        """Return what a depthwise convolution, which may have been changed too, makes of a change."""
        own = self._out_map(weight)
        if own is None or own.order != change.order:
            return None
        return ChannelMap(change.order, change.factor * own.factor)

    def _out_map(self, weight: ConstantPair) -> ChannelMap | None:
        ours, theirs = (_out_rows(weight, array) for array in (weight.reference, weight.candidate))
        return channel_map(ours, theirs, self.allowed[id(weight)])

    def _is_depthwise(self, node: ir.Node, weight: ConstantPair) -> bool:
        group = node.attributes.get("group")
        return group is not None and group.as_int() > 1 and group.as_int() == weight.reference.shape[0]


def _passes(node: ir.Node, change: ChannelMap) -> bool:
    """Tell whether an operator keeps channels apart, and lets their factors pass."""
    is_scaled = bool(np.any(np.abs(change.factor - 1) >= SAME_GAIN))
    return node.op_type in (_PASSES_FACTORS if is_scaled else _PASSES_ORDER)


def _out_rows(weight: ConstantPair, array: Values) -> Values:
    axis = weight.channel_axis or 0
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


def in_rows(weight: ConstantPair, array: Values, channels: int) -> Values | None:
    """Return an array with the input channels as rows; features of one channel stay together."""
    axis = in_axis(weight)
    if axis is None or array.shape[axis] % channels:
        return None
    front = np.moveaxis(array, axis, 0)
    return front.reshape(channels, -1)


def in_axis(weight: ConstantPair) -> int | None:
    """Return the axis of a weight that runs over the input channels."""
    if weight.op_type not in _LINEAR and weight.op_type != "ConvTranspose":
        return None
    if weight.channel_axis is None or weight.reference.ndim < 2:
        return None
    if weight.op_type in {"Gemm", "MatMul"}:
        rank = weight.reference.ndim
        return rank - 1 if weight.channel_axis == rank - 2 else rank - 2
    return 1 - weight.channel_axis


def _makes_up(weight: ConstantPair, change: ChannelMap, allowed: float) -> bool:
    """Tell whether a weight takes its input channels as the change leaves them."""
    channels = len(change.order)
    ours, theirs = (in_rows(weight, array, channels) for array in (weight.reference, weight.candidate))
    if ours is None or theirs is None or not np.all(np.isfinite(theirs)):
        return False
    expected = ours[list(change.order)] / change.factor[:, None]
    return unexplained(expected, theirs) <= allowed


def axis_names(weight: ConstantPair) -> Sequence[str]:
    """Return words for the axes of a weight."""
    rank = weight.reference.ndim
    kernel = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}.get(rank - 2, ())
    names = [f"axis {i}" for i in range(rank)]
    into = in_axis(weight)
    if into is not None and weight.channel_axis is not None:
        names[weight.channel_axis], names[into] = "out", "in"
        if "Conv" in weight.op_type:
            names[2:] = kernel or names[2:]
    return names
