"""Open a reference and its candidate: read, bring into one form, pair."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import onnx_ir as ir

from analyzers import reading
from analyzers.block_forms import OPSET as BLOCK_OPSET
from analyzers.block_forms import has_block_products
from analyzers.canonical import to_qdq
from analyzers.graph import OLDEST_OPSET, Model, read_model
from analyzers.pairing import Paired, pair_graphs
from analyzers.records import Notice, Pairing


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A reference and its candidate, paired.

    Attributes:
        reference: The FP32 model.
        candidate: The quantized model as it was given.
        canonical: The candidate in QDQ form.
        paired: The pairing with its graph objects.
        warnings: What reading and pairing noticed.
        name_map: What the user said belongs together.
    """

    reference: Model
    candidate: Model
    canonical: ir.Model
    paired: Paired
    warnings: tuple[Notice, ...]
    name_map: Mapping[str, str] = field(default_factory=dict)

    @property
    def pairing(self) -> Pairing:
        """The pairing as records."""
        return self.paired.pairing

    @property
    def digest(self) -> str:
        """Content hash of both models and of what pairs them."""
        parts = [self.reference.digest, self.candidate.digest]
        parts += [repr(sorted(self.name_map.items()))] if self.name_map else []
        return hashlib.sha256(":".join(parts).encode()).hexdigest()

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


def open_models(reference: Path, candidate: Path, *, name_map: Mapping[str, str] | None = None) -> Pair:
    """Read two models and pair them.

    Args:
        reference: The FP32 model.
        candidate: The quantized model.
        name_map: What the user says belongs together: reference tensor -> candidate tensor.

    Raises:
        ModelLoadError: One of the files cannot be read.
        PairingError: They do not belong together, or the map names a tensor that does not exist.
    """
    ours, theirs = _read_both(reference, candidate)
    notices = reading.check_roles(ours.ir, theirs.ir, reference_path=reference, candidate_path=candidate)
    canonical = to_qdq(theirs.ir)
    paired = pair_graphs(ours.ir.graph, canonical.graph, name_map=name_map)
    warnings = (*ours.notices, *theirs.notices, *notices, *paired.pairing.warnings)
    return Pair(ours, theirs, canonical, paired, warnings, dict(name_map or {}))


def _read_both(reference: Path, candidate: Path) -> tuple[Model, Model]:
    theirs = read_model(candidate)
    if has_block_products(theirs.ir) and _opset(theirs) < BLOCK_OPSET:
        theirs = read_model(candidate, opset=BLOCK_OPSET)
    opset = max(OLDEST_OPSET, _opset(theirs))
    ours = read_model(reference, opset=opset)
    if _opset(ours) > opset:
        theirs = read_model(candidate, opset=_opset(ours))
    return ours, theirs


def _opset(model: Model) -> int:
    return int(model.ir.graph.opset_imports.get("", OLDEST_OPSET))
