"""A plan as a model that onnxruntime computes as it stands, whatever session it is opened in."""

from __future__ import annotations

import json

import numpy as np
from onnx_ir.passes import common

from analyzers.errors import InputError
from analyzers.exporters._guards import guard_model
from analyzers.graph import constant_array
from analyzers.project import Pair
from analyzers.records import Notice, Plan
from analyzers.search_file import SearchFile
from analyzers.serialize import to_json
from analyzers.simulate import Simulated, simulate_plan

PLAN_KEY = "tearline.plan"
_MOST_NAMES = 5


def executable_plan(pair: Pair, plan: Plan) -> Simulated:
    """Return the model that trials run, made safe for sessions with default options; see ``_guards``.

    Raises:
        ValueError: The plan names a layer that does not exist.
        PairingError: A border has no paired tensor.
    """
    simulated = simulate_plan(pair, plan)
    guard_model(simulated.model)
    common.RemoveUnusedNodesPass()(simulated.model)
    simulated.model.metadata_props[PLAN_KEY] = json.dumps(to_json(plan), ensure_ascii=False)
    return simulated


def check_overflow(search: SearchFile | None, plan: Plan) -> None:
    """Refuse a plan that a trial has seen to overflow half precision.

    Raises:
        InputError: ``fp16_overflow`` with the layer's name.
    """
    trials = () if search is None else search.result.trials
    for trial in trials:
        if frozenset(trial.fallback) == plan.fallback and trial.overflow and plan.precision == "fp16":
            layer = trial.overflow[0]
            raise overflow_error(layer)


def overflow_error(layer: str) -> InputError:
    """Return the error for a layer whose values do not fit half precision."""
    return InputError(
        "fp16_overflow",
        f"Layer '{layer}' holds values beyond 65504, which half precision cannot",
        where=layer,
        hint=f"Search again with --keep-int8 '{layer}' or --precision fp32",
    )


def constant_notices(pair: Pair, plan: Plan) -> tuple[Notice, ...]:
    """Say which constants of fallback layers become infinite in half precision."""
    if plan.precision != "fp16":
        return ()
    nodes = {name for layer in pair.pairing.layers if layer.name in plan.fallback for name in layer.nodes}
    limit = np.finfo(np.float16).max
    found: list[str] = []
    for node in pair.reference.ir.graph:
        if node.name not in nodes:
            continue
        for value in node.inputs:
            array = constant_array(value)
            if array is None or array.dtype.kind != "f" or array.size == 0:
                continue
            finite = array[np.isfinite(array)]
            if finite.size and np.abs(finite).max() > limit and value is not None:
                found.append(value.name or "")
    if not found:
        return ()
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    text = f"Constants beyond 65504 are infinite in half precision: {', '.join(found[:_MOST_NAMES])}{more}"
    return (Notice("fp16_constant_overflow", text, found[0]),)
