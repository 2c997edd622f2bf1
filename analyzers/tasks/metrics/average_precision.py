"""COCO average precision of detections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from analyzers.contracts import Metric
from analyzers.errors import TaskError
from analyzers.records import Array, Notice, Sample, Score
from analyzers.tasks import coco
from analyzers.tasks.annotations import class_categories, match_images, read_annotations
from analyzers.tasks.decoding import SampleDecoder
from analyzers.tasks.kinds import MetricKind, MetricSetup
from analyzers.tasks.matches import ImageMatches, match_image
from analyzers.tasks.reference_ap import ReferenceAp


@dataclass(frozen=True, slots=True)
class ApOptions:
    """Options of the ``ap`` metric.

    Attributes:
        value: Which number is the score: mean over IoU 0.50 to 0.95, or at one IoU.
        reference_threshold: Without annotations, the reference's detections from this score on are the
            truth.
    """

    value: Literal["AP", "AP50", "AP75"] = "AP"
    reference_threshold: float = 0.3

    def __post_init__(self) -> None:
        if not 0.0 <= self.reference_threshold <= 1.0:
            raise TaskError(
                "malformed_task",
                f"'reference_threshold' has to be in 0..1, not {self.reference_threshold}",
                where="metric.reference_threshold",
            )

    def make(self, setup: MetricSetup) -> Metric:
        """Return the metric; see ``analyzers.tasks.kinds.MetricOptions``."""
        if setup.decoder is None:
            raise TaskError(
                "malformed_task", "AP needs detections", hint="Add a 'decoder' part to the task file"
            )
        if setup.annotations is None:
            return ReferenceAp(setup.decoder, self.reference_threshold, self.value)
        annotations = read_annotations(setup.annotations)
        images, warnings = match_images(annotations, setup.names)
        classes = getattr(setup.decoder.decoder, "classes", None)
        return AveragePrecision(
            decoder=setup.decoder,
            truth=coco.make_truth(annotations, images.values()),
            images={name: image.id for name, image in images.items()},
            sizes={name: (image.height, image.width) for name, image in images.items()},
            categories=class_categories(annotations, setup.categories, classes),
            is_mapping_given=setup.categories is not None,
            value=self.value,
            warnings=warnings,
        )


@dataclass(frozen=True, slots=True, eq=False)
class AveragePrecision:
    """COCO AP; an observation is the detections of one image, ``(N, 6)`` float64.

    Attributes:
        decoder: Turns outputs into detections.
        truth: Ground truth of the images that have annotations.
        images: Sample name -> image id; samples without annotations are missing.
        sizes: Sample name -> height and width that the annotations state, 0 where they do not.
        categories: Class index -> category id.
        is_mapping_given: The task file says which class is which category.
        value: Which number is the score.
        warnings: What the user should know about the annotations.
    """

    decoder: SampleDecoder
    truth: coco.Truth
    images: dict[str, int]
    sizes: dict[str, tuple[int, int]]
    categories: dict[int, int]
    is_mapping_given: bool
    value: Literal["AP", "AP50", "AP75"] = "AP"
    warnings: tuple[Notice, ...] = ()

    @property
    def name(self) -> str:
        """The metric's name."""
        return self.value.lower()

    @property
    def needs_reference(self) -> bool:
        """Ground truth is what it compares with."""
        return False

    def observe(
        self, sample: Sample, outputs: Mapping[str, Array], reference: Mapping[str, Array] | None
    ) -> Array:
        """Return the detections of one sample.

        Raises:
            TaskError: The outputs do not suit the decoder, or the annotations another image size.
        """
        del reference
        self._check_size(sample)
        return self.decoder.detections(sample, outputs)

    def score(self, names: Sequence[str], observations: Sequence[Array]) -> Score:
        """Score any subset of the images.

        Raises:
            TaskError: ``category_unknown``: a class without a category was detected.
        """
        pairs = [
            (n, self._as_categories(o)) for n, o in zip(names, observations, strict=True) if n in self.images
        ]
        result = coco.evaluate(self.truth, [self.images[n] for n, _ in pairs], [rows for _, rows in pairs])
        details = coco.details(result)
        for category, value in result.classes.items():
            label = f"AP/{self.truth.categories[category]}"
            details[f"{label} ({category})" if label in details else label] = value
        return Score(details[self.value], self.name, details=details)

    def matches(self, names: Sequence[str], observations: Sequence[Array]) -> tuple[ImageMatches, ...]:
        """Return what AP of any resample of these images is computed from; unannotated ones are left out.

        Raises:
            TaskError: ``category_unknown``, as for ``score``.
        """
        return tuple(
            match_image(self.truth, self.images[name], self._as_categories(rows))
            for name, rows in zip(names, observations, strict=True)
            if name in self.images
        )

    def _as_categories(self, detections: Array) -> Array:
        """Replace class indices by category ids; classes that the task leaves out are not scored."""
        numbers = detections[:, 5].astype(np.int64).tolist()
        unknown = [n for n in numbers if n not in self.categories]
        if unknown and not self.is_mapping_given:
            raise TaskError(
                "category_unknown",
                f"Class {unknown[0]} was detected, the annotations list {len(self.categories)} categories",
                hint="Give the category id of each class under 'categories' in the task file",
            )
        rows = detections[[n in self.categories for n in numbers]]
        rows[:, 5] = [self.categories[n] for n in numbers if n in self.categories]
        return rows

    def _check_size(self, sample: Sample) -> None:
        stated = self.sizes.get(sample.name, (0, 0))
        if sample.image is None or 0 in stated:
            return
        given = (sample.image.height, sample.image.width)
        if stated != given:
            turned = " (turned, as its EXIF data says)" if stated == given[::-1] else ""
            raise TaskError(
                "image_size_differs",
                f"The image '{sample.name}' is {given[1]} x {given[0]}{turned}, the annotations say "
                f"{stated[1]} x {stated[0]}",
                where=sample.name,
                hint="Annotate the images as they are shown, or save them without EXIF orientation",
            )


ENTRY = MetricKind("ap", ApOptions)
