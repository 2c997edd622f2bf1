"""NaN or infinite values of the candidate alone: a divisor (or the like) that its store rounded to zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from analyzers import moments
from analyzers.evidence import Evidence, Store
from analyzers.graph import is_constant, node_name
from analyzers.store_noise import StoreNoise, store_noise
from analyzers.store_ranges import culprit, producers_of, range_repairs, seen_range, step_of
from analyzers.suspicions import Detector, Source, Suspicion

# Which input must not be zero; all of them for other operators.
_SENSITIVE = {"Div": 1, "Reciprocal": 0, "Log": 0, "Sqrt": 0, "Pow": 0}
_FURTHEST = 16  # operators that are walked back to the nearest stores


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect the stores whose new zeros the first operator with non-finite values reads."""
    first = next((t for t in evidence.producers if _is_broken(evidence, t)), None)
    node = None if first is None else producers_of(evidence).get(first)
    if first is None or node is None:
        return
    for only_sensitive in (True, False):
        suspicions = []
        for store in _stores_read(evidence, node, only_sensitive=only_sensitive):
            found = store_noise(evidence, store)
            if found is not None and found.whole.zeroed > 0:
                suspicions.append(_suspicion(evidence, store, found, first, node))
        if suspicions:
            yield from suspicions
            return


def _is_broken(evidence: Evidence, tensor: str) -> bool:
    """Tell whether the candidate has NaN or infinite values that the reference has not."""
    measured = evidence.measured.get(tensor)
    if measured is None:
        return False
    table = measured.pooled.whole.table
    nan = table[moments.CANDIDATE_NAN] - table[moments.BOTH_NAN]
    inf = table[moments.CANDIDATE_INF] - table[moments.BOTH_INF]
    return bool(nan + inf > 0)


def _stores_read(evidence: Evidence, node: ir.Node, *, only_sensitive: bool) -> list[Store]:
    """Return the nearest stores that a node reads, through operators that store nothing."""
    producers = producers_of(evidence)
    found: dict[str, Store] = {}
    frontier, steps = [node], 0
    while frontier and steps < _FURTHEST:
        current, steps = frontier.pop(0), steps + 1
        sensitive = _SENSITIVE.get(current.op_type) if only_sensitive else None
        for index, value in enumerate(current.inputs):
            if value is None or is_constant(value) or (sensitive is not None and index != sensitive):
                continue
            name = value.name or ""
            if name in evidence.stores:
                found[name] = evidence.stores[name]
            elif name in producers:
                frontier.append(producers[name])
    return list(found.values())


def _suspicion(evidence: Evidence, store: Store, found: StoreNoise, first: str, node: ir.Node) -> Suspicion:
    step = step_of(store.quantization) or 0.0
    table = evidence.measured[first].pooled.whole.table
    broken = int(table[moments.CANDIDATE_NAN] + table[moments.CANDIDATE_INF])
    smallest = _smallest(evidence, store.tensor)
    samples = tuple(
        name
        for name, is_broken in zip(
            evidence.measured[first].samples, evidence.measured[first].broken, strict=False
        )
        if is_broken
    )
    seen = seen_range(evidence, store.tensor)
    return Suspicion(
        cause="nan_inf_from_quantized_zero",
        layers=(culprit(evidence, store),),
        sources=(Source("store", store.tensor),),
        message=(
            f"'{node_name(node)}' ({node.op_type}) is the first to make NaN or infinite values: its input "
            f"'{store.tensor}' has {found.whole.zeroed:.0f} zeros that the reference has not, since values "
            f"down to {smallest:.3g} are under half a step ({step / 2:.3g}). Keeping '{node_name(node)}' in "
            "float does not help, its input is zero already"
        ),
        evidence={
            "first_broken": node_name(node),
            "first_broken_op": node.op_type,
            "broken_values": broken,
            "broken_samples": samples,
            "tensor": store.tensor,
            "new_zeros": int(found.whole.zeroed),
            "smallest_magnitude": smallest,
            "half_step": step / 2,
            "largest": float("nan") if seen is None else max(abs(seen.low), abs(seen.high)),
        },
        fix=(
            f"Keep '{culprit(evidence, store)}' away from zero: store it in 16 bits or in float, or add an "
            "epsilon of at least one step before the division"
        ),
        specificity=80,
        is_fault=True,
        repairs=range_repairs(evidence, store),
    )


def _smallest(evidence: Evidence, tensor: str) -> float:
    """Return the smallest magnitude that the reference has, zeros left out."""
    smallest = float("inf")
    for look in evidence.look(tensor):
        magnitudes = np.abs(look.reference[np.isfinite(look.reference) & (look.reference != 0)])
        smallest = min(smallest, float(magnitudes.min(initial=np.inf)))
    return smallest


ENTRY = Detector(
    name="nan_inf_from_quantized_zero",
    looks_at="the first operator that makes NaN or infinite values, and zeros in what it reads",
    causes=("nan_inf_from_quantized_zero",),
    find=find,
)
