"""How far the candidate's constants are from the reference's, beyond what honest rounding explains.

Honest is: the nearest level or its neighbour (adaptive rounding), and clipping of a few far values. For
constants that are float in the file, the precision of a half or of eight bits over the tensor's range.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from analyzers.evidence import ConstantPair, Evidence
from analyzers.levels import limits_of, read_levels
from analyzers.records import Quantization

Values = NDArray[np.float64]

# Adaptive rounding (AdaRound, GPTQ) may take the neighbour of the nearest level: up to one step, plus what
# float32 arithmetic adds before rounding.
NEIGHBOUR = 1.02
# Rounding that makes up for the errors of other weights moves single ones by a few levels, never by more.
FAR_STEPS = 4.0
# ... and altogether it adds less than this times the noise of rounding to the nearest.
MUCH_NOISE = 4.0
# Percentile and MSE calibration clip a few values by a little. More than this share is no such choice, if it
# costs more than this share of the energy (20 dB) as well.
FEW_CLIPPED = 0.05
MUCH_CLIPPED = 0.01
# Float constants may have been rounded before they were written: to eight bits of their range ...
_FLOAT_LEVELS = 254.0
# ... and float arithmetic in another order moves the last bits.
_FLOAT_EPSILON = 1e-5
# An offset that is a small part of what the layer's values spread over is a correction, not a fault.
CORRECTION = 0.1
_ROUNDING_NOISE = 1 / 12  # of a step, squared


@dataclass(frozen=True, slots=True, eq=False)
class Misfit:
    """How a constant of the candidate differs.

    Attributes:
        constant: The constant on both sides.
        step: The size of one level, broadcast; for float constants what their precision is worth.
        is_off: Elements that honest rounding and clipping do not explain.
        noise: Energy of the error over the energy of the reference.
        rounding: The same for rounding to the nearest with these steps, clipping aside.
        clipped: Share of elements that are clipped.
        is_beyond: The constant as a whole is beyond honest rounding.
    """

    constant: ConstantPair
    step: Values
    is_off: NDArray[np.bool_]
    noise: float
    rounding: float
    clipped: float
    is_beyond: bool

    @property
    def error(self) -> Values:
        """Candidate minus reference."""
        return self.constant.candidate - self.constant.reference

    @property
    def sqnr_db(self) -> float:
        """Signal to noise of the constant itself, in dB."""
        return decibels(self.noise)

    @property
    def rounding_db(self) -> float:
        """Signal to noise that rounding alone would leave, in dB."""
        return decibels(self.rounding)

    @property
    def off_share(self) -> float:
        """Share of elements that are off."""
        return float(self.is_off.mean()) if self.is_off.size else 0.0


def decibels(noise_to_signal: float) -> float:
    """Return a signal to noise ratio in dB, at most 200 either way."""
    if not np.isfinite(noise_to_signal):
        return -200.0
    return float(np.clip(-10 * np.log10(max(noise_to_signal, 1e-20)), -200.0, 200.0))


@lru_cache(maxsize=1)
def misfits(evidence: Evidence) -> tuple[Misfit, ...]:
    """Return the weights and biases of both sides, compared, in topological order."""
    return tuple(
        misfit_of(c, spread_behind(evidence, c))
        for c in evidence.constants
        if c.role in ("weight", "bias") and c.reference.size
    )


def misfit_of(constant: ConstantPair, spread: float = 0.0) -> Misfit:
    """Compare one constant.

    Args:
        constant: On both sides.
        spread: Root mean square of the values that a bias is added to; 0 where unknown.
    """
    reference, candidate = constant.reference, constant.candidate
    with np.errstate(invalid="ignore", over="ignore"):
        error = candidate - reference
        step = step_of(constant)
        allowed = NEIGHBOUR * step + _FLOAT_EPSILON * np.abs(reference)
        if constant.role == "bias":
            allowed = allowed + CORRECTION * spread
        is_clipped = _clipped(constant, step)
        clipped = float(is_clipped.mean())
        is_far = ~(np.isfinite(error) & (np.abs(error) <= allowed))
        energy = float((reference**2).sum())
        noise = float((error**2).sum())
        rounding = float((step**2).sum()) * _ROUNDING_NOISE
        cut = float((error[is_clipped] ** 2).sum())
        is_cut = clipped > FEW_CLIPPED and cut > max(MUCH_CLIPPED * energy, MUCH_NOISE * rounding)
        is_off = is_far if is_cut else is_far & ~is_clipped
        off_noise = float((error[is_off] ** 2).sum()) if is_off.any() else 0.0
        far = float((np.abs(error[is_off]) / np.maximum(allowed[is_off], 1e-300)).max(initial=0.0))
    is_beyond = bool(is_off.any()) and (
        not np.isfinite(noise)
        or (far > FAR_STEPS and constant.role == "weight")
        or off_noise > MUCH_NOISE * rounding
    )
    return Misfit(
        constant=constant,
        step=step,
        is_off=is_off,
        noise=_ratio(noise, energy),
        rounding=_ratio(rounding, energy),
        clipped=clipped,
        is_beyond=is_beyond,
    )


def _ratio(noise: float, energy: float) -> float:
    if energy > 0:
        return noise / energy
    return 0.0 if noise == 0 else float("inf")


def step_of(constant: ConstantPair) -> Values:
    """Return the size of one level for every element."""
    reference = constant.reference
    scale = None if constant.quantization is None else _scales(constant.quantization, reference.shape)
    if scale is not None:
        return np.broadcast_to(np.abs(scale), reference.shape)
    largest = float(np.abs(reference).max(initial=0.0))
    one = largest * _FLOAT_EPSILON if constant.role == "bias" else largest / _FLOAT_LEVELS
    return np.broadcast_to(np.float64(one), reference.shape)


def scales_of(quantization: Quantization, shape: tuple[int, ...]) -> Values | None:
    """Return the scale of every element, or None where the parameters do not fit the shape.

    Scales of weights may be negative: onnxruntime's symmetric four bits map the largest value to -8.
    """
    scale = _scales(quantization, shape)
    return None if scale is None else np.broadcast_to(scale, shape)


def _scales(quantization: Quantization, shape: tuple[int, ...]) -> Values | None:
    try:
        return read_levels(quantization, shape).scale.astype(np.float64)
    except ValueError:
        return None


def _clipped(constant: ConstantPair, step: Values) -> NDArray[np.bool_]:
    """Return the elements that are at an end of the integer range, with the reference beyond it."""
    stored, integers = constant.quantization, constant.integers
    limits = None if stored is None else limits_of(stored.dtype)
    if stored is None or integers is None or limits is None:
        return np.zeros(constant.reference.shape, np.bool_)
    low, high = limits
    scale = scales_of(stored, constant.reference.shape)
    outward = (constant.reference - constant.candidate) * (1.0 if scale is None else np.sign(scale))
    is_low = (integers <= low + 1) & (outward < 0)  # symmetric quantizers leave the lowest integer out
    is_high = (integers >= high) & (outward > 0)
    return np.asarray((is_low | is_high) & (np.abs(outward) > step / 2))


def spread_behind(evidence: Evidence, constant: ConstantPair) -> float:
    """Return the root mean square of the values of the layer that a bias belongs to; 0 where unknown."""
    if constant.role != "bias":
        return 0.0
    layer = evidence.layers.get(constant.layer)
    for tensor in () if layer is None else layer.outputs:
        measured = evidence.measured.get(tensor)
        whole = None if measured is None else measured.pooled.whole
        if whole is not None and whole.count > 0:
            return float(np.sqrt(whole.reference_energy / whole.count))
    return 0.0


def by_channel(array: NDArray[np.float64], axis: int | None) -> Values:
    """Return an array as (channels, rest)."""
    if axis is None or array.ndim == 0:
        return array.reshape(1, -1)
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
