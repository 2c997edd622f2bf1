"""Other ways to store a weight, for fixes that can be simulated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from analyzers.constant_errors import by_channel
from analyzers.evidence import ConstantPair
from analyzers.levels import limits_of
from analyzers.records import Quantization

_SMALLEST = float(np.finfo(np.float32).tiny) * 1e3  # a channel of zeros needs a scale all the same


def per_channel(constant: ConstantPair, dtype: str) -> Quantization | None:
    """Return a scale per output channel, from the reference's own largest values."""
    if constant.channel_axis is None:
        return None
    largest = np.abs(by_channel(constant.reference, constant.channel_axis)).max(axis=1)
    return _symmetric(largest, dtype, axis=constant.channel_axis)


def per_tensor(constant: ConstantPair, dtype: str) -> Quantization | None:
    """Return one scale for all, from the reference's largest value."""
    return _symmetric(np.abs(constant.reference).max().reshape(()), dtype)


def blocked(constant: ConstantPair, dtype: str, axis: int, size: int) -> Quantization | None:
    """Return a scale for every ``size`` values along an axis."""
    array = np.abs(constant.reference)
    if array.shape[axis] % size:
        return None
    shape = (*array.shape[:axis], array.shape[axis] // size, size, *array.shape[axis + 1 :])
    return _symmetric(array.reshape(shape).max(axis=axis + 1), dtype, axis=axis, block_size=size)


def _symmetric(
    largest: NDArray[np.float64], dtype: str, *, axis: int | None = None, block_size: int = 0
) -> Quantization | None:
    limits = limits_of(dtype)
    if limits is None:
        return None
    low, high = limits
    middle = (low + high + 1) // 2
    scale = np.maximum(largest / (high - middle), _SMALLEST).astype(np.float32)
    return Quantization(scale, np.full(scale.shape, middle, np.int64), dtype, axis, block_size)


def like(constant: ConstantPair) -> Quantization | None:
    """Return parameters for the reference's own values, of the candidate's type, per channel where it is."""
    stored = constant.quantization
    if stored is None or constant.role != "weight" or constant.channel_axis is None:
        return None
    is_single = stored.scale.ndim == 0
    return per_tensor(constant, stored.dtype) if is_single else per_channel(constant, stored.dtype)
