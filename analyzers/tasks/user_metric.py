"""A metric of the user's own: ``metric: file.py:score``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analyzers.errors import TaskError
from analyzers.records import Array, Sample, Score
from analyzers.tasks.decoder import find_output
from analyzers.tasks.decoding import SampleDecoder
from analyzers.tasks.user_code import UserFunction


@dataclass(frozen=True, slots=True)
class UserMetric:
    """Calls ``score(names, observations, annotations)``; see ``analyzers.contracts.Metric``.

    Attributes:
        function: Returns a number, higher is better.
        decoder: Makes the observations; without one they are the network's only output.
        annotations: Passed to the function as it is.
    """

    function: UserFunction
    decoder: SampleDecoder | None
    annotations: Path | None

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.name

    @property
    def needs_reference(self) -> bool:
        """A user's metric sees one side."""
        return False

    def observe(
        self, sample: Sample, outputs: Mapping[str, Array], reference: Mapping[str, Array] | None
    ) -> Array:
        """Return what the decoder makes of the outputs, or the only output.

        Raises:
            TaskError: ``output_missing``, or an error of the decoder.
        """
        del reference
        if self.decoder is not None:
            return self.decoder(sample, outputs)
        return find_output(outputs, "", decoder=self.name)

    def score(self, names: Sequence[str], observations: Sequence[Array]) -> Score:
        """Call the user's function.

        Raises:
            TaskError: ``user_code_failed``.
        """
        try:
            value = self.function.load()(list(names), list(observations), self.annotations)
            number = float(np.asarray(value, np.float64))
        except TaskError:
            raise
        except Exception as cause:
            raise TaskError(
                "user_code_failed",
                f"The metric '{self.name}' failed: {type(cause).__name__}: {cause}",
                where=str(self.function.path),
                hint="It gets (names, observations, annotations) and returns a number",
            ) from cause
        return Score(number, self.name)
