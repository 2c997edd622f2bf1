"""Fold operators that only re-lay constants out, so that what they make is a constant too.

Quantizers reshape a bias in the graph before they add it; whoever looks for constants should see one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from analyzers.graph import constant_array
from analyzers.records import Array


def fold_layouts(graph: ir.Graph) -> bool:
    """Fold them in place; tell whether there were any."""
    is_changed = False
    for node in list(graph):
        fold = _FOLDS.get(node.op_type)
        if fold is None or node.domain != "" or node.outputs[0].is_graph_output():
            continue
        arrays = [constant_array(v) for v in node.inputs if v is not None]
        known = [a for a in arrays if a is not None]
        if len(known) != len(arrays):
            continue
        result = fold(node, known)
        if result is None:
            continue
        output = node.outputs[0]
        name, output.name = output.name or "", f"{output.name}_folded"
        value = ir.val(name, const_value=ir.tensor(np.ascontiguousarray(result)))
        output.replace_all_uses_with(value)
        graph.remove(node, safe=True)
        graph.register_initializer(value)
        is_changed = True
    return is_changed


def _reshape(_: ir.Node, arrays: Sequence[Array]) -> Array | None:
    if len(arrays) != 2:
        return None
    sizes = [int(d) for d in arrays[1]]
    sizes = [arrays[0].shape[i] if d == 0 and i < arrays[0].ndim else d for i, d in enumerate(sizes)]
    try:
        return arrays[0].reshape(sizes)
    except ValueError:
        return None


def _unsqueeze(node: ir.Node, arrays: Sequence[Array]) -> Array | None:
    axes = _axes(node, arrays)
    return None if axes is None else np.expand_dims(arrays[0], axes)


def _squeeze(node: ir.Node, arrays: Sequence[Array]) -> Array | None:
    axes = _axes(node, arrays)
    return arrays[0].squeeze() if axes is None else arrays[0].squeeze(axes)


def _axes(node: ir.Node, arrays: Sequence[Array]) -> tuple[int, ...] | None:
    if len(arrays) > 1:
        return tuple(int(a) for a in arrays[1])
    attribute = node.attributes.get("axes")
    return None if attribute is None else tuple(attribute.as_ints())


def _transpose(node: ir.Node, arrays: Sequence[Array]) -> Array:
    attribute = node.attributes.get("perm")
    return arrays[0].transpose(None if attribute is None else tuple(attribute.as_ints()))


_FOLDS: dict[str, Callable[[ir.Node, Sequence[Array]], Array | None]] = {
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Identity": lambda _, arrays: arrays[0],
}
