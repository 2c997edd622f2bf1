"""Signal and noise energies of output parts, pooled over samples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.errors import TaskError
from analyzers.records import Array, Sample, Score, Slice


@dataclass(frozen=True, slots=True)
class OutputPart:
    """An output, or a slice of it.

    Attributes:
        output: The output's name.
        slice: Which part of it; None for the whole.
    """

    output: str
    slice: Slice | None = None

    @property
    def label(self) -> str:
        """The part's name in ``Score.details``."""
        if self.slice is None:
            return self.output
        place = f"axis {self.slice.axis}, {self.slice.start}:{self.slice.stop}"
        return f"{self.output}[{self.slice.name or place}]"


def whole_outputs(outputs: Sequence[str]) -> tuple[OutputPart, ...]:
    """Return one part for each output."""
    return tuple(OutputPart(name) for name in outputs)


@dataclass(frozen=True, slots=True)
class OutputNoise:
    """Lowest SQNR of the parts, in dB; see ``analyzers.contracts.Metric``.

    An observation is ``(parts, 3)``: signal energy and noise energy over positions that are finite on both
    sides, and the number of positions that are finite on one side only. Integer outputs (classes, counts)
    are measured only where the network has no other.

    Attributes:
        name: The metric's name.
        parts: What is measured.
    """

    name: str
    parts: tuple[OutputPart, ...]

    @property
    def needs_reference(self) -> bool:
        """The reference's outputs are the signal."""
        return True

    def observe(
        self, sample: Sample, outputs: Mapping[str, Array], reference: Mapping[str, Array] | None
    ) -> Array:
        """Return the energies of one sample.

        Raises:
            TaskError: ``output_missing``, or ``output_shapes_differ`` where the sides cannot be subtracted.
        """
        assert reference is not None
        energies = np.zeros((len(self.parts), 3))
        for row, part in enumerate(self._measured(reference)):
            if part is not None:
                energies[row] = _compare(part, outputs, reference, sample.name)
        return energies

    def _measured(self, reference: Mapping[str, Array]) -> list[OutputPart | None]:
        kinds = {name: array.dtype.kind for name, array in reference.items()}
        wanted = "f" if "f" in kinds.values() else "biu"
        return [p if kinds.get(p.output, wanted) in wanted else None for p in self.parts]

    def score(self, names: Sequence[str], observations: Sequence[Array]) -> Score:
        """Pool energies over samples; the score is the lowest part that is defined.

        A part without any signal and noise is undefined; a part that lost values to NaN or Inf on one side
        scores ``-inf``.
        """
        del names
        totals = np.sum(observations, axis=0) if len(observations) else np.zeros((len(self.parts), 3))
        details: dict[str, float] = {}
        for part, row in zip(self.parts, totals.tolist(), strict=True):
            value = sqnr_db(*row)
            known = details.get(part.label, math.nan)  # parts may share a name: the lowest stands for all
            details[part.label] = value if math.isnan(known) else min(known, value)
        defined = [v for v in details.values() if not math.isnan(v)]
        return Score(min(defined, default=math.nan), self.name, "dB", details)


def sqnr_db(signal: float, noise: float, broken: float = 0.0) -> float:
    """Return the signal-to-quantization-noise ratio in decibels; higher is better.

    Args:
        signal: Energy of the reference.
        noise: Energy of the difference.
        broken: Positions that are finite on one side only.

    Returns:
        ``inf`` for equal values, ``-inf`` for noise without signal or broken positions, ``nan`` for neither
        signal nor noise.
    """
    if broken or not math.isfinite(noise):
        return -math.inf
    if noise == 0.0:
        return math.inf if signal else math.nan
    return 10.0 * math.log10(signal / noise) if signal else -math.inf


def _compare(
    part: OutputPart, outputs: Mapping[str, Array], reference: Mapping[str, Array], sample: str
) -> tuple[float, float, float]:
    """Return signal energy, noise energy and the number of positions that only one side defines."""
    ours, theirs = _take(reference, part), _take(outputs, part)
    if ours.shape != theirs.shape:
        raise TaskError(
            "output_shapes_differ",
            f"The output '{part.output}' of sample '{sample}' has the shape {theirs.shape}, "
            f"in the reference {ours.shape}",
            where=part.output,
            hint="Score such networks with a task (detections), not by signal to noise",
        )
    return _energies(ours, theirs)


def _take(values: Mapping[str, Array], part: OutputPart) -> Array:
    if part.output not in values:
        raise TaskError(
            "output_missing",
            f"The output '{part.output}' is missing; the model has {', '.join(repr(n) for n in values)}",
            where=part.output,
            hint="Compare models with the same outputs",
        )
    array = values[part.output]
    if part.slice is None:
        return array
    cut = slice(part.slice.start, part.slice.stop)
    return array[(slice(None),) * (part.slice.axis % max(1, array.ndim)) + (cut,)]


def _energies(reference: Array, candidate: Array) -> tuple[float, float, float]:
    signal = reference.reshape(-1).astype(np.float64)
    other = candidate.reshape(-1).astype(np.float64)
    is_finite = np.isfinite(signal) & np.isfinite(other)
    broken = 0.0
    if not is_finite.all():
        broken = float(np.count_nonzero(np.isfinite(signal) != np.isfinite(other)))
        signal, other = signal[is_finite], other[is_finite]
    noise = signal - other
    return float(signal @ signal), float(noise @ noise), broken
