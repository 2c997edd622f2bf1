"""What the documents show must work."""

import ast
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import cast, get_args

import numpy as np
import onnx
import pytest
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

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
from workbench.cli import app
from workbench.diagnosis_words import CAUSES


def _known(command: TyperCommand) -> set[str]:
    return {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help"}


DOOR = cast("TyperGroup", get_command(app))
EVERY_OPTION = set().union(*(_known(c) for c in (DOOR, *DOOR.commands.values())))
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


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every command line of ours in the code blocks of a document, without its comment."""
    for block in re.findall(r"```(?:bash)?\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("tearline "):
                yield shlex.split(line, comments=True)


def test_the_command_line_understands_what_the_documents_and_the_help_show() -> None:
    shown = [words for page in PAGES for words in commands(page.read_text())]
    shown += [words for command in DOOR.commands.values() for words in _examples(command.epilog or "")]
    assert len(shown) > 20
    for words in shown:
        DOOR.commands[words[1]].make_context(words[1], words[2:])


def _examples(epilog: str) -> Iterator[list[str]]:
    lines = epilog.replace("\\\n", " ").splitlines()
    return (shlex.split(line) for line in lines if line.strip().startswith("tearline "))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_options_and_commands_that_are_named_exist(page: Path) -> None:
    for code in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        command = re.match(r"tearline (\w+)", code)
        if command is not None and command[1] != "COMMAND":
            assert set(_options(code)) <= _known(DOOR.commands[command[1]]), code
        elif code.startswith("--") or command is not None:
            assert set(_options(code)) <= EVERY_OPTION, code


def test_options_that_messages_name_exist() -> None:
    named: dict[str, Path] = {}
    for path in [*(ROOT / "analyzers").rglob("*.py"), *(ROOT / "workbench").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= dict.fromkeys(_options(node.value), path)
    foreign = {"--server", "--tflite"}  # of streamlit and of tf2onnx
    assert {option: path for option, path in named.items() if option not in EVERY_OPTION | foreign} == {}


def _options(text: str) -> list[str]:
    return re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_the_documents_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
