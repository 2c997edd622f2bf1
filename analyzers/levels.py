"""The levels of a quantized tensor as arrays that broadcast against it, for any part or view of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.records import Array, Quantization

_View = tuple[int, int, int]
_INTEGER = re.compile(r"(u?)int(\d+)")


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """``real = (code - zero_point) * scale``.

    Attributes:
        scale: One size per tensor axis, each 1 or the tensor's own.
        zero_point: The same.
        limits: Smallest and largest code; None where the type is no integer.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.float32]
    limits: tuple[int, int] | None

    def at(self, index: tuple[slice, ...]) -> Levels:
        """Return the levels of a part of the tensor."""
        return Levels(_at(self.scale, index), _at(self.zero_point, index), self.limits)

    def transposed(self, permutation: Sequence[int]) -> Levels:
        """Return the levels of the transposed tensor."""
        return Levels(self.scale.transpose(permutation), self.zero_point.transpose(permutation), self.limits)

    def reshaped(self, shape: tuple[int, ...], view: _View) -> Levels:
        """Return the levels of a tensor of this shape seen as ``(outer, channels, inner)``."""
        return Levels(
            _reshaped(self.scale, shape, view), _reshaped(self.zero_point, shape, view), self.limits
        )

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the real values beyond which rounding to the nearest level becomes clipping."""
        assert self.limits is not None
        low, high = self.limits
        scale = self.scale.astype(np.float64)
        return (low - self.zero_point - 0.5) * scale, (high - self.zero_point + 0.5) * scale


def read_levels(quantization: Quantization, shape: tuple[int, ...]) -> Levels:
    """Return the levels of a tensor of this shape.

    Raises:
        ValueError: Scale or zero point do not fit the shape.
    """
    return Levels(
        scale=_expanded(quantization.scale.astype(np.float32), quantization, shape),
        zero_point=_expanded(quantization.zero_point.astype(np.float32), quantization, shape),
        limits=limits_of(quantization.dtype),
    )


def dequantize(codes: Array, levels: Levels) -> NDArray[np.float32]:
    """Return real values in float32, rounded as DequantizeLinear rounds them."""
    real = codes.astype(np.float32)
    real -= levels.zero_point
    real *= levels.scale
    return real


def quantize(real: Array, quantization: Quantization) -> NDArray[np.int64]:
    """Return codes as QuantizeLinear rounds (half to even) and saturates."""
    levels = read_levels(quantization, real.shape)
    codes = np.rint(real.astype(np.float32) / levels.scale) + levels.zero_point
    clipped = codes if levels.limits is None else np.clip(codes, *levels.limits)
    return np.asarray(np.nan_to_num(clipped), dtype=np.int64)


def limits_of(dtype: str) -> tuple[int, int] | None:
    """Return the smallest and largest integer of a type ("uint8", "int4"); None if it is none."""
    match = _INTEGER.fullmatch(dtype)
    if match is None:
        return None
    bits = int(match[2])
    return (0, 2**bits - 1) if match[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _expanded(
    values: NDArray[np.float32], quantization: Quantization, shape: tuple[int, ...]
) -> NDArray[np.float32]:
    if values.size == 1:
        return values.reshape((1,) * len(shape))
    axis = quantization.axis
    if axis is None:
        raise ValueError("a scale with several values needs an axis")
    axis %= len(shape)
    if quantization.block_size:
        repeated = np.repeat(values, quantization.block_size, axis=axis)
        return np.broadcast_to(_at(repeated, _first(shape)), shape)
    if values.shape != (shape[axis],):
        raise ValueError(f"{values.size} scales do not fit axis {axis} of {shape}")
    return values.reshape(tuple(-1 if d == axis else 1 for d in range(len(shape))))


def _first(shape: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in shape)


def _at(values: NDArray[np.float32], index: tuple[slice, ...]) -> NDArray[np.float32]:
    return values[tuple(i if n > 1 else slice(None) for i, n in zip(index, values.shape, strict=True))]


def _reshaped(values: NDArray[np.float32], shape: tuple[int, ...], view: _View) -> NDArray[np.float32]:
    if values.size == 1:
        return values.reshape(1, 1, 1)
    is_per_channel = len(shape) >= 2 and view[1] == shape[1] and values.size == shape[1] == values.shape[1]
    return values.reshape(1, -1, 1) if is_per_channel else np.broadcast_to(values, shape).reshape(view)
