"""The few protocols that let parts of the engine stay strangers to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from analyzers.records import Array, Sample, Score, TensorSpec, Trial


class Runner(Protocol):
    """A model that is ready to run: one per backend and model."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What it reads."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of all values that it can yield."""
        ...

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return every output by name.

        Raises:
            BackendError: The runtime failed.
        """
        ...


class SampleSet(Protocol):
    """A calibration or evaluation set; samples are made when asked for, never all at once."""

    @property
    def names(self) -> tuple[str, ...]:
        """Sample names in order."""
        ...

    @property
    def digest(self) -> str:
        """Content hash of the set and of the way samples are made from it."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Sample: ...


class Metric(Protocol):
    """Turns outputs into a score in two steps, so that samples can be run anywhere, in any order."""

    @property
    def name(self) -> str:
        """The metric's name, as in ``Score.metric``."""
        ...

    @property
    def needs_reference(self) -> bool:
        """True if ``observe`` compares with the reference's outputs."""
        ...

    def observe(
        self, sample: Sample, outputs: Mapping[str, Array], reference: Mapping[str, Array] | None
    ) -> Array:
        """Return what has to be kept of one sample: a small float array; its meaning is the metric's own."""
        ...

    def score(self, names: Sequence[str], observations: Sequence[Array]) -> Score:
        """Score the named samples from their observations, given in the same order."""
        ...


class ScoreFunction(Protocol):
    """How a search sees the world."""

    def __call__(self, fallback: frozenset[str], *, stage: str = "") -> Trial:
        """Score the plan that keeps these layers in the fallback precision."""
        ...
