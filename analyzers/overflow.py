"""Which layers hold values that half precision cannot: beyond 65504 they become infinite.

Found once for a pair, on a few samples, with every layer in FP16, rather than in every trial. A layer that
overflows drags all that read it along; so those where it begins are found, taken back to INT8, and the rest
is looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from analyzers.graph import save_model
from analyzers.project import Pair
from analyzers.records import Array, Layer, Plan, Rule
from analyzers.simulate import simulate_plan
from analyzers.steps import Step, Steps

SAMPLES = 4
_ROUNDS = 8
_SUFFIX = "_times_zero"

RunModel = Callable[[Path], Iterable[dict[str, Array]]]
"""Runs a model over a few samples and yields the outputs of each."""


def find_overflow(
    pair: Pair, layers: Sequence[str], run: RunModel, folder: Path, *, rule: Rule = "per-edge"
) -> Steps[frozenset[str]]:
    """Return the layers that overflow by themselves when they run in FP16.

    Args:
        pair: The models.
        layers: Layers that may leave INT8.
        run: Runs a model on some samples.
        folder: For the models; the caller removes it.
        rule: Storage rule of the plans.
    """
    broken = _broken_in_reference(pair, run, folder)
    found: frozenset[str] = frozenset()
    for turn in range(_ROUNDS):
        yield Step("overflow", done=turn, text="Looking for values that half precision cannot hold")
        plan = Plan(frozenset(layers) - found, "fp16", rule)
        simulated = simulate_plan(pair, plan)
        marked = {value: layer for value, layer in simulated.half_values.items() if layer in plan.fallback}
        if not marked:
            break
        path = _with_markers(simulated.model, marked, folder / f"overflow{turn}.onnx")
        hit = {marked[value] for value in _not_finite(run(path))} - broken
        origins = _origins(pair.pairing.layers, hit)
        if not origins:
            break
        found |= origins
    return found


def _with_markers(model: ir.Model, values: Iterable[str], path: Path) -> Path:
    """Write the model with one number per value instead of its outputs: NaN if the value is not finite.

    Infinity times zero is NaN, and so is NaN; a sum keeps it. That costs a scalar per value instead of the
    tensors themselves.
    """
    by_name = {v.name: v for node in model.graph for v in node.outputs}
    zero = ir.val("overflow_zero", const_value=ir.tensor(np.zeros((), np.float32)))
    model.graph.initializers.add(zero)
    model.graph.outputs.clear()
    for name in values:
        value = by_name[name]
        float32 = _emit(model, "Cast", [value], f"{name}_float", [ir.AttrInt64("to", ir.DataType.FLOAT)])
        product = _emit(model, "Mul", [float32, zero], f"{name}_zeros", [])
        total = _emit(model, "ReduceSum", [product], f"{name}{_SUFFIX}", [ir.AttrInt64("keepdims", 0)])
        total.type, total.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
        model.graph.outputs.append(total)
    return save_model(model, path.parent, name=path.name)


def _emit(
    model: ir.Model, op_type: str, inputs: Sequence[ir.Value], name: str, attributes: Sequence[ir.Attr]
) -> ir.Value:
    node = ir.Node("", op_type, inputs, attributes=attributes, num_outputs=1, name=name)
    node.outputs[0].name = name
    model.graph.append(node)
    return node.outputs[0]


def _not_finite(runs: Iterable[dict[str, Array]]) -> set[str]:
    """Return the values whose marker was NaN on any sample."""
    found: set[str] = set()
    for outputs in runs:
        found |= {name.removesuffix(_SUFFIX) for name, mark in outputs.items() if np.isnan(mark).any()}
    return found


def _broken_in_reference(pair: Pair, run: RunModel, folder: Path) -> frozenset[str]:
    """Return the layers that hold NaN or infinity in the reference already; that is no overflow."""
    tensors = {
        tensor: operator.layer for operator in pair.pairing.operators for tensor in operator.outputs if tensor
    }
    path = _with_markers(pair.reference.ir.clone(), tensors, folder / "overflow_reference.onnx")
    return frozenset(tensors[value] for value in _not_finite(run(path)))


def _origins(layers: Sequence[Layer], hit: set[str]) -> frozenset[str]:
    """Return those of the layers that read nothing that another one of them had a part in."""
    producer = {tensor: layer for layer in layers for tensor in layer.outputs}
    tainted: set[str] = set()
    origins: set[str] = set()
    for layer in layers:
        sources = {producer[t].name for t in layer.inputs if t in producer}
        if sources & tainted:
            # It may overflow by itself too; that shows when the first ones are out of the way.
            tainted.add(layer.name)
        elif layer.name in hit:
            tainted.add(layer.name)
            origins.add(layer.name)
    return frozenset(origins)
