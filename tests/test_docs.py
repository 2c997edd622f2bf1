"""What the documents show must work."""

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import pytest

from analyzers import metrics
from analyzers.diagnoses import detectors
from analyzers.measure import measure
from analyzers.records import (
    BisectResult,
    BisectStep,
    Checked,
    Comparison,
    Culprit,
    Diagnosis,
    Fidelity,
    Finding,
    Gain,
    LayerRecord,
    QuantizeResult,
    SearchResult,
    Trial,
    Verdict,
)
from tests.analyzers.planted import plant
from workbench.diagnosis_words import CAUSES

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(p for p in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if p.is_file())


def test_the_metric_that_contributing_shows_works() -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    found: dict[str, object] = {}
    exec(compile(textwrap.dedent(code), "CONTRIBUTING.md", "exec"), found)  # noqa: S102 (our own document)
    metric = found["ENTRY"]
    assert isinstance(metric, metrics.TensorMetric)
    pair = measure(np.array([3.0, 4.0], np.float32), np.array([3.0, 4.5], np.float32))
    assert metrics.value(metric, pair.whole) == pytest.approx(0.1)


def test_the_script_that_the_readme_shows_works(tmp_path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    _, inputs = plant(tmp_path, ["conv1"], count=4)
    assert inputs.candidate is not None
    assert inputs.data is not None
    shown = {"model.onnx": inputs.reference, "int8.onnx": inputs.candidate, "inputs.npz": inputs.data}
    for name, path in shown.items():
        path.rename(tmp_path / name)
    (tmp_path / "script.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "conv1" in done.stdout
    assert onnx.load(tmp_path / "mixed.onnx").graph.node


@pytest.mark.parametrize(
    "record",
    [
        QuantizeResult,
        Comparison,
        LayerRecord,
        BisectResult,
        BisectStep,
        Culprit,
        Diagnosis,
        Finding,
        Gain,
        Checked,
        SearchResult,
        Trial,
        Fidelity,
    ],
)
def test_every_key_of_the_json_is_described(record: type) -> None:
    described = set(re.findall(r"`(\w+)(?:\[\])?`", (ROOT / "docs" / "command-line.md").read_text()))
    assert {field.name.rstrip("_") for field in fields(record)} - described == set()


def test_every_cause_is_explained() -> None:
    explained = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "diagnosis.md").read_text()))
    given = {cause for detector in detectors().values() for cause in detector.causes}
    assert (given | set(CAUSES)) - explained == set()
    assert set(get_args(Verdict)) - explained == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_the_documents_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
