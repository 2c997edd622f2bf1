"""Signal to noise of the outputs, for networks without labels."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.contracts import Metric
from analyzers.tasks.kinds import MetricKind, MetricSetup
from analyzers.tasks.noise import OutputNoise, whole_outputs


@dataclass(frozen=True, slots=True)
class SqnrOptions:
    """The ``sqnr`` metric: the minimum over the outputs; it has no options."""

    def make(self, setup: MetricSetup) -> Metric:
        """Return the metric; see ``analyzers.tasks.kinds.MetricOptions``."""
        return OutputNoise("sqnr", whole_outputs(setup.outputs))


ENTRY = MetricKind("sqnr", SqnrOptions)
