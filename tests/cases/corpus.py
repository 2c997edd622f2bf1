"""The case corpus beside the repository: pairs of networks with known right answers."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzers.records import Inputs
from tests.faults.registry import Truth

SHARED = Path(os.environ.get("TEARLINE_SHARED", Path(__file__).parents[3] / "shared"))
CASES = SHARED / "cases" / "cases"
IS_PRESENT = CASES.is_dir()
ABSENT = "the case corpus is not beside the repository"


@dataclass(frozen=True, eq=False)
class Case:
    """One case.

    Attributes:
        folder: Where its files are.
        answer: What ``answer.json`` says.
    """

    folder: Path
    answer: dict[str, Any]

    @property
    def slug(self) -> str:
        """Name of the case; for people, never a source of answers."""
        return str(self.answer["slug"])

    @property
    def expect(self) -> str:
        """Return "diagnosis", "diagnosis_global", "diagnosis_input", "no_fault", "error" or "warning"."""
        return str(self.answer["expect"])

    @property
    def quantizes_itself(self) -> bool:
        """Whether the candidate is to be made from the calibration set."""
        return self.answer.get("mode") == "self_quantize"

    def inputs(self, workspace: Path) -> Inputs:
        """Return what a command is given."""
        return Inputs(
            self.folder / "fp32.onnx",
            None if self.quantizes_itself else self.folder / "int8.onnx",
            data=self.folder / "inputs.npz",
            candidate_data=self._if_there("inputs_int8.npz"),
            calibration=self._if_there("calib.npz"),
            workspace=workspace,
        )

    def arguments(self, workspace: Path, json_path: Path) -> list[str]:
        """Return the same for the command line."""
        inputs = self.inputs(workspace)
        words = [str(inputs.reference)]
        words += [] if inputs.candidate is None else [str(inputs.candidate)]
        for option, path in (
            ("--data", inputs.data),
            ("--candidate-data", inputs.candidate_data),
            ("--calibration", inputs.calibration),
            ("--workspace", workspace),
            ("--json", json_path),
        ):
            words += [] if path is None else [option, str(path)]
        return words

    def truths(self) -> tuple[Truth, ...]:
        """Return the right answer of a diagnosis; empty where nothing is wrong."""
        if self.expect == "no_fault":
            return ()
        cause = str(self.answer["diagnosis"])
        accepted = (cause, *(self.answer.get("accept_labels") or []))
        if self.expect == "diagnosis":
            sets = [self.answer["guilty"], *(self.answer.get("accept_guilty") or [])]
            return (Truth(cause, accepted, tuple(frozenset(names) for names in sets)),)
        verdicts = {
            "diagnosis_global": ("no_single_layer", "candidate_not_comparable"),
            "diagnosis_input": ("inputs_differ",),
        }
        return (Truth(cause, accepted, verdicts=verdicts[self.expect]),)

    def _if_there(self, name: str) -> Path | None:
        path = self.folder / name
        return path if path.exists() else None


def read_case(folder: Path) -> Case:
    """Read one case."""
    return Case(folder, json.loads((folder / "answer.json").read_text()))


def read_cases(*expectations: str) -> list[Case]:
    """Return all cases, or those with these expectations, by name; none where there is no corpus."""
    if not IS_PRESENT:
        return []
    cases = [read_case(f) for f in sorted(CASES.iterdir()) if (f / "answer.json").is_file()]
    return [case for case in cases if not expectations or case.expect in expectations]
