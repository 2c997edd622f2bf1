"""Measure a candidate against its reference, without the code under test except for what a part is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from analyzers.records import Array
from analyzers.slices import output_slices
from tests.faults.network import Feeds

HEALTHY_DB = 20.0
BROKEN_DB = 15.5
"""Clearly under the threshold of 16.9 dB, so that no answer hangs on which samples are looked at."""


def run(
    model: onnx.ModelProto, feeds: Sequence[Feeds], *, literal: bool = False, plain: bool = False
) -> list[Feeds]:
    """Return the outputs for each sample.

    Args:
        model: What to run.
        feeds: Inputs by name; those that the model does not know are left out.
        literal: Compute Q/DQ pairs in float as they stand.
        plain: Use onnxruntime's own defaults; otherwise integer kernels are asked not to saturate.
    """
    session = _open(model, literal=literal, plain=plain)
    outputs = [o.name for o in session.get_outputs()]
    known = {i.name for i in session.get_inputs()}
    results = [session.run(None, {n: a for n, a in feed.items() if n in known}) for feed in feeds]
    return [dict(zip(outputs, map(np.asarray, values), strict=True)) for values in results]


def _open(model: onnx.ModelProto, *, literal: bool, plain: bool) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if literal:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    elif not plain:
        options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        if literal or plain:
            raise
        # Symmetric int8 QLinearConv has no kernel for the weights that the setting makes.
        return _open(model, literal=literal, plain=True)


def values_of(model: onnx.ModelProto, feeds: Sequence[Feeds], names: Sequence[str]) -> dict[str, list[Array]]:
    """Return inner values of a float model, sample by sample."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    known = {o.name for o in tapped.graph.output} | {i.name for i in tapped.graph.input}
    tapped.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names if n not in known)
    results = run(tapped, feeds, literal=True)
    given = {i.name for i in tapped.graph.input}
    return {
        name: [(feed if name in given else result)[name] for feed, result in zip(feeds, results, strict=True)]
        for name in names
    }


class Scorer:
    """Scores candidates of one reference: the lowest SQNR of its outputs and their parts, in dB."""

    def __init__(self, reference: onnx.ModelProto, feeds: Sequence[Feeds]) -> None:
        self.feeds = feeds
        self._truth = run(reference, feeds, literal=True)
        self._slices = output_slices(ir.serde.deserialize_model(reference))

    def __call__(
        self,
        candidate: onnx.ModelProto,
        *,
        feeds: Sequence[Feeds] | None = None,
        outputs: Mapping[str, str] | None = None,
        literal: bool = False,
        plain: bool = False,
    ) -> float:
        """Return the score.

        Args:
            candidate: What to score.
            feeds: Its inputs where they differ from the reference's.
            outputs: Reference output -> candidate output, where names differ.
            literal: See ``run``.
            plain: See ``run``.
        """
        results = run(candidate, feeds or self.feeds, literal=literal, plain=plain)
        return self.of_results(
            [{name: r[(outputs or {}).get(name, name)] for name in self._slices} for r in results]
        )

    def of_results(self, results: Sequence[Feeds]) -> float:
        """Return the score of outputs that were computed elsewhere."""
        worst = math.inf
        for name, parts in self._slices.items():
            if not np.issubdtype(self._truth[0][name].dtype, np.floating):
                continue
            regions: list[tuple[slice, ...]] = [()]
            regions += [(*(slice(None),) * p.axis, slice(p.start, p.stop)) for p in parts]
            for region in regions:
                pairs = [
                    (t[name][region], r[name][region]) for t, r in zip(self._truth, results, strict=True)
                ]
                worst = min(worst, sqnr_db(pairs))
        return worst


def sqnr_db(pairs: Sequence[tuple[Array, Array]]) -> float:
    """Return the pooled SQNR over positions that are finite on both sides; -inf if only one side is not."""
    signal = noise = 0.0
    for reference, other in pairs:
        a, b = np.asarray(reference, np.float64), np.asarray(other, np.float64)
        if a.shape != b.shape or (np.isfinite(a) != np.isfinite(b)).any():
            return -math.inf
        finite = np.isfinite(a)
        signal += float((a[finite] ** 2).sum())
        noise += float(((a[finite] - b[finite]) ** 2).sum())
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal > 0 else -math.inf
