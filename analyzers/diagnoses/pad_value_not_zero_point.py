"""Integers padded with a raw zero where the zero point means zero: only the border is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from analyzers.attributes import settings
from analyzers.borders import Border, border_of, padded_widths
from analyzers.evidence import Evidence
from analyzers.graph import constant_array, node_name
from analyzers.operator_faults import OperatorFault, operator_faults
from analyzers.records import Fact
from analyzers.skeleton import Storage
from analyzers.suspicions import Detector, Suspicion

# An error that padding makes has next to nothing elsewhere.
ON_BORDER = 0.95
# And elsewhere the layer is right, as far as INT8 can tell.
INTERIOR_DB = 40.0
_PADS = frozenset({"Conv", "ConvTranspose", "AveragePool", "MaxPool", "LpPool"})
_SAME = 1e-3  # of a step


@dataclass(frozen=True, slots=True, eq=False)
class _Padding:
    """What a Pad operator of the candidate writes.

    Attributes:
        node: The operator.
        value: The real value that it pads with.
        wanted: The value that the reference pads with.
        raw: The integer behind it; None where the padded tensor is float.
        zero_point: The integer that means zero there.
    """

    node: ir.Node
    value: float
    wanted: float
    raw: int | None
    zero_point: int | None


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect layers that pad with another value than the reference, or whose error is on the border only."""
    for fault in operator_faults(evidence):
        padder = next((n for n in fault.parts.ours if n.op_type in _PADS or n.op_type == "Pad"), None)
        if padder is None:
            continue
        border = _border(evidence, fault, padder)
        wrong = _wrong_padding(evidence, fault)
        if wrong is not None:
            yield _suspicion(fault, padder, border, wrong)
        elif border is not None and border.share_of_noise >= ON_BORDER and border.interior_db >= INTERIOR_DB:
            yield _suspicion(fault, padder, border, None)


def _border(evidence: Evidence, fault: OperatorFault, padder: ir.Node) -> Border | None:
    looks = evidence.look(fault.tensor)
    widths = padded_widths(padder, looks[0].reference.ndim) if looks else None
    return None if widths is None else border_of(looks, widths)


def _wrong_padding(evidence: Evidence, fault: OperatorFault) -> _Padding | None:
    matches = {twin: node for node, twin in fault.parts.twins.items()}
    theirs = evidence.pair.paired.theirs
    for node in fault.parts.theirs:
        if node.op_type != "Pad":
            continue
        found = settings(node, constant_array, 13)
        twin = matches.get(node)
        reader = next((r for r in theirs.readers.get(theirs.core(node.outputs[0]), [])), None)
        lowest = -math.inf if reader is not None and reader.op_type == "MaxPool" else 0.0
        wanted = lowest if twin is None else _number(settings(twin, constant_array, 13).get("value", 0.0))
        value = _number(found.get("value", 0.0))
        source = node.inputs[0]
        storages = [] if source is None else theirs.storage.get(theirs.core(source), [])
        step = (
            float(storages[0].quantization.scale)
            if storages and not storages[0].quantization.scale.ndim
            else 0.0
        )
        if found.get("mode", "constant") == "constant" and abs(value - wanted) > _SAME * step:
            return _Padding(node, value, wanted, *_integers(storages, value))
    return None


def _number(value: object) -> float:
    if isinstance(value, tuple):
        value = value[0] if value else 0.0
    return float(value) if isinstance(value, float | int) else 0.0


def _integers(storages: list[Storage], value: float) -> tuple[int | None, int | None]:
    if not storages or storages[0].quantization.scale.ndim:
        return None, None
    stored = storages[0].quantization
    zero = int(stored.zero_point)
    scale = float(stored.scale)
    return (round(value / scale) + zero, zero) if scale > 0 and math.isfinite(value) else (None, zero)


def _suspicion(
    fault: OperatorFault, padder: ir.Node, border: Border | None, wrong: _Padding | None
) -> Suspicion:
    name = node_name(padder)
    facts: dict[str, Fact] = {
        "tensor": fault.tensor,
        "operator_sqnr_db": fault.operator_db,
        "isolated_sqnr_db": fault.isolated_db,
    }
    words = f"The padding of '{name}' differs"
    if wrong is not None:
        facts |= {"pad_value": wrong.value, "wanted_value": wrong.wanted}
        words = f"'{name}' is padded with {wrong.value:.4g} where the reference pads with {wrong.wanted:g}"
        if wrong.raw is not None:
            facts |= {"pad_integer": wrong.raw, "zero_point": wrong.zero_point}
            words += f": the integers are padded with {wrong.raw}, and the zero point is {wrong.zero_point}"
    if border is not None:
        facts |= {
            "border_share_of_noise": border.share_of_noise,
            "border_share_of_area": border.share_of_area,
            "interior_sqnr_db": border.interior_db,
        }
        words += (
            f". The error is on the border: {border.share_of_noise:.0%} of it in {border.share_of_area:.0%} "
            f"of the map{'; the interior is exact' if np.isinf(border.interior_db) else ''}"
        )
    return Suspicion(
        cause="pad_value_not_zero_point",
        layers=(name,),
        sources=fault.sources,
        message=f"{words}; {fault.numbers}",
        evidence=facts,
        fix=(
            "The pad constant must equal the zero point of the padded tensor"
            + (f" ({wrong.zero_point})" if wrong is not None and wrong.zero_point is not None else "")
            + "; or let the operator pad by itself with explicit pads"
        ),
        specificity=82 if wrong is not None else 60,
        is_fault=True,
    )


ENTRY = Detector(
    name="pad_value_not_zero_point",
    looks_at="what is padded with which value, and whether a layer's error sits on the border of its map",
    causes=("pad_value_not_zero_point",),
    find=find,
)
