from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from analyzers.records import (
    BisectOptions,
    CompareOptions,
    DiagnoseOptions,
    Inputs,
    QuantizeOptions,
    SearchOptions,
)
from workbench.cli import app
from workbench.command_line import command_line
from workbench.requests import BisectRequest, CompareRequest, DiagnoseRequest, RunRequest, SearchRequest

PLAIN = Inputs(
    Path("/m/my model.onnx"), candidate=Path("/m/int8.onnx"), data=Path("/d"), workspace=Path("/w")
)
MADE = Inputs(
    Path("/m/m.onnx"),
    data=Path("/d"),
    calibration=Path("/c"),
    samples="8",
    quantize=QuantizeOptions(
        "percentile", per_channel=False, symmetric=True, format="qoperator", percentile=99.9
    ),
    workspace=Path("/w"),
    mode="literal",
    workers=2,
)
FED = replace(PLAIN, candidate_data=Path("/fed.npz"), calibration=Path("/c"), name_map=Path("/names.json"))
SCORED = Inputs(
    Path("/m/m.onnx"),
    candidate=Path("/m/int8.onnx"),
    data=Path("/d"),
    task=Path("/t.yaml"),
    annotations=Path("/a.json"),
    workspace=Path("/w"),
)


def test_defaults_are_left_out_and_names_with_spaces_quoted() -> None:
    line = command_line(CompareRequest(PLAIN))
    assert shlex.split(line.replace("\\\n", "")) == [
        "tearline", "compare", "/m/my model.onnx", "/m/int8.onnx", "--data", "/d", "--workspace", "/w",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "request_",
    [
        CompareRequest(PLAIN, CompareOptions(threshold=0.95)),
        BisectRequest(PLAIN, BisectOptions(threshold_db=20.0)),
        DiagnoseRequest(FED, DiagnoseOptions(threshold_db=20.0, samples=4, max_runs=30)),
        CompareRequest(MADE),
        SearchRequest(SCORED, SearchOptions(max_drop=0.015, keep_int8=("head*",), max_layers=3, holdout=0.2)),
        SearchRequest(SCORED, SearchOptions(target=0.3, force_fallback=("Conv_1",))),
        SearchRequest(
            replace(SCORED, target_profile="/my boards/b.yaml", rule="per-edge"), SearchOptions(target=0.3)
        ),
        SearchRequest(replace(SCORED, rule="hybrid", precision="fp32"), SearchOptions(target=0.3)),
    ],
    ids=["compare", "bisect", "diagnose", "made here", "drop", "target", "board", "rule"],
)
def test_the_command_line_understands_every_line(
    request_: RunRequest,
) -> None:
    words = shlex.split(command_line(request_).replace("\\\n", ""))
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    command = group.commands[words[1]]
    parsed = command.make_context(words[1], words[2:])
    assert parsed.params["data"] == request_.inputs.data
    for name in ("candidate", "candidate_data", "calibration", "name_map", "task", "annotations"):
        assert parsed.params[name] == getattr(request_.inputs, name)
    if isinstance(request_, DiagnoseRequest):
        assert parsed.params["threshold_db"] == request_.options.threshold_db
        assert parsed.params["proof_samples"] == request_.options.samples
        assert parsed.params["max_runs"] == request_.options.max_runs
    if isinstance(request_, SearchRequest):
        assert parsed.params["max_drop"] == request_.options.max_drop
        assert parsed.params["target"] == request_.options.target
        assert parsed.params["target_profile"] == request_.inputs.target_profile
        # What is left out is what the generic profile says.
        assert parsed.params["rule"] in (request_.inputs.rule, None)
        assert parsed.params["precision"] in (request_.inputs.precision, None)
        is_default = request_.inputs == replace(request_.inputs, rule="per-edge", target_profile="generic")
        assert (parsed.params["rule"] is None) == is_default


@pytest.mark.parametrize(
    ("request_", "given"),
    [
        (CompareRequest(PLAIN, CompareOptions(isolated=False)), {"isolated": False, "threshold": 0.99}),
        (
            BisectRequest(PLAIN, BisectOptions(max_runs=9, max_culprits=2)),
            {"runs": 9, "culprits": 2, "threshold": 16.9},
        ),
        (CompareRequest(replace(MADE, quantize=QuantizeOptions("entropy", bins=64))), {"bins": 64}),
        (
            SearchRequest(SCORED, SearchOptions(target=0.3, budget=2.5, holdout=0.25)),
            {"budget": 2.5, "holdout": 0.25},
        ),
    ],
    ids=["alone", "runs", "bins", "budget"],
)
def test_what_was_asked_for_on_the_command_line_is_in_its_line(
    request_: RunRequest, given: dict[str, object]
) -> None:
    words = shlex.split(command_line(request_).replace("\\\n", ""))
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    parsed = group.commands[words[1]].make_context(words[1], words[2:])
    assert {name: parsed.params[name] for name in given} == given
