"""Signal to noise of the outputs and of the parts that they consist of; the label-free default."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.contracts import Metric
from analyzers.tasks.kinds import MetricKind, MetricSetup
from analyzers.tasks.noise import OutputNoise, OutputPart, whole_outputs


@dataclass(frozen=True, slots=True)
class SliceSqnrOptions:
    """The ``slice-sqnr`` metric: the minimum over outputs and their parts; it has no options."""

    def make(self, setup: MetricSetup) -> Metric:
        """Return the metric; see ``analyzers.tasks.kinds.MetricOptions``."""
        slices = (OutputPart(o, part) for o in setup.outputs for part in setup.slices.get(o, ()))
        return OutputNoise("slice-sqnr", (*whole_outputs(setup.outputs), *slices))


ENTRY = MetricKind("slice-sqnr", SliceSqnrOptions)
