"""Ranges that were measured behind a faulty operator: they fit what it makes, not what it should make.

A converter that exchanges an operator and calibrates afterwards measures every later range on wrong values.
Once the operator is repaired, these ranges clip or waste levels; they are no faults of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx_ir as ir

from analyzers.backends.onnxruntime import open_session
from analyzers.errors import BackendError
from analyzers.evidence import Evidence, Store
from analyzers.graph import save_model, with_outputs
from analyzers.levels import limits_of
from analyzers.project import Pair
from analyzers.records import Array
from analyzers.store_ranges import Range, own_stores, range_of, seen_range

# New samples go this much beyond the calibrated range in an ordinary network.
BEYOND = 0.1
# A range that much wider than the reference's values costs a bit of resolution.
WIDER = 2.0
# What the candidate itself clips where its ranges fit it; small tensors touch the ends of a range more often.
OWN_CLIPPED = 0.005
OWN_SHARE = 0.5  # of what the reference's values would lose


def consequences(evidence: Evidence, tensor: str, *, with_itself: bool = False) -> tuple[str, ...]:
    """Return the stored tensors behind a faulty one whose ranges fit the candidate and not the reference.

    Args:
        evidence: What was measured.
        tensor: What the faulty operator makes.
        with_itself: Look at its own store as well.
    """
    behind = _behind(evidence.pair, tensor) | ({tensor} if with_itself else set())
    misfits = {s.tensor: s for s in own_stores(evidence) if s.tensor in behind and _misfits(evidence, s)}
    if not misfits:
        return ()
    clipped = _own_clipping(evidence, misfits.values())
    return tuple(t for t in misfits if clipped.get(t, 1.0) <= _allowed(evidence, t))


def _allowed(evidence: Evidence, tensor: str) -> float:
    whole = evidence.measured[tensor].pooled.whole
    return max(OWN_CLIPPED, OWN_SHARE * float(whole.outside) / max(float(whole.count), 1.0))


def _behind(pair: Pair, tensor: str) -> set[str]:
    """Return the reference tensors that are computed from one."""
    ours = pair.paired.ours
    start = next((v for n in pair.reference.ir.graph for v in n.outputs if v.name == tensor), None)
    found: set[str] = set()
    frontier = [] if start is None else [ours.core(start)]
    while frontier:
        for node in ours.readers.get(frontier.pop(), []):
            for value in node.outputs:
                if value.name and value.name not in found:
                    found.add(value.name)
                    frontier.append(ours.core(value))
    return found


def _misfits(evidence: Evidence, store: Store) -> bool:
    held, seen = range_of(store.quantization), seen_range(evidence, store.tensor)
    if held is None or seen is None or held.span <= 0:
        return False
    return _exceeds(seen, held) or held.span > WIDER * seen.span


def _exceeds(seen: Range, held: Range) -> bool:
    slack = BEYOND * held.span
    return seen.low < held.low - slack or seen.high > held.high + slack


def _own_clipping(evidence: Evidence, stores: Iterable[Store]) -> dict[str, float]:
    """Return the share of each tensor that the candidate stores at a limit which the reference exceeds."""
    pairs = {p.reference: p for p in evidence.pair.pairing.pairs}
    taps = {pairs[s.tensor].tap: s for s in stores}
    if evidence.samples is None:
        return {}
    counts = {s.tensor: [0, 0] for s in taps.values()}
    with TemporaryDirectory(prefix="tearline-") as folder:
        try:
            model = with_outputs(evidence.pair.canonical, list(taps))
            session = open_session(save_model(model, Path(folder)), mode="literal")
            for index in range(len(evidence.samples)):
                made = session.run(_feeds(evidence.pair, model, evidence.samples[index].feeds))
                for tap, store in taps.items():
                    ends = _at_ends(made[tap], store, seen_range(evidence, store.tensor))
                    counts[store.tensor][0] += ends
                    counts[store.tensor][1] += made[tap].size
        except BackendError:
            return {}
    return {tensor: ends / size for tensor, (ends, size) in counts.items() if size}


def _at_ends(codes: Array, store: Store, seen: Range | None) -> int:
    """Count the codes at those limits beyond which the reference has values."""
    limits, held = limits_of(store.quantization.dtype), range_of(store.quantization)
    if limits is None or held is None or seen is None:
        return codes.size
    count = 0
    if seen.low < held.low:
        count += int(np.count_nonzero(codes == limits[0]))
    if seen.high > held.high:
        count += int(np.count_nonzero(codes == limits[1]))
    return count


def _feeds(pair: Pair, model: ir.Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    names = {theirs: ours for ours, theirs in pair.input_names.items()}
    found = {}
    for value in model.graph.inputs:
        array = feeds[names.get(value.name or "", value.name or "")]
        found[value.name or ""] = array if value.dtype is None else array.astype(value.dtype.numpy())
    return found
