"""Write down the zero points that a file leaves out.

onnxruntime's conversion of int8 weights to uint8 (``session.x64quantprecision``) adds a single zero point to
a DequantizeLinear that has none, and then refuses it beside a scale per channel.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir as ir


def write_zero_points(graphs: Iterable[ir.Graph]) -> None:
    """Add zeros to each DequantizeLinear of a constant int8 tensor that has a scale per channel or block."""
    for graph in graphs:
        for node in graph:
            if node.op_type == "DequantizeLinear" and len(node.inputs) == 2:
                _complete(graph, node)


def _complete(graph: ir.Graph, node: ir.Node) -> None:
    integers, scale = node.inputs
    if integers is None or scale is None or integers.dtype != ir.DataType.INT8 or scale.const_value is None:
        return
    shape = tuple(scale.const_value.shape.numpy())
    if not shape:
        return
    name = f"{node.outputs[0].name}_zero_point"
    zeros = graph.initializers.get(name)
    if zeros is None:
        zeros = ir.val(name, const_value=ir.tensor(np.zeros(shape, np.int8)))
        graph.register_initializer(zeros)
    node.resize_inputs(3)
    node.replace_input_with(2, zeros)
