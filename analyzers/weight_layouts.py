"""How operators that multiply with weights lay them out, and one layout to compare them in.

That layout has the output channels first: Conv's own, and the transpose of MatMul's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

Family = Literal["conv", "conv-transpose", "matrix"]
_FAMILIES: dict[str, Family] = {
    "Conv": "conv",
    "ConvTranspose": "conv-transpose",
    "Gemm": "matrix",
    "MatMul": "matrix",
    "FusedMatMul": "matrix",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """What the operator's attributes say about its weights.

    Attributes:
        family: Kind of product.
        is_out_first: Output channels come before input channels.
        group: Groups of channels.
        alpha: What the operator multiplies the product with.
        beta: What it multiplies its third input with.
    """

    family: Family
    is_out_first: bool
    group: int = 1
    alpha: float = 1.0
    beta: float = 1.0

    def channels(self, weight: NDArray[np.float64]) -> int | None:
        """Return the number of output channels; None for weights that have no such axis."""
        if weight.ndim < 2:
            return None
        return int(self.out_first(weight).shape[0])

    def from_end(self, weight: NDArray[np.float64]) -> int:
        """Return the channel axis of the operator's result, counted from the end."""
        return 1 if self.family == "matrix" else weight.ndim - 1

    def channel_axis(self, weight: NDArray[np.float64]) -> int | None:
        """Return the axis of the weight that runs over the output channels, or over those of a group."""
        if self.family == "matrix":
            return weight.ndim - 2 if self.is_out_first else weight.ndim - 1
        return 0 if self.family == "conv" else 1

    def out_first(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weight with the output channels first."""
        if self.family == "conv":
            return weight
        if self.family == "matrix":
            return np.moveaxis(weight, self.channel_axis(weight) or 0, 0)
        grouped = weight.reshape(self.group, weight.shape[0] // self.group, *weight.shape[1:])
        swapped = np.moveaxis(grouped, 2, 1)
        return swapped.reshape(-1, *swapped.shape[2:])

    def back(self, out_first: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Undo ``out_first`` for a weight of this shape."""
        if self.family == "conv":
            return out_first.reshape(shape)
        if self.family == "matrix":
            axis = len(shape) - 2 if self.is_out_first else len(shape) - 1
            return np.moveaxis(out_first, 0, axis)
        grouped = out_first.reshape(self.group, -1, *out_first.shape[1:])
        return np.moveaxis(grouped, 2, 1).reshape(shape)


def layout_of(node: ir.Node) -> Layout | None:
    """Return the layout of the node's second input, or None for other operators."""
    family = _FAMILIES.get(node.op_type)
    if family is None:
        return None
    is_transposed = _integer(node, "transB", 0) != 0
    return Layout(
        family=family,
        is_out_first=family == "conv" or (family == "matrix" and is_transposed),
        group=_integer(node, "group", 1),
        alpha=_float(node, "alpha"),
        beta=_float(node, "beta"),
    )


def _integer(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def _float(node: ir.Node, name: str) -> float:
    attribute = node.attributes.get(name)
    return 1.0 if attribute is None else attribute.as_float()
