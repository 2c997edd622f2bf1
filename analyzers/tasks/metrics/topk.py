"""Top-k accuracy of classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np

from analyzers.errors import TaskError
from analyzers.records import Array, Notice, Sample, Score
from analyzers.tasks.decoder import find_output, wrong_shape
from analyzers.tasks.kinds import MetricKind, MetricSetup
from analyzers.tasks.labels import read_labels


@dataclass(frozen=True, slots=True)
class TopKOptions:
    """Options of the ``topk`` metric.

    Attributes:
        k: A sample counts as right if its label is among the k best classes.
        output: Output with the class scores, ``(1, classes)``; "" for the only one.
    """

    k: int = 1
    output: str = ""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise TaskError("malformed_task", f"'k' has to be positive, not {self.k}", where="metric.k")

    def make(self, setup: MetricSetup) -> TopK:
        """Return the metric; see ``analyzers.tasks.kinds.MetricOptions``."""
        if setup.annotations is None:
            raise TaskError(
                "annotations_missing",
                "Accuracy needs labels",
                hint="Give a file of labels (--annotations), or score without (--metric sqnr)",
            )
        given = read_labels(setup.annotations)
        by_file = {PurePosixPath(name).name: label for name, label in given.items()}
        labels = {}
        for name in setup.names:
            label = given.get(name, by_file.get(PurePosixPath(name).name))
            if label is not None:
                labels[name] = label
        where = str(setup.annotations)
        if not labels:
            raise TaskError(
                "annotations_match_no_image",
                f"The labels match no sample of the set, which holds '{setup.names[0]}'",
                where=where,
                hint="Use the samples' file names in the labels",
            )
        missing = len(setup.names) - len(labels)
        text = f"{missing} of {len(setup.names)} samples have no label and are not scored"
        warnings = (Notice("images_without_annotations", text, where),) if missing else ()
        return TopK(self.k, self.output, labels, warnings)


@dataclass(frozen=True, slots=True)
class TopK:
    """Share of samples whose label is among the k best; an observation is the k best class indices.

    Attributes:
        k: How many classes may name the label.
        output: The output with the class scores.
        labels: Sample name -> class index.
        warnings: What the user should know about the labels.
    """

    k: int
    output: str
    labels: dict[str, int] = field(default_factory=dict)
    warnings: tuple[Notice, ...] = ()

    @property
    def name(self) -> str:
        """The metric's name."""
        return f"top{self.k}"

    @property
    def needs_reference(self) -> bool:
        """Labels are what it compares with."""
        return False

    def observe(
        self, sample: Sample, outputs: Mapping[str, Array], reference: Mapping[str, Array] | None
    ) -> Array:
        """Return the indices of the best classes, best first; equal scores count in class order.

        Raises:
            TaskError: ``output_missing``, ``wrong_output_shape``, or ``category_unknown`` for a label that is
                no class of the network.
        """
        del reference
        scores = find_output(outputs, self.output, decoder="topk")
        values = scores.reshape(-1).astype(np.float64)
        if values.size != max(scores.shape, default=0) or values.size < 2:
            raise wrong_shape(scores, "(1, classes)", name=self.output, decoder="topk")
        label = self.labels.get(sample.name, 0)
        if label >= values.size:
            raise TaskError(
                "category_unknown",
                f"The label of '{sample.name}' is {label}, the network has {values.size} classes",
                where=sample.name,
                hint="Count classes from 0, in the network's order",
            )
        ranked = np.argsort(-np.where(np.isnan(values), -np.inf, values), kind="stable")[: self.k]
        # A network that answers NaN has named no class.
        return np.where(np.isnan(values[ranked]), -1.0, ranked.astype(np.float64))

    def score(self, names: Sequence[str], observations: Sequence[Array]) -> Score:
        """Score any subset of the samples."""
        hits = [
            float(self.labels[n]) in o for n, o in zip(names, observations, strict=True) if n in self.labels
        ]
        return Score(float(np.mean(hits)) if hits else float("nan"), self.name)


ENTRY = MetricKind("topk", TopKOptions)
