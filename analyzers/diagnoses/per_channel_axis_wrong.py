"""Per-channel scales that are applied along the wrong axis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from analyzers.array_relations import UNEXPLAINED, Values, unexplained
from analyzers.channel_maps import axis_names
from analyzers.constant_errors import Misfit, decibels, scales_of
from analyzers.evidence import Evidence
from analyzers.suspicions import Detector, Suspicion
from analyzers.wrong_constants import quantized_anew, sources_of, wrong


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect weights whose integers give the reference's values with the scales along another axis."""
    for misfit in wrong(evidence):
        fit = _other_axis(misfit)
        if fit is not None:
            yield _suspicion(evidence, misfit, *fit)


def _other_axis(misfit: Misfit) -> tuple[int, float] | None:
    """Return the axis that fits, and what it leaves unexplained."""
    constant = misfit.constant
    stored, integers = constant.quantization, constant.integers
    if stored is None or integers is None or stored.axis is None or stored.scale.ndim != 1:
        return None
    fits: list[tuple[float, int]] = []
    for axis, size in enumerate(constant.reference.shape):
        if axis == stored.axis % constant.reference.ndim or size != stored.scale.size:
            continue
        values = _along(misfit, axis)
        if values is not None and np.all(np.isfinite(values)):
            fits.append((unexplained(constant.reference, values), axis))
    if not fits or min(fits)[0] > max(UNEXPLAINED, 4 * misfit.rounding):
        return None
    left, axis = min(fits)
    return (axis, left) if misfit.noise > 4 * left else None


def _along(misfit: Misfit, axis: int) -> Values | None:
    constant = misfit.constant
    assert constant.quantization is not None
    assert constant.integers is not None
    shape = constant.reference.shape
    scale = scales_of(replace(constant.quantization, axis=axis), shape)
    zero = constant.quantization.zero_point.astype(np.float64)
    if scale is None:
        return None
    zero = zero.reshape([-1 if d == axis else 1 for d in range(len(shape))]) if zero.ndim else zero
    return np.asarray((constant.integers - zero) * scale)


def _suspicion(evidence: Evidence, misfit: Misfit, axis: int, left: float) -> Suspicion:
    constant = misfit.constant
    assert constant.quantization is not None
    names = axis_names(constant)
    now = (constant.quantization.axis or 0) % constant.reference.ndim
    return Suspicion(
        cause="per_channel_axis_wrong",
        layers=(constant.layer,),
        sources=sources_of(evidence, constant.node),
        message=(
            f"The scales of the {constant.role} of '{constant.node}' are applied along axis {now} "
            f"({names[now]}) but belong to axis {axis} ({names[axis]}): there it equals the reference's to "
            f"{decibels(left):.0f} dB, as it is to {misfit.sqnr_db:.1f} dB"
        ),
        evidence={
            "node": constant.node,
            "shape": constant.reference.shape,
            "axis": now,
            "right_axis": axis,
            "weight_sqnr_db": misfit.sqnr_db,
            "sqnr_db_on_right_axis": decibels(left),
        },
        fix=f"Set axis={axis} on the DequantizeLinear of this weight ({constant.op_type})",
        specificity=80,
        is_fault=True,
        repairs=quantized_anew(evidence, constant),
    )


ENTRY = Detector(
    name="per_channel_axis_wrong",
    looks_at="integers of each weight that is wrong, times its scales along the other axes",
    causes=("per_channel_axis_wrong",),
    find=find,
)
