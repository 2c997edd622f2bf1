"""Whole comparisons of small real candidates, healthy and with planted faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.comparison import compare
from analyzers.project import Pair, open_models
from analyzers.records import Array, Comparison, LayerRecord, Score
from analyzers.serialize import to_json
from analyzers.steps import Step, finish
from tests.analyzers.sets import MemorySamples
from tests.networks import PLAIN, PLAIN_SHAPES, SILU, SILU_SHAPES, build, quantized, samples

JOINED = """
net (float[1,3,8,8] image) => (float[1,6,8,8] out)
{
    [boxes] b = Conv<kernel_shape=[1,1]>(image, wb)
    [wide] w = Mul(b, thousand)
    [logits] l = Conv<kernel_shape=[1,1]>(image, ws)
    [scores] s = Sigmoid(l)
    [join] out = Concat<axis=1>(w, s)
}
"""


def fed(model: onnx.ModelProto, count: int = 4) -> MemorySamples:
    return MemorySamples(samples(model, count, seed=7))


def run(pair: Pair, data: MemorySamples, **options: object) -> Comparison:
    return finish(compare(pair, data, **options))  # type: ignore[arg-type]


def rows(found: Comparison) -> dict[str, LayerRecord]:
    return {row.node: row for row in found.layers}


def edit(path: Path, name: str, change: Callable[[Array], Array]) -> None:
    """Change an initializer of a candidate."""
    model = onnx.load(path)
    tensor = next(t for t in model.graph.initializer if t.name == name)
    tensor.CopyFrom(onnx.numpy_helper.from_array(change(onnx.numpy_helper.to_array(tensor)), name))
    onnx.save(model, path)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return open_models(*quantized(build(PLAIN, PLAIN_SHAPES), tmp_path_factory.mktemp("plain")))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)


def test_there_is_one_row_per_float_operator_in_topological_order(plain: Pair) -> None:
    found = run(plain, fed(build(PLAIN, PLAIN_SHAPES)))
    names = [node.name for node in build(PLAIN, PLAIN_SHAPES).graph.node]
    assert [row.node for row in found.layers] == names
    assert rows(found)["conv0"].flags == ("inner",)
    assert rows(found)["conv0"].layer == rows(found)["relu0"].layer == "conv0"
    assert math.isnan(rows(found)["conv0"].cosine)
    assert found.samples == 4
    assert found.coverage == 1.0


def test_a_healthy_candidate_has_no_divergence_and_no_warning(plain: Pair) -> None:
    found = run(plain, fed(build(PLAIN, PLAIN_SHAPES)))
    assert found.first_divergence is None
    assert found.warnings == ()
    assert not any("fallback_candidate" in row.flags for row in found.layers)
    relu = rows(found)["relu0"]
    assert relu.sqnr_db > 30
    assert 0.2 < relu.rmse_scale < 0.6
    assert relu.isolated is not None
    assert relu.isolated.sqnr_db >= relu.sqnr_db - 0.5
    assert relu.reference is not None
    assert relu.reference.min == 0.0


def test_numbers_agree_with_the_two_files_run_by_hand(plain: Pair) -> None:
    data = fed(build(PLAIN, PLAIN_SHAPES))
    found = run(plain, data)
    sessions = [open_session(m.path) for m in (plain.reference, plain.candidate)]
    both = [np.stack([s.run(f)["scores"] for f in data.feeds]).astype(np.float64) for s in sessions]
    ratio = 10 * math.log10(np.square(both[0]).sum() / np.square(both[0] - both[1]).sum())
    (output,) = found.outputs
    assert output.reference_tensor == "scores"
    assert output.sqnr_db == pytest.approx(ratio, abs=0.02)
    assert output.max_error == pytest.approx(np.abs(both[0] - both[1]).max(), rel=1e-3)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_a_planted_fault_is_the_first_divergence_and_stands_alone(form: str, tmp_path: Path) -> None:
    reference, candidate = quantized(build(PLAIN, PLAIN_SHAPES), tmp_path, form=form)
    edit(candidate, "wd_quantized", lambda w: np.ascontiguousarray(w[::-1]))
    found = run(open_models(reference, candidate), fed(build(PLAIN, PLAIN_SHAPES)))
    assert found.first_divergence == "dw"
    by_node = rows(found)
    assert "fallback_candidate" in by_node["clip"].flags
    assert by_node["relu1"].sqnr_db < 17
    alone = {n: r.isolated.sqnr_db for n, r in by_node.items() if r.isolated is not None}
    assert min(alone, key=lambda n: alone[n]) == "clip"
    assert sum(ratio < 17 for ratio in alone.values()) == 1


def test_isolation_can_be_left_out(plain: Pair) -> None:
    found = run(plain, fed(build(PLAIN, PLAIN_SHAPES)), isolated=False)
    assert {row.isolated for row in found.layers} == {None}


def test_a_scale_that_is_not_a_number_is_traced_to_its_layer(files: tuple[Path, Path]) -> None:
    edit(files[1], "r1_scale", lambda s: np.full_like(s, np.nan))
    found = run(open_models(*files), fed(build(PLAIN, PLAIN_SHAPES)))
    notice = next(w for w in found.warnings if w.code == "nan_on_one_side")
    assert notice.where == "conv1"
    assert found.first_divergence == "conv1"
    assert "nan" in rows(found)["relu1"].flags


def test_samples_with_nan_are_named_and_blame_no_layer(plain: Pair) -> None:
    data = fed(build(PLAIN, PLAIN_SHAPES))
    data.feeds[2]["image"][0, 0, 0, 0] = np.nan
    found = run(plain, data)
    assert [w.code for w in found.warnings] == ["nan_in_inputs"]
    assert "s2" in found.warnings[0].message
    assert found.first_divergence is None


def test_different_inputs_are_reported_and_blame_no_layer(plain: Pair) -> None:
    data = fed(build(PLAIN, PLAIN_SHAPES))
    theirs = MemorySamples([{"image": np.ascontiguousarray(f["image"][:, ::-1])} for f in data.feeds])
    found = run(plain, data, candidate_samples=theirs)
    assert "inputs_differ" in [w.code for w in found.warnings]
    assert found.first_divergence is None


def test_a_dead_branch_of_a_fine_output_is_found(tmp_path: Path) -> None:
    model = build(JOINED, {"wb": (2, 3, 1, 1), "ws": (4, 3, 1, 1)})
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1000, np.float32), "thousand"))
    found = run(open_models(*quantized(model, tmp_path)), fed(model))
    (output,) = found.outputs
    assert output.cosine > 0.999
    assert output.worst_slice is not None
    assert (output.worst_slice.start, output.worst_slice.stop, output.worst_slice.name) == (2, 6, "s")
    assert output.worst_slice.sqnr_db < 3
    notice = next(w for w in found.warnings if w.code == "slice_lost")
    assert notice.where == "out"


def test_a_lost_score_is_reported_whatever_the_cosine(plain: Pair) -> None:
    scores = {"reference_score": Score(0.40, "ap"), "candidate_score": Score(0.35, "ap")}
    found = run(plain, fed(build(PLAIN, PLAIN_SHAPES)), **scores)
    assert [w.code for w in found.warnings] == ["score_lost"]
    assert found.reference_score == Score(0.40, "ap")
    kept = {"reference_score": Score(0.40, "ap"), "candidate_score": Score(0.395, "ap")}
    assert run(plain, fed(build(PLAIN, PLAIN_SHAPES)), **kept).warnings == ()


def test_the_worst_sample_is_named(plain: Pair) -> None:
    data = fed(build(PLAIN, PLAIN_SHAPES), 6)
    data.feeds[4]["image"] *= 20
    found = run(plain, data)
    worst = rows(found)["relu0"].worst_sample
    assert worst is not None
    assert worst.sample == "s4"
    assert "clipping" in rows(found)["relu0"].flags


def test_steps_count_samples_and_the_same_inputs_give_the_same_json(plain: Pair) -> None:
    steps: list[Step] = []
    data = fed(build(PLAIN, PLAIN_SHAPES))
    first = finish(compare(plain, data), steps.append)
    assert [(s.stage, s.done, s.total) for s in steps] == [("compare", i, 4) for i in range(5)]
    assert to_json(first) == to_json(run(plain, data))


def test_literal_mode_is_carried_along(plain: Pair) -> None:
    found = run(plain, fed(build(PLAIN, PLAIN_SHAPES)), mode="literal")
    assert found.mode == "literal"
    assert found.first_divergence is None


def test_decomposed_activations_belong_to_one_layer(tmp_path: Path) -> None:
    model = build(SILU, SILU_SHAPES)
    found = run(open_models(*quantized(model, tmp_path)), fed(model))
    assert {rows(found)[n].layer for n in ("c0", "s0", "m0")} == {"c0"}
    joined = rows(found)["cat"].worst_slice
    assert joined is not None
    assert joined.name in {"sum", "g1"}
