import json
import subprocess
import sys
import time

import pytest

from workbench.cli import run


def tearline(*args, **options):
    command = [sys.executable, "-m", "workbench.cli", *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, **options
    )


@pytest.mark.parametrize(
    "command", ["", "quantize", "compare", "diagnose", "bisect", "search", "export", "demo", "ui"]
)
def test_help_shows_examples(command):
    done = tearline(*command.split(), "--help")
    assert done.returncode == 0
    assert "Examples:\n    tearline" in done.stdout
    assert done.stderr == ""


def test_help_imports_neither_numpy_nor_the_runtime():
    slow = ("numpy", "onnx", "onnxruntime", "streamlit")
    probe = f"import sys, workbench.cli; print([m for m in {slow} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


def test_the_version_is_shown():
    assert tearline("--version").stdout.startswith("tearline 0.")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "No such command 'nosuch'"),
        (["compare"], "Missing argument 'REFERENCE'"),
        (["compare", "a", "b"], "Missing option '--data'"),
        (["compare", "a", "b", "--data", "d", "--nosuch"], "--nosuch"),
        (["compare", "a", "b", "--data", "d", "--workers", "0"], "--workers"),
        (["compare", "a", "--data", "d"], "no candidate"),
        (
            ["compare", "a", "b", "--data", "d", "--metric", "ap"],
            "--metric is 'ap', Choose one of: sqnr, slice-sqnr",
        ),
        (["compare", "a", "b", "--data", "d", "--memory", "lots"], "--memory is 'lots'"),
        (["diagnose", "a", "--data", "d"], "no candidate"),
        (["diagnose", "a", "b", "--data", "d", "--proof-samples", "0"], "--proof-samples"),
        (["diagnose", "a", "b", "--data", "d", "--threshold-db", "x"], "--threshold-db"),
        (["quantize", "a", "--data", "d"], "Missing option '--output'"),
        (["quantize", "a", "--data", "d", "-o", "c", "--method", "best"], "--method is 'best'"),
        (["search", "a", "b", "--data", "d", "--target", "1"], "needs a score"),
        (["search", "a", "b", "--data", "d", "--metric", "sqnr"], "needs a goal"),
        (
            ["search", "a", "b", "--data", "d", "--task", "t", "--target", "1", "--max-drop", "1"],
            "exclude each other",
        ),
        (
            ["search", "a", "b", "--data", "d", "--metric", "sqnr", "--max-drop", "1"],
            "--max-drop means nothing",
        ),
        (
            ["search", "a", "b", "--data", "d", "--metric", "slice-sqnr", "--max-drop", "1"],
            "Give --target in dB",
        ),
        (["search", "a", "b", "--data", "d", "--metric", "sqnr", "--target", "x"], "--target"),
        (
            ["search", "a", "b", "--data", "d", "--metric", "sqnr", "--target", "1", "--rule", "x"],
            "--rule is 'x'",
        ),
        (
            ["search", "a", "b", "--data", "d", "--metric", "sqnr", "--target", "1", "--holdout", "1"],
            "--holdout is 1",
        ),
        (
            ["search", "a", "b", "--data", "d", "--metric", "sqnr", "--target", "1", "--budget", "0"],
            "--budget is 0",
        ),
        (["export", "s.json", "--format", "onnx"], "--output"),
        (["ui", "--port", "0"], "--port"),
    ],
)
def test_options_that_are_wrong_are_one_line_and_exit_2(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert shown.err.startswith("error[bad_option]: ")
    assert words in shown.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["quantize", "compare", "bisect"])
def test_a_json_path_that_cannot_be_written_is_refused_before_anything_runs(command, tmp_path):
    more = ["-o", "c.onnx"] if command == "quantize" else ["b.onnx"]
    began = time.monotonic()
    done = tearline(command, "a.onnx", *more, "--data", "d", "--json", "no/such/x.json", cwd=tmp_path)
    assert time.monotonic() - began < 20
    assert done.returncode == 2
    assert done.stderr.startswith("error[output_not_writable]: ")
    assert "no/such/x.json" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("given", "budget"), [([], None), (["--budget", "3"], 3.0)])
def test_the_budget_of_a_search_is_the_engines_unless_one_is_given(given, budget, tmp_path):
    done = tearline(
        "search", "a", "b", "--data", "d", "--metric", "sqnr", "--target", "1", *given, cwd=tmp_path
    )
    assert done.stderr.splitlines()[-1].startswith("error[file_absent]: ")
    [job] = tmp_path.glob(".tearline/runs/*/job.json")
    assert json.loads(job.read_text())["params"]["options"]["budget"] == budget


def test_a_workspace_that_cannot_be_made_is_an_error_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = tearline("compare", "a", "b", "--data", "d", "--workspace", tmp_path / "file" / "ws")
    assert done.returncode == 2
    assert done.stderr.startswith("error[workspace_not_writable]: ")
