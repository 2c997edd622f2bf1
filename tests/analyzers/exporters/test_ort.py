from __future__ import annotations

import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from analyzers.errors import InputError
from analyzers.exporters import ExportRequest, ExportResult, find_exporter, write_export
from analyzers.exporters._quantizer import Quantizer, quantizer_of
from analyzers.exporters.ort import requantize
from analyzers.graph import read_model
from analyzers.project import Pair, open_models
from analyzers.quantizing import quantize
from analyzers.records import Inputs, Plan, QuantFormat, QuantizeOptions, TensorSpec
from analyzers.samples import open_samples
from analyzers.steps import finish
from tests.analyzers.exporters.plans import Samples, make_pair, searched
from tests.conftest import CheckGolden
from tests.networks import PLAIN, PLAIN_SHAPES, SILU, SILU_SHAPES, build, samples

EXPORTER = find_exporter("ort")
PLAN = Plan(frozenset({"dw", "head"}), "fp32", "nodes-to-exclude")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair("plain", tmp_path_factory.mktemp("plain"))


def export(pair: Pair, plan: Plan, folder: Path) -> ExportResult:
    return write_export(EXPORTER, ExportRequest(pair, plan, folder / "plan.json"))


def calibration(model: onnx.ModelProto, folder: Path, count: int = 4) -> Path:
    path = folder / "calibration.npz"
    feeds = samples(model, count)
    np.savez(path, **{name: np.concatenate([f[name] for f in feeds]) for name in feeds[0]})
    return path


def run_script(result: ExportResult, model: Path, data: Path, output: Path) -> None:
    runpy.run_path(str(result.files[1]))["main"](str(model), str(data), str(output))


def quantized_weights(path: Path) -> set[str]:
    """Return the operators that read an integer weight."""
    model = onnx.load(path)
    producers = {name: node for node in model.graph.node for name in node.output}
    found = set()
    for node in model.graph.node:
        source = producers.get(node.input[1]) if len(node.input) > 1 else None
        if node.op_type in {"Conv", "Gemm"} and source is not None and source.op_type == "DequantizeLinear":
            found.add(node.name)
    return found


def test_the_files(pair: Pair, tmp_path: Path, golden: CheckGolden) -> None:
    result = export(pair, PLAN, tmp_path)
    assert [path.name for path in result.files] == ["plan.json", "plan_quantize.py"]
    golden("exporters/ort.json", result.files[0].read_text())
    golden("exporters/ort_quantize.py.txt", result.files[1].read_text())


def test_the_script_runs_by_itself(pair: Pair, tmp_path: Path) -> None:
    script = export(pair, PLAN, tmp_path).files[1]
    data = calibration(onnx.load(pair.reference.path), tmp_path)
    command = [sys.executable, str(script), str(pair.reference.path), str(data), "int8.onnx"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "int8.onnx").is_file()
    assert subprocess.run(command[:2], capture_output=True, check=False).returncode == 1


def test_the_script_leaves_the_nodes_in_float(pair: Pair, tmp_path: Path) -> None:
    result = export(pair, PLAN, tmp_path)
    model = pair.reference.path
    run_script(result, model, calibration(onnx.load(model), tmp_path), tmp_path / "int8.onnx")
    assert quantized_weights(tmp_path / "int8.onnx") == {"conv0", "conv1"}


@pytest.mark.parametrize(
    "options",
    [
        QuantizeOptions(),
        QuantizeOptions(per_channel=False, symmetric=True),
        QuantizeOptions(method="entropy"),
        QuantizeOptions(method="percentile", percentile=99.0),
        QuantizeOptions(format="qoperator"),
    ],
    ids=lambda o: f"{o.method}-{o.format}-{o.symmetric}",
)
def test_the_script_and_our_own_run_agree(options: QuantizeOptions, tmp_path: Path) -> None:
    reference = tmp_path / "reference.onnx"
    onnx.save(build(PLAIN, PLAIN_SHAPES), reference)
    data = calibration(onnx.load(reference), tmp_path)
    specs = make_specs(reference)
    finish(quantize(reference, open_samples(data, specs), options, tmp_path / "candidate.onnx"))
    pair = open_models(reference, tmp_path / "candidate.onnx")
    search = searched(pair, PLAN)
    search = replace(search, inputs=Inputs(reference, calibration=data, quantize=options))
    result = write_export(EXPORTER, ExportRequest(pair, PLAN, tmp_path / "plan.json", search=search))
    assert result.warnings == ()
    run_script(result, reference, data, tmp_path / "theirs.onnx")
    finish(requantize(pair, PLAN, open_samples(data, specs), options, tmp_path / "ours.onnx"))
    feeds = samples(onnx.load(reference), 1, seed=9)[0]
    theirs, ours = (
        ort.InferenceSession(tmp_path / name).run(None, feeds)[0] for name in ("theirs.onnx", "ours.onnx")
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def make_specs(reference: Path) -> tuple[TensorSpec, ...]:
    return read_model(reference).inputs


def test_nodes_without_a_name_are_reported_and_named_by_the_script(tmp_path: Path) -> None:
    model = build(SILU, SILU_SHAPES)
    for node in model.graph.node:
        node.name = "twice" if node.op_type in {"Add", "Concat"} else ""
    reference = tmp_path / "reference.onnx"
    onnx.save(model, reference)
    data = open_samples(calibration(model, tmp_path), make_specs(reference))
    finish(quantize(reference, data, QuantizeOptions(), tmp_path / "candidate.onnx"))
    pair = open_models(reference, tmp_path / "candidate.onnx")
    plan = Plan(frozenset({"Conv:x0", "Concat:out"}), "fp32", "nodes-to-exclude")
    result = export(pair, plan, tmp_path)
    unnamed = next(n for n in result.warnings if n.code == "unnamed_nodes")
    assert "Conv:x0, Sigmoid:g0, Mul:a0, Concat:out" in unnamed.message
    run_script(result, pair.reference.path, calibration(model, tmp_path), tmp_path / "int8.onnx")
    assert quantized_weights(tmp_path / "int8.onnx") == {"Conv:x1"}


def test_the_script_lifts_an_old_opset_and_keeps_the_names(tmp_path: Path) -> None:
    model = build(SILU, SILU_SHAPES, opset=11)
    data = calibration(model, tmp_path)
    reference = tmp_path / "reference.onnx"
    onnx.save(model, reference)
    specs = make_specs(reference)
    finish(quantize(reference, open_samples(data, specs), QuantizeOptions(), tmp_path / "candidate.onnx"))
    pair = open_models(reference, tmp_path / "candidate.onnx")
    result = export(pair, Plan(frozenset({"c0"}), "fp32", "nodes-to-exclude"), tmp_path)
    run_script(result, reference, data, tmp_path / "int8.onnx")
    assert quantized_weights(tmp_path / "int8.onnx") == {"c1"}


def test_the_script_reads_one_array_per_sample_too(pair: Pair, tmp_path: Path) -> None:
    feeds = samples(onnx.load(pair.reference.path), 3)
    data = tmp_path / "single.npz"
    np.savez(data, **{f"s{i:03d}::{k}": v for i, feed in enumerate(feeds) for k, v in feed.items()})
    run_script(export(pair, PLAN, tmp_path), pair.reference.path, data, tmp_path / "int8.onnx")


def test_the_script_refuses_names_that_the_model_does_not_have(pair: Pair, tmp_path: Path) -> None:
    result = export(pair, PLAN, tmp_path)
    other = tmp_path / "other.onnx"
    onnx.save(build(SILU, SILU_SHAPES), other)
    with pytest.raises(SystemExit, match="has no node dw, clip, head"):
        run_script(result, other, calibration(onnx.load(other), tmp_path), tmp_path / "int8.onnx")
    assert not (tmp_path / "int8.onnx").exists()


def test_bins_that_the_script_cannot_ask_for_are_said(pair: Pair, tmp_path: Path) -> None:
    options = QuantizeOptions(method="entropy", bins=512)
    search = replace(searched(pair, PLAN), inputs=Inputs(pair.reference.path, quantize=options))
    request = ExportRequest(pair, PLAN, tmp_path / "plan.json", search=search)
    assert [n.code for n in write_export(EXPORTER, request).warnings] == ["calibration_differs"]


def test_what_the_candidate_was_made_with_is_seen(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference = tmp_path / "reference.onnx"
    onnx.save(model, reference)
    data = open_samples(calibration(model, tmp_path), make_specs(reference))
    forms: tuple[QuantFormat, ...] = ("qdq", "qoperator")
    for form in forms:
        for per_channel in (True, False):
            for symmetric in (True, False):
                options = QuantizeOptions(per_channel=per_channel, symmetric=symmetric, format=form)
                finish(quantize(reference, data, options, tmp_path / "candidate.onnx"))
                seen = quantizer_of(open_models(reference, tmp_path / "candidate.onnx"), None)
                kind = "QInt8" if symmetric else "QUInt8"
                assert seen == Quantizer(options, kind, "QInt8", is_method_known=False)


def test_a_candidate_that_was_given_does_not_tell_its_calibration(pair: Pair, tmp_path: Path) -> None:
    assert "calibration_unknown" in {n.code for n in export(pair, PLAN, tmp_path).warnings}


def test_another_rule_and_precision_than_onnxruntimes_are_said(pair: Pair, tmp_path: Path) -> None:
    plan = Plan(frozenset({"dw"}), "fp16", "per-edge")
    codes = {n.code for n in export(pair, plan, tmp_path).warnings}
    assert {"other_storage_rule", "other_precision"} <= codes


@pytest.mark.parametrize(
    ("nodes", "code"), [(["dw"], "partial_layer"), (["dw", "clip", "nosuch"], "unknown_node")]
)
def test_reading_finds_nodes_that_are_wrong(nodes: list[str], code: str, pair: Pair, tmp_path: Path) -> None:
    result = export(pair, PLAN, tmp_path)
    table = json.loads(result.files[0].read_text())
    result.files[0].write_text(json.dumps(table | {"nodes_to_exclude": nodes}))
    with pytest.raises(InputError) as caught:
        EXPORTER.read(result.files[0], pair)
    assert caught.value.code == code


def test_a_plan_with_a_wrong_name_is_not_quantized(pair: Pair, tmp_path: Path) -> None:
    plan = Plan(frozenset({"nosuch"}))
    with pytest.raises(InputError, match="has no layer 'nosuch'"):
        finish(requantize(pair, plan, Samples(pair), QuantizeOptions(), tmp_path / "x.onnx"))


def test_a_node_to_exclude_that_does_not_exist_is_refused(pair: Pair, tmp_path: Path) -> None:
    options = QuantizeOptions(nodes_to_exclude=("dw", "nosuch"))
    with pytest.raises(InputError, match="no node 'nosuch'") as caught:
        finish(quantize(pair.reference.path, Samples(pair), options, tmp_path / "x.onnx"))
    assert caught.value.code == "unknown_node"
