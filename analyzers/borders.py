"""Errors that sit on the border of a map, where windows reach into the padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from analyzers.attributes import settings
from analyzers.evidence import Look
from analyzers.graph import constant_array

Widths = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Border:
    """How much of the operators' error lies on the border.

    Attributes:
        share_of_noise: Share of the error's energy.
        share_of_area: Share of the positions.
        interior_db: SQNR of the rest; inf where it is exact.
    """

    share_of_noise: float
    share_of_area: float
    interior_db: float


def padded_widths(node: ir.Node, rank: int) -> Widths | None:
    """Return per spatial axis how many outputs at its two ends reach into the operator's padding.

    Args:
        node: A convolution, a pooling operator, or a Pad.
        rank: Of its output.
    """
    found = settings(node, constant_array, 13)
    pads, strides = found.get("pads"), found.get("strides")
    axes = rank - 2
    if node.op_type == "Pad" and isinstance(pads, tuple) and len(pads) == 2 * rank:
        pads = (*pads[2:rank], *pads[rank + 2 :])
    if not isinstance(pads, tuple) or len(pads) != 2 * axes:
        return None
    steps = [int(s) for s in strides] if isinstance(strides, tuple) else [1] * axes
    widths = tuple((-(-int(pads[i]) // steps[i]), -(-int(pads[i + axes]) // steps[i])) for i in range(axes))
    return widths if any(begin or end for begin, end in widths) else None


def border_of(looks: Sequence[Look], widths: Widths) -> Border | None:
    """Return how much of the error of the operators lies on the border; None where nothing can be said."""
    inside = outside = signal = 0.0
    area = 0.0
    for look in looks:
        if look.operator is None or look.operator.shape != look.reference.shape:
            return None
        spatial = look.reference.shape[2:]
        if len(spatial) != len(widths):
            return None
        mask = border_mask(spatial, widths)
        with np.errstate(invalid="ignore", over="ignore"):
            noise = np.square(look.reference.astype(np.float64) - look.operator)
        noise = np.nan_to_num(noise, nan=0.0, posinf=0.0)
        outside += float(noise[..., mask].sum())
        inside += float(noise[..., ~mask].sum())
        signal += float(np.square(look.reference.astype(np.float64))[..., ~mask].sum())
        area = float(mask.mean())
    if not inside + outside > 0:
        return None
    interior = np.inf if inside == 0 else 10 * np.log10(signal / inside) if signal > 0 else -np.inf
    return Border(outside / (inside + outside), area, float(interior))


def border_mask(spatial: Sequence[int], widths: Widths) -> NDArray[np.bool_]:
    """Return where the border is, in the shape of the map."""
    mask = np.zeros(tuple(spatial), bool)
    for axis, (begin, end) in enumerate(widths):
        ends = np.zeros(spatial[axis], bool)
        ends[:begin] = True
        ends[max(0, spatial[axis] - end) :] |= end > 0
        mask |= ends.reshape(tuple(-1 if d == axis else 1 for d in range(len(spatial))))
    return mask
