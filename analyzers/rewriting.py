"""Surgery on a candidate's graph, for everything that brings it into another form."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from analyzers.records import Array

INTEGER_TYPES = frozenset({ir.DataType.UINT8, ir.DataType.INT8, ir.DataType.UINT16, ir.DataType.INT16})


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Scale and zero point of an integer tensor, as values of the graph."""

    scale: ir.Value
    zero_point: ir.Value | None


class Rewriter:
    """Holds the graph under surgery and what is known of the scales of its integer tensors."""

    def __init__(self, model: ir.Model) -> None:
        self.graph = model.graph
        self.scales: dict[ir.Value, Scale] = {}
        self.anchor: ir.Node | None = None
        self.taken = {v.name for n in self.graph for v in n.outputs} | set(self.graph.initializers)

    def fresh(self, name: str) -> str:
        """Return a value name that is not taken."""
        candidate, count = name, 1
        while candidate in self.taken:
            candidate, count = f"{name}_{count}", count + 1
        self.taken.add(candidate)
        return candidate

    def add(
        self, op: str, inputs: list[ir.Value | None], name: str, attributes: dict[str, ir.Attr] | None = None
    ) -> ir.Value:
        """Insert a one-output node before the anchor and return its value."""
        assert self.anchor is not None
        output = self.fresh(name)
        node = ir.Node(
            "", op, inputs, list((attributes or {}).values()), num_outputs=1, name=f"{op}:{output}"
        )
        node.outputs[0].name = output
        self.graph.insert_before(self.anchor, node)
        return node.outputs[0]

    def constant(self, array: Array, name: str) -> ir.Value:
        """Register an initializer."""
        value = ir.val(self.fresh(name), const_value=ir.tensor(array))
        self.graph.register_initializer(value)
        return value

    def dequantize(
        self, x: ir.Value | None, scale: ir.Value | None, zero: ir.Value | None, *, axis: int | None = None
    ) -> ir.Value:
        """Return the float value of an integer tensor."""
        assert x is not None
        assert scale is not None
        attributes = {} if axis is None else {"axis": ir.AttrInt64("axis", axis)}
        return self.add("DequantizeLinear", [x, scale, zero], f"{x.name}_DequantizeLinear_Output", attributes)

    def quantize_into(self, value: ir.Value, scale: Scale, target: ir.Value) -> None:
        """Quantize ``value`` and let the result take the place and name of ``target``."""
        stored = self.add("QuantizeLinear", [value, scale.scale, scale.zero_point], f"{target.name}_stored")
        name = target.name
        target.replace_all_uses_with(stored, replace_graph_outputs=True)
        target.name = self.fresh(f"{name}_replaced")
        stored.name = name
        stored.type, stored.shape = target.type, target.shape
        self.scales[stored] = scale
