"""Does this processor's default integer kernel change what the candidate computes?

Without VNNI, x86 kernels of onnxruntime saturate pairs of uint8 x int8 products at 16 bits. Tearline runs
exact kernels, so its numbers are those of a device; a plain session on the same machine shows other ones.
That is worth a warning, since users compare with what they measured themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from analyzers.backends.onnxruntime import open_session
from analyzers.contracts import SampleSet
from analyzers.project import Pair
from analyzers.records import Array, Notice

_VISIBLE_DB = 40.0


def saturation_notices(pair: Pair, data: SampleSet) -> tuple[Notice, ...]:
    """Run the candidate once with plain and once with exact kernels, on the first sample."""
    names = pair.input_names
    feeds = {names[k]: v for k, v in data[0].feeds.items() if k in names}
    exact = open_session(pair.candidate.path)
    if any(spec.name not in feeds or spec.dtype != str(feeds[spec.name].dtype) for spec in exact.inputs):
        return ()
    worst = _agreement_db(exact.run(feeds), open_session(pair.candidate.path, is_plain=True).run(feeds))
    if worst >= _VISIBLE_DB:
        return ()
    return (
        Notice(
            "simulator_artifact",
            "This processor's default integer kernels saturate: a plain onnxruntime session agrees with "
            f"exact arithmetic to {worst:.1f} dB only. Tearline runs exact kernels, as an NPU does; scores "
            "measured here with plain onnxruntime differ. Weights with reduced range avoid it",
            str(pair.candidate.path),
        ),
    )


def _agreement_db(exact: Mapping[str, Array], plain: Mapping[str, Array]) -> float:
    worst = np.inf
    for name, value in exact.items():
        if value.dtype.kind not in "fiu":
            continue
        a, b = value.astype(np.float64), plain[name].astype(np.float64)
        finite = np.isfinite(a) & np.isfinite(b)
        noise = float(np.square(a - b)[finite].sum())
        signal = float(np.square(a)[finite].sum())
        if noise > 0:
            worst = min(worst, 10 * float(np.log10(signal / noise)) if signal > 0 else -np.inf)
    return float(worst)
