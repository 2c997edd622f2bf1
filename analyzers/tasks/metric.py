"""Make the metric that a task, or a name, asks for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from analyzers.contracts import Metric, SampleSet
from analyzers.errors import TaskError
from analyzers.records import Notice, Slice
from analyzers.tasks.decoding import SampleDecoder
from analyzers.tasks.kinds import MetricSetup, Warns
from analyzers.tasks.schema import Section, read_record
from analyzers.tasks.task import Task, metric_kinds
from analyzers.tasks.user_code import UserFunction
from analyzers.tasks.user_metric import UserMetric

DEFAULT_METRIC = "slice-sqnr"


def make_metric(
    *,
    task: Task | None,
    name: str | None,
    annotations: Path | None,
    samples: SampleSet,
    outputs: tuple[str, ...],
    slices: Mapping[str, tuple[Slice, ...]],
) -> Metric:
    """Return the metric for a set of samples.

    Args:
        task: Names the metric where ``name`` does not.
        name: A metric by name; wins over the task's.
        annotations: COCO json or file of labels.
        samples: The samples that will be scored.
        outputs: The outputs that both sides have.
        slices: Output -> the parts that it consists of.

    Raises:
        TaskError: Something that the metric needs is missing or wrong.
    """
    decoder = None
    if task is not None and task.decoder is not None:
        decoder = SampleDecoder(task.decoder, task.preprocess.layout if task.preprocess else "NCHW")
    setup = MetricSetup(
        names=samples.names,
        outputs=outputs,
        slices=slices,
        decoder=decoder,
        categories=task.categories if task else None,
        annotations=annotations,
    )
    if name is None and task is not None and task.metric is not None:
        if isinstance(task.metric, UserFunction):
            return UserMetric(task.metric, decoder, annotations)
        return task.metric.make(setup)
    kinds = metric_kinds()
    wanted = name or DEFAULT_METRIC
    if wanted not in kinds:
        near = difflib.get_close_matches(wanted, kinds, n=1)
        raise TaskError(
            "metric_unknown",
            f"There is no metric '{wanted}'",
            hint=f"{f'Did you mean {near[0]!r}? ' if near else ''}Possible: {', '.join(kinds)}",
        )
    return read_record(kinds[wanted].options, Section({}, "metric", Path())).make(setup)


def metric_warnings(metric: Metric) -> tuple[Notice, ...]:
    """Return what a metric has to say about its annotations, for ``warnings[]``."""
    return metric.warnings if isinstance(metric, Warns) else ()
