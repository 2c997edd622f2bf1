"""``tearline search --target-profile``: what is refused before anything runs, and what reaches the job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench.cli import run

SEARCH = ["search", "a.onnx", "b.onnx", "--data", "d", "--metric", "sqnr", "--target", "1"]
PROFILE = "name: board\ntitle: A board\nfallback: {{rule: {{value: {rule}, source: its manual}}}}\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("rule", "name", "code"),
    [
        ("hybrid", "rk9999", "unknown_profile"),
        ("hybrid", "absent.yaml", "file_absent"),
        ("sometimes", "board.yaml", "malformed_profile"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_before_anything_runs(
    rule: str, name: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "board.yaml").write_text(PROFILE.format(rule=rule))
    assert run([*SEARCH, "--target-profile", name]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error[{code}]: ")
    assert [path.name for path in tmp_path.iterdir()] == ["board.yaml"]


@pytest.mark.parametrize(("more", "rule"), [([], "hybrid"), (["--rule", "per-edge"], "per-edge")])
def test_a_job_is_given_the_profiles_rule_unless_another_is_asked_for(
    more: list[str], rule: str, tmp_path: Path
) -> None:
    (tmp_path / "board.yaml").write_text(PROFILE.format(rule="hybrid"))
    assert run([*SEARCH, "--target-profile", "board.yaml", *more]) == 2  # there is no a.onnx
    [job] = tmp_path.glob(".tearline/runs/*/job.json")
    inputs = json.loads(job.read_text())["params"]["inputs"]
    assert inputs["rule"] == rule
    assert inputs["target_profile"] == str(tmp_path / "board.yaml")
