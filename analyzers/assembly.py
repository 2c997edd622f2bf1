"""Build a new graph out of pieces of two others, on demand.

A *recipe* says for a key which other keys it needs and how to make its value from theirs; the assembler
resolves keys depth first without recursion, so nodes come out in topological order and nothing that is not
needed is ever made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from analyzers.graph import captured_values, constant_array, subgraphs
from analyzers.records import Array

Made = tuple[ir.Value | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How to make the values of one key: ``needs`` are resolved first and handed to ``make`` in order."""

    needs: tuple[Hashable, ...]
    make: Callable[[Sequence[Made]], Made]


class Assembler:
    """Collects nodes and initializers of the graph that is being built."""

    def __init__(self, reserved: Sequence[str]) -> None:
        self.nodes: list[ir.Node] = []
        self.initializers: list[ir.Value] = []
        self._done: dict[Hashable, Made] = {}
        self._taken = set(reserved)
        self._node_names: set[str] = set()
        self._constants: dict[Hashable, ir.Value] = {}

    def resolve(self, key: Hashable, recipe_of: Callable[[Hashable], Recipe]) -> Made:
        """Return the values of a key, making whatever it needs first."""
        stack: list[tuple[Hashable, Recipe]] = [(key, recipe_of(key))]
        while stack:
            current, recipe = stack[-1]
            missing = [need for need in recipe.needs if need not in self._done]
            if current in self._done:
                stack.pop()
            elif missing:
                assert len(stack) < 1_000_000, "a recipe needs itself"
                stack.extend((need, recipe_of(need)) for need in missing)
            else:
                self._done[current] = recipe.make([self._done[need] for need in recipe.needs])
                stack.pop()
        return self._done[key]

    def value_name(self, wanted: str) -> str:
        """Return a value name that is free, and take it."""
        name, count = wanted, 1
        while name in self._taken:
            name, count = f"{wanted}_{count}", count + 1
        self._taken.add(name)
        return name

    def node_name(self, wanted: str) -> str:
        """Return a node name that is free, and take it."""
        name, count = wanted, 1
        while name in self._node_names:
            name, count = f"{wanted}_{count}", count + 1
        self._node_names.add(name)
        return name

    def constant(
        self, source: ir.Value, *, suffix: str = "", change: Callable[[Array], Array] | None = None
    ) -> ir.Value:
        """Return the initializer of a constant of one of the source graphs, optionally changed."""
        key = (source, suffix)
        if key not in self._constants:
            tensor = source.const_value
            if change is not None:
                array = constant_array(source)
                assert array is not None
                tensor = ir.tensor(change(array))
            value = ir.Value(name=self.value_name(f"{source.name}{suffix}"), const_value=tensor)
            if tensor is not None:
                value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(list(tensor.shape.numpy()))
            self._constants[key] = value
            self.initializers.append(value)
        return self._constants[key]

    def array(self, array: Array, name: str) -> ir.Value:
        """Return a new initializer."""
        value = ir.val(self.value_name(name), const_value=ir.tensor(array))
        self.initializers.append(value)
        return value

    def emit(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        name: str,
        attributes: Sequence[ir.Attr] = (),
        *,
        dtype: ir.DataType | None = None,
    ) -> ir.Value:
        """Add a node with one output and return the output."""
        node = ir.Node("", op_type, inputs, attributes=attributes, num_outputs=1, name=self.node_name(name))
        node.outputs[0].name = self.value_name(name)
        if dtype is not None:
            node.outputs[0].type = ir.TensorType(dtype)
        self.nodes.append(node)
        return node.outputs[0]

    def copy_node(self, node: ir.Node, values: Sequence[ir.Value | None], *, suffix: str = "") -> Made:
        """Copy a node; ``values`` are its inputs, then the values that its subgraphs capture."""
        inputs = values[: len(node.inputs)]
        captured = dict(zip(captured_values(node), values[len(node.inputs) :], strict=True))
        attributes = [self._with_own_names(_remapped(a, captured)) for a in node.attributes.values()]
        copy = ir.Node(
            node.domain,
            node.op_type,
            inputs,
            attributes=attributes,
            num_outputs=len(node.outputs),
            name=self.node_name(f"{node.name}{suffix}"),
        )
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            new.name = self.value_name(f"{old.name}{suffix}") if old.name else ""
            new.type, new.shape = old.type, anonymous(old.shape)
        self.nodes.append(copy)
        return tuple(copy.outputs)

    def _with_own_names(self, attribute: ir.Attr) -> ir.Attr:
        """Give what a body computes names that no outer graph has: bodies may not hide outer values."""
        if attribute.type == ir.AttributeType.GRAPH:
            self._rename_inside(attribute.as_graph())
        return attribute

    def _rename_inside(self, graph: ir.Graph) -> None:
        own = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
        for value in dict.fromkeys(own):
            if value.name:
                value.name = self.value_name(value.name)
        for node in graph:
            for inner in subgraphs(node):
                self._rename_inside(inner)

    def rename(self, value: ir.Value, name: str) -> None:
        """Give a value a reserved name."""
        value.name = name

    def finish(
        self, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], like: Sequence[ir.Model], name: str
    ) -> ir.Model:
        """Return the model; opset imports are the newest of the source models'."""
        imports: dict[str, int] = {}
        for model in like:
            for domain, version in model.graph.opset_imports.items():
                imports[domain] = max(version, imports.get(domain, 0))
        graph = ir.Graph(
            list(inputs),
            list(outputs),
            nodes=self.nodes,
            initializers=self.initializers,
            opset_imports=imports,
            name=name,
        )
        version = max([8, *(m.ir_version for m in like)])
        return ir.Model(graph, ir_version=version, producer_name="tearline")


def anonymous(shape: ir.Shape | None) -> ir.Shape | None:
    """Return a shape whose dynamic dims have no names.

    Shape inference calls them alike in both graphs, and onnxruntime reuses memory by these names.
    """
    return None if shape is None else ir.Shape([d if isinstance(d, int) else None for d in shape])


def _remapped(attribute: ir.Attr, captured: dict[ir.Value, ir.Value | None]) -> ir.Attr:
    if attribute.type != ir.AttributeType.GRAPH:
        return attribute
    # Always a copy: the same node may be copied twice, and a body belongs to one node.
    graph = attribute.as_graph().clone(allow_outer_scope_values=True)
    _replace_captured(graph, captured)
    return ir.AttrGraph(attribute.name, graph)


def _replace_captured(graph: ir.Graph, captured: dict[ir.Value, ir.Value | None]) -> None:
    for node in graph:
        for index, value in enumerate(node.inputs):
            if value is not None and value in captured:
                node.replace_input_with(index, captured[value])
        for inner in subgraphs(node):
            _replace_captured(inner, captured)
    for index, value in enumerate(graph.outputs):
        new = captured.get(value)
        if new is not None:
            graph.outputs[index] = new


def to_half(array: Array) -> Array:
    """Round to half precision and back; values beyond 65504 become infinite."""
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(array.dtype)
