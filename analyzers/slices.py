"""Parts of a tensor that have a meaning of their own: what Concats join, carried on to wherever it lands.

A whole-tensor number hides a dead branch: boxes of 0..1500 and scores of 0..1 in one output have cosine
0.9998 while every score is lost. Parts start at Concats and are followed through the operators behind them.
Where a shape or a mapping cannot be proven there is no slice; nothing is guessed from names or sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import onnx_ir as ir
from onnx_ir.passes import common

from analyzers.graph import constant_array
from analyzers.records import Slice
from analyzers.shape_arithmetic import infer_static_shapes

MAX_SLICES = 64  # per tensor; more would not be parts with a meaning

_Dims = tuple[int | str | None, ...]
_Parts = tuple[Slice, ...]
_Known = dict[ir.Value, _Parts]

_ELEMENTWISE = frozenset(
    """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift Cast CastLike Ceil Celu Clip Cos Cosh
    DequantizeLinear Div Dropout Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid
    HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or
    PRelu Pow QuantizeLinear Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub
    Sum Swish Tan Tanh ThresholdedRelu Where Xor
    """.split()
)
_RESHAPING = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_ALONG_LAST_AXES = frozenset({"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization"})


def output_slices(model: ir.Model) -> dict[str, tuple[Slice, ...]]:
    """Return the parts of each graph output; outputs without parts have an empty tuple."""
    parts = tensor_slices(model)
    return {value.name or "": parts.get(value.name or "", ()) for value in model.graph.outputs}


def tensor_slices(model: ir.Model) -> dict[str, tuple[Slice, ...]]:
    """Return the parts of every tensor of the main graph that has some.

    The model is left as it is; shapes are inferred on a copy.
    """
    copy = model.clone()
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(copy)
    infer_static_shapes(copy)
    known: _Known = {}
    for node in copy.graph:
        for value in node.outputs:
            parts = _tidy(_parts(node, value, known), _dims(value))
            if parts:
                known[value] = parts
    return {value.name or "": parts for value, parts in known.items()}


def _parts(node: ir.Node, value: ir.Value, known: _Known) -> Iterable[Slice]:
    if node.domain not in ("", "ai.onnx"):
        return ()
    if node.op_type in _ELEMENTWISE:
        return _through_elementwise(node, value, known)
    rule = _RULES.get(node.op_type)
    return () if rule is None else rule(node, value, known)


def _tidy(parts: Iterable[Slice], dims: _Dims | None) -> _Parts:
    """Drop parts that are empty, doubled, or the whole tensor."""
    if dims is None:
        return ()
    found: dict[tuple[int, int, int], Slice] = {}
    for part in parts:
        size = dims[part.axis]
        if isinstance(size, int) and part.start < part.stop <= size and part.stop - part.start < size:
            found.setdefault((part.axis, part.start, part.stop), part)
    return tuple(found.values())[:MAX_SLICES]


def _dims(value: ir.Value | None) -> _Dims | None:
    if value is None or value.shape is None:
        return None
    return tuple(d if isinstance(d, int) else d.value for d in value.shape)


def _through_elementwise(node: ir.Node, value: ir.Value, known: _Known) -> Iterable[Slice]:
    ours = _dims(value)
    for source in node.inputs:
        theirs = _dims(source)
        if ours is None or theirs is None or source not in known:
            continue
        lead = len(ours) - len(theirs)
        for part in known[source]:
            axis = part.axis + lead
            if axis >= 0 and ours[axis] == theirs[part.axis]:
                yield Slice(axis, part.start, part.stop, part.name)


def _through_concat(node: ir.Node, value: ir.Value, known: _Known) -> Iterable[Slice]:
    dims = _dims(value)
    sources = [source for source in node.inputs if source is not None]
    if dims is None or not sources:
        return ()
    axis = node.attributes.get_int("axis", 0) % len(dims)
    joined: list[Slice] = []
    nested: list[Slice] = []
    offset = 0
    for source in sources:
        theirs = _dims(source)
        size = None if theirs is None else theirs[axis]
        if not isinstance(size, int):
            return ()
        joined.append(Slice(axis, offset, offset + size, source.name or ""))
        nested.extend(
            Slice(axis, offset + part.start, offset + part.stop, part.name)
            for part in known.get(source, ())
            if part.axis == axis
        )
        offset += size
    return (*joined, *nested, *_shared([known.get(source, ()) for source in sources], axis))


def _shared(parts: list[_Parts], axis: int) -> Iterable[Slice]:
    """Yield the parts across the join that every joined tensor has: the boxes of all scales, say."""
    places = [{(p.axis, p.start, p.stop): p.name for p in some if p.axis != axis} for some in parts]
    for place in places[0]:
        if all(place in others for others in places):
            names = dict.fromkeys(others[place] for others in places)
            yield Slice(*place, name=" + ".join(names))


def _through_transpose(node: ir.Node, _: ir.Value, known: _Known) -> Iterable[Slice]:
    parts = known.get(_first(node), ())
    dims = _dims(node.inputs[0])
    if not parts or dims is None:
        return
    permutation = node.attributes.get_ints("perm", tuple(reversed(range(len(dims)))))
    for part in parts:
        yield Slice(list(permutation).index(part.axis), part.start, part.stop, part.name)


def _through_reshape(node: ir.Node, value: ir.Value, known: _Known) -> Iterable[Slice]:
    before, after = _dims(node.inputs[0]), _dims(value)
    parts = known.get(_first(node), ())
    if not parts or before is None or after is None:
        return
    groups = _reshape_groups(before, after)
    for part in parts:
        for ours, theirs in groups:
            if part.axis in ours:
                moved = _move(part, ours, theirs, before, after)
                if moved is not None:
                    yield moved


def _reshape_groups(before: _Dims, after: _Dims) -> list[tuple[range, range]]:
    """Split both shapes into runs of axes with equal products; empty where that cannot be proven."""
    before, after = _named_alike(before, after)
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        first, second = i, j
        left, right = before[i], after[j]
        i, j = i + 1, j + 1
        while left != right:
            if not isinstance(left, int) or not isinstance(right, int):
                return []
            if left < right:
                more, i = (before[i] if i < len(before) else None), i + 1
                if not isinstance(more, int):
                    return []
                left *= more
            else:
                more, j = (after[j] if j < len(after) else None), j + 1
                if not isinstance(more, int):
                    return []
                right *= more
        if left is None or left == 0:
            return []
        groups.append((range(first, i), range(second, j)))
    rest = (*before[i:], *after[j:])
    return groups if all(d == 1 for d in rest) else []


def _named_alike(before: _Dims, after: _Dims) -> tuple[_Dims, _Dims]:
    """Give the single unknown axis of each shape one name where the sizes of the others prove them equal."""
    unknown = [[i for i, d in enumerate(dims) if not isinstance(d, int)] for dims in (before, after)]
    if any(len(some) != 1 for some in unknown):
        return before, after
    known = [math.prod(d for d in dims if isinstance(d, int)) for dims in (before, after)]
    if known[0] != known[1] or not known[0]:
        return before, after
    i, j = unknown[0][0], unknown[1][0]
    return (*before[:i], "same", *before[i + 1 :]), (*after[:j], "same", *after[j + 1 :])


def _move(part: Slice, ours: range, theirs: range, before: _Dims, after: _Dims) -> Slice | None:
    """Carry a part over if it is one run of values in its group and of the new leading axis."""
    if len(ours) == len(theirs) == 1:
        return Slice(theirs[0], part.start, part.stop, part.name)
    old = [d for d in (before[i] for i in ours) if isinstance(d, int)]
    new = [d for d in (after[j] for j in theirs) if isinstance(d, int)]
    if len(old) != len(ours) or len(new) != len(theirs):
        return None
    place = part.axis - ours[0]
    if math.prod(old[:place]) != 1:
        return None
    inner = math.prod(old[place + 1 :])
    start, stop = part.start * inner, part.stop * inner
    lead = next((j for j, d in enumerate(new) if d > 1), 0)
    step = math.prod(new[lead + 1 :])
    if start % step or stop % step:
        return None
    return Slice(theirs[lead], start // step, stop // step, part.name)


def _through_slice(node: ir.Node, _: ir.Value, known: _Known) -> Iterable[Slice]:
    dims = _dims(node.inputs[0])
    parts = known.get(_first(node), ())
    if not parts or dims is None:
        return ()
    ranges = _slice_ranges(node, dims)
    return () if ranges is None else _cut(parts, ranges)


def _slice_ranges(node: ir.Node, dims: _Dims) -> dict[int, tuple[int, int]] | None:
    given = [constant_array(v) for v in node.inputs[1:]]
    starts, ends = given[0], given[1]
    if starts is None or ends is None:
        return None
    axes = given[2] if len(given) > 2 and node.inputs[3] is not None else range(len(starts))
    steps = given[3] if len(given) > 3 and node.inputs[4] is not None else [1] * len(starts)
    if axes is None or steps is None or any(int(s) != 1 for s in steps):
        return None
    ranges: dict[int, tuple[int, int]] = {}
    for axis, start, end in zip(axes, starts, ends, strict=True):
        place = int(axis) % len(dims)
        size = dims[place]
        if not isinstance(size, int):
            return None
        ranges[place] = slice(int(start), int(end)).indices(size)[:2]
    return ranges


def _through_split(node: ir.Node, value: ir.Value, known: _Known) -> Iterable[Slice]:
    dims = _dims(node.inputs[0])
    parts = known.get(_first(node), ())
    if not parts or dims is None:
        return ()
    axis = node.attributes.get_int("axis", 0) % len(dims)
    offset = 0
    for output in node.outputs:
        theirs = _dims(output)
        size = None if theirs is None else theirs[axis]
        if not isinstance(size, int):
            return ()
        if output is value:
            return _cut(parts, {axis: (offset, offset + size)})
        offset += size
    return ()


def _cut(parts: _Parts, ranges: Mapping[int, tuple[int, int]]) -> Iterable[Slice]:
    for part in parts:
        low, high = ranges.get(part.axis, (0, part.stop))
        yield Slice(part.axis, max(part.start, low) - low, min(part.stop, high) - low, part.name)


def _through_normalization(node: ir.Node, _: ir.Value, known: _Known) -> Iterable[Slice]:
    """Values mix along the operator's axis (and, in old opsets, all axes behind it)."""
    dims = _dims(node.inputs[0])
    if dims is None:
        return ()
    axis = node.attributes.get_int("axis", -1) % len(dims)
    return (part for part in known.get(_first(node), ()) if part.axis < axis)


def _first(node: ir.Node) -> ir.Value:
    value = node.inputs[0]
    assert value is not None
    return value


_Rule = Callable[[ir.Node, ir.Value, _Known], Iterable[Slice]]
_RULES: dict[str, _Rule] = {
    "Concat": _through_concat,
    "Transpose": _through_transpose,
    "Slice": _through_slice,
    "Split": _through_split,
    **dict.fromkeys(_RESHAPING, _through_reshape),
    **dict.fromkeys(_ALONG_LAST_AXES, _through_normalization),
}
