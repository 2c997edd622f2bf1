"""Small changes to a quantized model on disk, of the kind that converters make by mistake."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from analyzers.records import Array


class Patient:
    """A model that is being changed; written back by ``save``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.model = onnx.load(path)

    @property
    def graph(self) -> onnx.GraphProto:
        """Its graph."""
        return self.model.graph

    def node(self, name: str) -> onnx.NodeProto:
        """Return the node of that name."""
        return next(n for n in self.graph.node if n.name == name)

    def maker(self, value: str) -> onnx.NodeProto:
        """Return the node that makes a value."""
        return next(n for n in self.graph.node if value in n.output)

    def constant(self, name: str) -> Array:
        """Return an initializer."""
        array: Array = numpy_helper.to_array(next(t for t in self.graph.initializer if t.name == name))
        return array

    def put(self, name: str, array: Array) -> str:
        """Set an initializer, new or known, and return its name."""
        for tensor in self.graph.initializer:
            if tensor.name == name:
                tensor.CopyFrom(numpy_helper.from_array(array, name))
                return name
        self.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def tell(self, name: str, **attributes: object) -> None:
        """Set attributes of a node."""
        node = self.node(name)
        kept = [a for a in node.attribute if a.name not in attributes]
        del node.attribute[:]
        node.attribute.extend(kept)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())

    def insert_before(self, name: str, nodes: Sequence[onnx.NodeProto]) -> None:
        """Insert nodes before a node."""
        place = next(i for i, n in enumerate(self.graph.node) if n.name == name)
        for offset, node in enumerate(nodes):
            self.graph.node.insert(place + offset, node)

    def bypass(self, name: str) -> None:
        """Remove a node; what reads its output reads its first input instead."""
        node = self.node(name)
        source, output = node.input[0], node.output[0]
        self.graph.node.remove(node)
        for other in self.graph.node:
            other.input[:] = [source if value == output else value for value in other.input]

    def save(self) -> Path:
        """Check and write the model."""
        del self.graph.value_info[:]
        onnx.checker.check_model(self.model)
        onnx.save(self.model, self.path)
        return self.path


def steps(array: Sequence[int]) -> Array:
    """Return int64 numbers for an input that steers an operator."""
    return np.array(array, dtype=np.int64)
