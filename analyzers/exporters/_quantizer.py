"""How the candidate was quantized, in the words of onnxruntime's ``quantize_static``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from analyzers.graph import constant_array, is_constant
from analyzers.project import Pair
from analyzers.records import QuantFormat, QuantizeOptions
from analyzers.search_file import SearchFile
from analyzers.skeleton import read_quantization

QuantType = Literal["QInt8", "QUInt8", "QInt16", "QUInt16"]
_TYPES: dict[str, QuantType] = {"int8": "QInt8", "uint8": "QUInt8", "int16": "QInt16", "uint16": "QUInt16"}
_INTEGER_OPERATORS = "QLinear"


@dataclass(frozen=True, slots=True)
class Quantizer:
    """Arguments of ``quantize_static``.

    Attributes:
        options: Method, granularity, symmetry and form.
        activation_type: Type of activations.
        weight_type: Type of weights.
        is_method_known: Tearline made the candidate; a candidate that was given does not tell its method.
    """

    options: QuantizeOptions
    activation_type: QuantType
    weight_type: QuantType
    is_method_known: bool


def quantizer_of(pair: Pair, search: SearchFile | None) -> Quantizer:
    """Return how the candidate was made: as the search was told, or as the candidate shows."""
    inputs = None if search is None else search.inputs
    if inputs is not None and inputs.candidate is None:
        options = inputs.quantize
        return Quantizer(options, "QInt8" if options.symmetric else "QUInt8", "QInt8", is_method_known=True)
    return _seen(pair)


def _seen(pair: Pair) -> Quantizer:
    per_channel = False
    weight_type: QuantType = "QInt8"
    activation_types: list[QuantType] = []
    offsets: list[bool] = []
    for node in pair.canonical.graph:
        if node.op_type not in {"QuantizeLinear", "DequantizeLinear"}:
            continue
        found = read_quantization(node)
        kind = None if found is None else _TYPES.get(found.dtype)
        if found is None or kind is None:
            continue
        if node.op_type == "QuantizeLinear":
            activation_types.append(kind)
            offsets.append(bool(np.all(found.zero_point == _middle(found.dtype))))
        elif is_constant(node.inputs[0]) and _is_weight(node):
            per_channel |= found.scale.size > 1
            weight_type = kind
    # Tensors of a fixed range (Sigmoid, Softmax) keep their own offset in a symmetric candidate.
    symmetric = bool(offsets) and sum(offsets) > len(offsets) / 2
    has_integer_operators = any(_INTEGER_OPERATORS in node.op_type for node in pair.candidate.ir.graph)
    form: QuantFormat = "qoperator" if has_integer_operators else "qdq"
    usual: QuantType = max(sorted(set(activation_types)), key=activation_types.count, default="QUInt8")
    options = QuantizeOptions(per_channel=per_channel, symmetric=symmetric, format=form)
    return Quantizer(options, usual, weight_type, is_method_known=False)


def _middle(dtype: str) -> int:
    return 0 if dtype.startswith("int") else 1 << (int(dtype.removeprefix("uint")) - 1)


def _is_weight(node: ir.Node) -> bool:
    array = constant_array(node.inputs[0])
    return array is not None and array.ndim >= 2
