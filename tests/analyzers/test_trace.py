from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.errors import SampleError
from analyzers.isolate import isolate
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.project import Pair, open_models
from analyzers.records import Array
from analyzers.trace import candidate_feeds, measure_values, trace
from tests.analyzers.sets import MemorySamples
from tests.networks import ATTENTION, ATTENTION_SHAPES, PLAIN, PLAIN_SHAPES, build, quantized, samples


@pytest.fixture(scope="module", params=["QDQ", "QOperator"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp(request.param)
    return open_models(*quantized(build(PLAIN, PLAIN_SHAPES), folder, form=request.param))


def feeds(count: int) -> list[dict[str, Array]]:
    return samples(build(PLAIN, PLAIN_SHAPES), count, seed=7)


def test_every_pair_of_every_sample_is_handed_out_in_order(pair: Pair) -> None:
    runs = list(trace(pair, MemorySamples(feeds(3)), isolated=isolate(pair)))
    assert [(r.index, r.sample.name, r.runs) for r in runs] == [(0, "s0", 3), (1, "s1", 3), (2, "s2", 3)]
    for run in runs:
        assert [v.pair for v in run.values] == list(pair.pairing.pairs)
        for values in run.values:
            assert float(sqnr_db(measure_values(values).whole)) > 15, values.pair.reference
            assert values.isolated is not None
            assert values.isolated.shape == values.reference.shape


def test_stored_tensors_are_tapped_as_integers(pair: Pair) -> None:
    (run,) = trace(pair, MemorySamples(feeds(1)))
    stored = [v for v in run.values if v.pair.quantization is not None]
    assert len(stored) > 4
    assert {v.candidate.dtype for v in stored} == {np.dtype(np.uint8)}
    assert {v.isolated for v in run.values} == {None}


def test_graph_inputs_are_what_was_fed(pair: Pair) -> None:
    data = feeds(1)
    (run,) = trace(pair, MemorySamples(data))
    np.testing.assert_array_equal(run.values[0].reference, data[0]["image"])


def test_a_small_budget_splits_the_taps_and_changes_no_value(pair: Pair) -> None:
    whole = list(trace(pair, MemorySamples(feeds(2)), isolated=isolate(pair)))
    parts = list(trace(pair, MemorySamples(feeds(2)), isolated=isolate(pair), budget_bytes=40_000))
    groups = parts[0].runs // 2
    assert groups > 1
    assert len(parts) == parts[0].runs == groups * 2
    for sample in (0, 1):
        found = [v for run in parts if run.index == sample for v in run.values]
        assert [v.pair for v in found] == [v.pair for v in whole[sample].values]
        for left, right in zip(found, whole[sample].values, strict=True):
            np.testing.assert_array_equal(left.candidate, right.candidate)
            np.testing.assert_allclose(left.reference, right.reference, rtol=1e-5, atol=1e-5)


def test_samples_are_let_go_one_by_one(pair: Pair) -> None:
    data = MemorySamples(feeds(6))
    for run in trace(pair, data):
        index = run.index
        del run
        gc.collect()
        alive = sum(ref() is not None for ref in data.handed_out)
        assert alive <= 2, f"{alive} samples are held after sample {index}"


def test_the_candidate_may_be_fed_something_else(pair: Pair) -> None:
    theirs = [{"image": f["image"] * 0.5} for f in feeds(2)]
    runs = list(trace(pair, MemorySamples(feeds(2)), candidate_samples=MemorySamples(theirs)))
    first = runs[0].values[0]
    assert float(np.abs(first.reference).max()) > float(np.abs(runs[0].candidate_feeds["image"]).max())
    assert float(sqnr_db(measure_values(first).whole)) == pytest.approx(6.0, abs=0.2)


def test_sets_of_different_length_are_refused(pair: Pair) -> None:
    with pytest.raises(SampleError) as caught:
        next(trace(pair, MemorySamples(feeds(2)), candidate_samples=MemorySamples(feeds(3))))
    assert caught.value.code == "malformed_inputs"


def test_an_empty_set_is_refused(pair: Pair) -> None:
    with pytest.raises(SampleError) as caught:
        next(trace(pair, MemorySamples([])))
    assert caught.value.code == "zero_samples"


def test_a_candidate_with_raw_integer_inputs_is_fed_the_integers(tmp_path: Path) -> None:
    reference, candidate = quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)
    model = onnx.load(candidate)
    quantizer = next(n for n in model.graph.node if n.input[0] == "image")
    assert quantizer.op_type == "QuantizeLinear"
    model.graph.input[0].name = quantizer.output[0]
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    model.graph.node.remove(quantizer)
    onnx.save(model, candidate)
    pair = open_models(reference, candidate)
    data = feeds(1)
    found = candidate_feeds(pair, data[0], None)
    assert [a.dtype for a in found.values()] == [np.dtype(np.uint8)]
    (run,) = trace(pair, MemorySamples(data))
    assert float(sqnr_db(measure_values(run.values[0]).whole)) > 30
    assert float(sqnr_db(measure_values(run.values[-1]).whole)) > 15


def test_an_input_that_only_the_candidate_has_is_an_input_error(tmp_path: Path) -> None:
    reference, candidate = quantized(build(ATTENTION, ATTENTION_SHAPES), tmp_path)
    model = onnx.load(candidate)
    model.graph.input.append(onnx.helper.make_tensor_value_info("extra", onnx.TensorProto.FLOAT, [1]))
    onnx.save(model, candidate)
    pair = open_models(reference, candidate)
    with pytest.raises(SampleError) as caught:
        candidate_feeds(pair, samples(build(ATTENTION, ATTENTION_SHAPES), 1)[0], None)
    assert caught.value.code == "missing_input"
    assert "extra" in str(caught.value)
