"""Fold BatchNormalizations into the convolutions before them, rightly or with a mistake."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

MISTAKES = ("no_gamma", "no_variance", "variance_for_deviation", "no_mean", "no_beta", "twice")


def norms_of(model: onnx.ModelProto) -> dict[str, str]:
    """Return Conv -> BatchNormalization that reads it alone, by node name."""
    made = {output: node for node in model.graph.node for output in node.output}
    return {
        made[node.input[0]].name: node.name
        for node in model.graph.node
        if node.op_type == "BatchNormalization" and made[node.input[0]].op_type == "Conv"
    }


def folded(model: onnx.ModelProto, mistakes: Mapping[str, str] | None = None) -> onnx.ModelProto:
    """Return the network without BatchNormalizations that follow a Conv.

    Args:
        model: Float network.
        mistakes: Conv -> one of ``MISTAKES``.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    constants = {t.name: numpy_helper.to_array(t) for t in result.graph.initializer}
    nodes = {node.name: node for node in result.graph.node}
    for conv_name, norm_name in norms_of(result).items():
        conv, norm = nodes[conv_name], nodes[norm_name]
        gamma, beta, mean, variance = (constants[name].astype(np.float64) for name in norm.input[1:5])
        epsilon = next((a.f for a in norm.attribute if a.name == "epsilon"), 1e-5)
        mistake = (mistakes or {}).get(conv_name, "")
        deviation = np.sqrt(variance + epsilon)
        factor = gamma / deviation
        offset = beta - mean * factor
        if mistake == "no_gamma":
            factor = 1 / deviation
        elif mistake == "no_variance":
            factor = gamma
        elif mistake == "variance_for_deviation":
            factor = gamma / (variance + epsilon)
        elif mistake == "twice":
            factor = factor**2
        elif mistake == "no_mean":
            offset = beta
        elif mistake == "no_beta":
            offset = -mean * factor
        weight = constants[conv.input[1]].astype(np.float64)
        bias = constants[conv.input[2]] if len(conv.input) > 2 and conv.input[2] else 0.0
        scaled = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
        _replace(result, conv.input[1], scaled)
        bias_name = f"{conv.input[1]}_folded_bias"
        result.graph.initializer.append(
            numpy_helper.from_array((bias * factor + offset).astype(np.float32), bias_name)
        )
        conv.input[2:] = [bias_name]
        conv.output[0] = norm.output[0]
        result.graph.node.remove(norm)
    used = {name for node in result.graph.node for name in node.input}
    for tensor in [t for t in result.graph.initializer if t.name not in used]:
        result.graph.initializer.remove(tensor)
    return result


def _replace(model: onnx.ModelProto, name: str, array: np.ndarray) -> None:
    tensor = next(t for t in model.graph.initializer if t.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(array, np.float32, order="C"), name))
