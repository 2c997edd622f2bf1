"""What every task metric is: a record of its options that makes the metric for one set of samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from analyzers.contracts import Metric
from analyzers.records import Notice, Slice
from analyzers.tasks.decoding import SampleDecoder


@dataclass(frozen=True, slots=True)
class MetricSetup:
    """What a metric may need to know of the task and the set.

    Attributes:
        names: Sample names.
        outputs: The outputs that both sides have.
        slices: Output -> its parts.
        decoder: Decodes one sample; None where the task has no decoder.
        categories: Pairs of class index and COCO category id; None for the annotation's ids in order.
        annotations: COCO json or file of labels; None without one.
    """

    names: tuple[str, ...]
    outputs: tuple[str, ...]
    slices: Mapping[str, tuple[Slice, ...]] = field(default_factory=dict)
    decoder: SampleDecoder | None = None
    categories: tuple[tuple[int, int], ...] | None = None
    annotations: Path | None = None


class MetricOptions(Protocol):
    """The options of a metric, as a task file gives them."""

    def make(self, setup: MetricSetup) -> Metric:
        """Return the metric.

        Raises:
            TaskError: Something that it needs is missing or wrong.
        """
        ...


@dataclass(frozen=True, slots=True)
class MetricKind:
    """A metric of the registry.

    Attributes:
        name: Its name in task files.
        options: The record that is made from the task file's keys.
    """

    name: str
    options: type[MetricOptions]


@runtime_checkable
class Warns(Protocol):
    """A metric that has something to say about its annotations."""

    @property
    def warnings(self) -> tuple[Notice, ...]:
        """Notices for ``warnings[]``."""
        ...
