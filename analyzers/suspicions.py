"""What a detector hands over: a cause that the evidence suggests, and how it would be proved.

A suspicion becomes a finding only if lifting its sources moves the output (DESIGN section 7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from analyzers.evidence import Evidence
from analyzers.records import Array, Fact, Quantization

SourceKind = Literal["store", "weight", "bias", "layer"]
Scope = Literal["layer", "network"]


@dataclass(frozen=True, slots=True)
class Source:
    """Something that can be lifted alone: computed as in the reference, read unquantized by all.

    Attributes:
        kind: "store": the quantizers on a tensor; "weight" and "bias": an operator's constants; "layer": all
            that a layer computes and stores.
        name: The reference tensor of a store, the reference operator of a constant, the layer's name.
    """

    kind: SourceKind
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What a what-if model does to a source; with neither field the source is lifted.

    Attributes:
        source: What is changed.
        quantization: Store it (or, for a weight, quantize the reference's own values) this way instead.
        array: The constant to compute with instead, in the candidate's layout.
    """

    source: Source
    quantization: Quantization | None = None
    array: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Repair:
    """A fix that can be simulated.

    Attributes:
        how: What it does, in words.
        changes: What it changes in the candidate.
    """

    how: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Suspicion:
    """A cause that the evidence suggests.

    Attributes:
        cause: Label of the cause.
        layers: What to blame if it is proved: names of layers, or of operators inside one.
        sources: Lifting all of them should bring the output back.
        message: What is wrong, in words, with the main number.
        evidence: The numbers that show it.
        fix: What to do, the cheapest first.
        specificity: Where several causes explain the same sources, the highest names the finding.
            About 90: read off the file (a scale of zero); 70: an exact relation was found (a transposed
            weight); 50: a distinctive number (values clipped); 30: a general one (large error here).
        is_fault: A mistake that no quantizer has to make; it is reported even where the output survives it,
            if repairing it gives much.
        scope: "network" for causes without a layer to blame; proved, they absorb those of single layers.
        repairs: Fixes that can be simulated, the cheapest first.
        unproved: What needs no lift: "info" for what is worth knowing and blames nobody, "warning" for a
            risk that lies in the reference itself and that its numbers prove.
    """

    cause: str
    layers: tuple[str, ...]
    sources: tuple[Source, ...]
    message: str
    evidence: dict[str, Fact]
    fix: str
    specificity: int = 50
    is_fault: bool = False
    scope: Scope = "layer"
    repairs: tuple[Repair, ...] = field(default=())
    unproved: Literal["", "info", "warning"] = ""


@dataclass(frozen=True, slots=True)
class Detector:
    """One file of ``analyzers/diagnoses``.

    Attributes:
        name: Name of the detector; its file has the same.
        looks_at: What it compares, in words, for ``checked[]``.
        causes: Labels that it may give.
        find: Looks at the evidence.
    """

    name: str
    looks_at: str
    causes: tuple[str, ...]
    find: Callable[[Evidence], Iterable[Suspicion]]
