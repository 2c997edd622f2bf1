"""Open a reference and its candidate: read, bring into one form, pair."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from analyzers import reading
from analyzers.canonical import to_qdq
from analyzers.errors import InputError
from analyzers.graph import OLDEST_OPSET, Model, read_model
from analyzers.pairing import Paired, pair_graphs
from analyzers.records import INPUT_LAYER, Notice, Pairing, TensorSpec


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A reference and its candidate, paired.

    Attributes:
        reference: The FP32 model.
        candidate: The quantized model as it was given.
        canonical: The candidate in QDQ form.
        paired: The pairing with its graph objects.
        warnings: What reading and pairing noticed.
    """

    reference: Model
    candidate: Model
    canonical: ir.Model
    paired: Paired
    warnings: tuple[Notice, ...]

    @property
    def pairing(self) -> Pairing:
        """The pairing as records."""
        return self.paired.pairing

    @property
    def digest(self) -> str:
        """Content hash of both models."""
        return hashlib.sha256(f"{self.reference.digest}:{self.candidate.digest}".encode()).hexdigest()

    @property
    def input_names(self) -> dict[str, str]:
        """Reference input name -> candidate input name."""
        theirs = {v.name or "" for v in self.canonical.graph.inputs}
        found: dict[str, str] = {}
        for value in self.reference.ir.graph.inputs:
            twin = self.paired.matches.values.get(value)
            if twin is not None and twin.name in theirs:
                found[value.name or ""] = twin.name
        return found


def open_models(reference: Path, candidate: Path) -> Pair:
    """Read two models and pair them.

    Raises:
        ModelLoadError: One of the files cannot be read.
        PairingError: They do not belong together.
        InputError: They are swapped, or the reference is quantized already.
    """
    ours, theirs = _read_both(reference, candidate)
    _check_roles(ours, theirs)
    canonical = to_qdq(theirs.ir)
    paired = pair_graphs(ours.ir.graph, canonical.graph)
    warnings = [*ours.notices, *theirs.notices, *paired.pairing.warnings]
    if not reading.is_quantized(theirs.ir):
        warnings.append(
            Notice(
                "int8_not_quantized",
                "The candidate is not quantized: it holds no integer operator, so there is nothing to fall back",
                str(candidate),
            )
        )
    return Pair(ours, theirs, canonical, paired, tuple(warnings))


def _read_both(reference: Path, candidate: Path) -> tuple[Model, Model]:
    theirs = read_model(candidate)
    opset = max(OLDEST_OPSET, _opset(theirs))
    ours = read_model(reference, opset=opset)
    if _opset(ours) > opset:
        theirs = read_model(candidate, opset=_opset(ours))
    return ours, theirs


def _opset(model: Model) -> int:
    return int(model.ir.graph.opset_imports.get("", OLDEST_OPSET))


def _check_roles(ours: Model, theirs: Model) -> None:
    if not reading.is_quantized(ours.ir):
        return
    if reading.is_quantized(theirs.ir):
        raise InputError(
            "already_quantized",
            "The reference is already quantized",
            where=str(ours.path),
            hint="Give the FP32 model that the candidate was made from",
        )
    raise InputError(
        "swapped_arguments",
        "Reference and candidate are swapped: the first model is quantized, the second is not",
        where=f"{ours.path} {theirs.path}",
        hint="Give the FP32 reference first, then the quantized candidate",
    )


def input_specs(pair: Pair) -> tuple[TensorSpec, ...]:
    """Return what the reference reads; samples are made for these."""
    return pair.reference.inputs


def is_input(name: str) -> bool:
    """Return True for the pseudo-layer of graph inputs."""
    return name == INPUT_LAYER
