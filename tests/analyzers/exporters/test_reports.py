from __future__ import annotations

import json
import re
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import onnx
import pytest

from analyzers.errors import InputError
from analyzers.exporters import ExportRequest, find_exporter, write_export
from analyzers.project import Pair, open_models
from analyzers.records import Fidelity, Notice, Plan, QuantizeOptions, Trial
from analyzers.search_file import SearchFile
from tests.analyzers.exporters.plans import make_pair, members, searched
from tests.conftest import CheckGolden
from tests.networks import SILU, SILU_SHAPES, build, quantized

PLAN = Plan(frozenset({"dw", "head"}))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair("plain", tmp_path_factory.mktemp("plain"))


def report(pair: Pair, plan: Plan, search: SearchFile, folder: Path, name: str = "markdown") -> str:
    request = ExportRequest(pair, plan, folder / "report", search=search)
    return write_export(find_exporter(name), request).files[0].read_text(encoding="utf-8")


def masked(text: str, pair: Pair) -> str:
    """Without what changes from machine to machine."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text.replace(str(pair.reference.path.parent), "FOLDER"))
    text = text.replace(version("onnxruntime"), "ORT").replace(f'"{version("tearline")}"', '"VERSION"')
    return re.sub(r"Tearline [\d.]+,", "Tearline VERSION,", text)


@pytest.mark.parametrize(("name", "file"), [("markdown", "report.md"), ("json", "report.json")])
def test_a_report(name: str, file: str, pair: Pair, tmp_path: Path, golden: CheckGolden) -> None:
    text = report(pair, PLAN, searched(pair, PLAN), tmp_path, name)
    golden(f"exporters/{file}", masked(text, pair))


def test_a_report_of_a_search_that_missed(pair: Pair, tmp_path: Path, golden: CheckGolden) -> None:
    search = searched(
        pair,
        PLAN,
        reached=False,
        minimal=False,
        score=0.22,
        proof=(),
        trials=(Trial((), 0.139, 128, 2.0, "candidate"), Trial(("dw", "head"), 0.22, 128, 1.5)),
        all_fallback_score=float("nan"),
        fidelity=Fidelity(0.139, float("nan"), float("nan")),
        reason="The budget ended before a set that reaches the target was found",
    )
    search = SearchFile(search.result)
    golden("exporters/report_missed.md", masked(report(pair, PLAN, search, tmp_path), pair))


def test_a_report_in_decibels(pair: Pair, tmp_path: Path) -> None:
    search = searched(pair, PLAN, metric="slice-sqnr", unit="dB", score=21.37, target=20.0)
    text = report(pair, PLAN, search, tmp_path)
    assert "brings slice SQNR [dB] from 0.1 to 21.4" in text
    assert "| target | 20.0 |" in text


def test_an_empty_set_is_an_answer(pair: Pair, tmp_path: Path) -> None:
    plan = Plan(frozenset())
    text = report(pair, plan, searched(pair, plan, candidate_score=0.34), tmp_path)
    assert "**Nothing has to leave INT8.**" in text
    assert "## Layers that leave INT8\n\nNone." in text


def test_what_no_trial_has_shown_is_not_claimed(pair: Pair, tmp_path: Path) -> None:
    trials = (Trial(("dw", "head"), 0.33, 128, 1.0), Trial(("dw",), 0.328, 128, 1.0))
    search = searched(pair, PLAN, minimal=False, proof=(), trials=trials)
    text = report(pair, PLAN, search, tmp_path)
    assert "It is not shown that every member is needed" in text
    assert re.search(r"\| `dw` \|.*\| not tried \| not shown \|", text)
    assert re.search(r"\| `head` \|.*\| 0\.3280 \| not needed for the target \|", text)


def test_the_json_report_is_plain_json(pair: Pair, tmp_path: Path) -> None:
    search = searched(pair, PLAN, all_fallback_score=float("nan"))
    table = json.loads(report(pair, PLAN, search, tmp_path, "json"))
    assert table["search"]["all_fallback_score"] is None
    assert [member["layer"] for member in table["members"]] == ["dw", "head"]
    assert table["reference"]["digest"] == pair.reference.digest


def test_a_json_report_whose_members_were_edited_is_refused(pair: Pair, tmp_path: Path) -> None:
    table = json.loads(report(pair, PLAN, searched(pair, PLAN), tmp_path, "json"))
    del table["members"][0]
    (tmp_path / "edited.json").write_text(json.dumps(table))
    with pytest.raises(InputError, match="not the fallback set"):
        find_exporter("json").read(tmp_path / "edited.json", pair)


def test_the_command_line_repeats_what_was_asked(pair: Pair, tmp_path: Path) -> None:
    search = searched(pair, PLAN)
    assert search.inputs is not None
    assert search.options is not None
    inputs = replace(
        search.inputs,
        candidate=None,
        calibration=Path("calibration photos"),
        samples="0::4",
        quantize=QuantizeOptions(method="percentile", per_channel=False, symmetric=True, percentile=99.5),
    )
    options = replace(
        search.options, max_drop=None, target=0.3, max_layers=4, holdout=0.25, force_fallback=("a[01]",)
    )
    result = replace(search.result, rule="hybrid", precision="fp32", mode="literal")
    search = SearchFile(result, inputs, options, search.provenance)
    line = next(
        line
        for line in report(
            pair, replace(PLAN, precision="fp32", rule="hybrid"), search, tmp_path
        ).splitlines()
        if line.startswith("tearline search")
    )
    assert line.removeprefix(f"tearline search {pair.reference.path} ") == (
        "--data photos --samples 0::4 --task task.yaml --annotations 'ground truth.json' "
        "--calibration 'calibration photos' --method percentile --per-tensor --symmetric --percentile 99.5 "
        "--target 0.3 --keep-int8 'conv1*' --force-fallback 'a[01]' --max-layers 4 --holdout 0.25 "
        "--rule hybrid --precision fp32 --literal --json search.json"
    )


def test_names_that_look_like_markup_are_harmless_and_read_back(tmp_path: Path) -> None:
    names = {"c0": "a|b` <script>", "c1": "``", "add": "| x |", "cat": "line\nbreak\x1b[31m"}
    model = build(SILU, SILU_SHAPES)
    for node in model.graph.node:
        node.name = names.get(node.name, node.name)
    pair = open_models(*quantized(model, tmp_path))
    plan = Plan(frozenset(members(pair)))
    search = searched(pair, plan, warnings=(Notice("x", "<b>*bold*</b> [link](http://x)", "a|b`"),))
    text = report(pair, plan, search, tmp_path)
    assert "\x1b" not in text
    assert r"\<b\>\*bold\*\</b\> \[link\](http://x)" in text
    assert find_exporter("markdown").read(tmp_path / "report", pair) == plan.fallback


def test_the_report_says_what_the_numbers_are_not(pair: Pair, tmp_path: Path) -> None:
    text = report(pair, PLAN, searched(pair, PLAN), tmp_path)
    assert "not of a device" in text
    assert "128 samples, on which 4 sets were tried" in text


def test_models_are_named_by_what_is_in_them(pair: Pair, tmp_path: Path) -> None:
    assert onnx.load(pair.candidate.path).producer_name in report(pair, PLAN, searched(pair, PLAN), tmp_path)
