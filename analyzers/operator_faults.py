"""Layers whose operators compute something else than the reference's, whatever constants and stores do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import onnx_ir as ir

from analyzers.consequences import consequences
from analyzers.evidence import Evidence
from analyzers.layer_parts import Parts, has_unknown_constants, parts_of
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.moments import Moments
from analyzers.records import INPUT_LAYER
from analyzers.suspicions import Source

# INT8 storage alone costs about 40 dB; operators that agree better than that are not what hurts. Exact ones
# agree to 100 dB and more in float32 and to about 70 dB in float16.
DIFFERS_DB = 40.0
# Less than this share of the layer's error is not what is wrong with the layer.
LEAST_SHARE = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class OperatorFault:
    """A tensor that the candidate's operators do not make, even with the reference's constants.

    Attributes:
        layer: Its layer.
        tensor: The reference tensor.
        parts: The operators on both sides.
        found: Reference against the candidate's operators, fed with the reference's values and constants,
            nothing stored.
        channels: The same per channel; None where there are none.
        operator_db: Its SQNR.
        isolated_db: SQNR of the layer as the candidate computes and stores it; nan where not measured.
        consequences: Stored tensors behind it whose ranges were measured on what it makes; they are repaired
            with it.
    """

    layer: str
    tensor: str
    parts: Parts
    found: Moments
    channels: Moments | None
    operator_db: float
    isolated_db: float
    consequences: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """What has to be lifted: the operators cannot be, without the whole layer."""
        return (Source("layer", self.layer), *(Source("store", t) for t in self.consequences))

    @property
    def numbers(self) -> str:
        """The main number in words."""
        return (
            f"fed with the reference's values and constants, with nothing quantized, they still differ: "
            f"{_words(self.operator_db)} (an exact conversion has over 100 dB)"
        )


@lru_cache(maxsize=2)
def operator_faults(evidence: Evidence) -> tuple[OperatorFault, ...]:
    """Return them in topological order."""
    found: list[OperatorFault] = []
    known = frozenset(c.value for c in evidence.constants)
    for pair in evidence.pair.pairing.pairs:
        anatomy = evidence.anatomy.get(pair.reference)
        is_known = any(fault.layer == pair.layer for fault in found)  # by an earlier tensor of the layer
        if anatomy is None or anatomy.operator is None or pair.layer == INPUT_LAYER or is_known:
            continue
        whole = anatomy.operator.whole
        operator_db = float(sqnr_db(whole))
        stored = None if anatomy.stored is None else anatomy.stored.whole
        if not _differs(whole, operator_db) or not _matters(stored, whole):
            continue
        parts = parts_of(evidence.pair, pair.layer, pair.reference)
        if parts is None or has_unknown_constants(evidence.pair, parts, known):
            continue
        isolated_db = math.nan if stored is None else float(sqnr_db(stored))
        found.append(
            OperatorFault(
                pair.layer,
                pair.reference,
                parts,
                whole,
                anatomy.operator.channels,
                operator_db,
                isolated_db,
                consequences(evidence, pair.reference),
            )
        )
    return tuple(found)


def _differs(whole: Moments, operator_db: float) -> bool:
    return float(whole.one_sided) > 0 or operator_db < DIFFERS_DB


def _matters(stored: Moments | None, operator: Moments) -> bool:
    if stored is None or float(operator.one_sided) > 0:
        return True
    return float(operator.noise) >= LEAST_SHARE * float(stored.noise)


def changed_twins(fault: OperatorFault) -> tuple[tuple[ir.Node, ir.Node], ...]:
    """Return the matched operators of a layer whose types differ."""
    return tuple((a, b) for a, b in fault.parts.twins.items() if a.op_type != b.op_type)


def _words(decibels: float) -> str:
    if math.isinf(decibels):
        return "nothing of the signal is left" if decibels < 0 else "not at all"
    return f"{decibels:.1f} dB"
