"""Bodies of If, Loop and Scan as models of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from analyzers.body_runs import record_runs
from analyzers.graph import save_model
from analyzers.project import Pair, open_models
from analyzers.records import Array
from analyzers.subgraphs import Body, ClosedBody, find_bodies
from tests.analyzers.sets import MemorySamples
from tests.analyzers.with_bodies import NETWORKS, network


def _opened(name: str, folder: Path, *, is_outside: bool = False) -> tuple[Pair, dict[str, Body]]:
    pair = open_models(*network(name).write(folder, is_outside=is_outside))
    found = [body for body in find_bodies(pair) if isinstance(body, Body)]
    return pair, {body.path: body for body in found}


def _run(model: ir.Model, folder: Path, feeds: dict[str, Array]) -> list[Array]:
    path = save_model(model, folder)
    inputs = {value.name for value in model.graph.inputs}
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, {name: a for name, a in feeds.items() if name in inputs}))


def _written_out(path: Path, feeds: dict[str, Array], names: list[str]) -> list[Array]:
    """Return values of the main graph, by adding them to its outputs."""
    model = onnx.load(path)
    for name in names:
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(names, feeds))


@pytest.mark.parametrize("is_outside", [False, True])
@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("if", ["pick/else_branch", "pick/then_branch"]),
        ("loop", ["recur/body"]),
        ("nested", ["recur/body"]),
        ("scan", ["recur/body"]),
    ],
)
def test_every_body_is_a_model_that_both_sides_can_run(
    name: str, paths: list[str], is_outside: bool, tmp_path: Path
) -> None:
    pair, bodies = _opened(name, tmp_path, is_outside=is_outside)
    assert sorted(bodies) == paths
    runs = record_runs(pair, list(bodies.values()), MemorySamples(network(name).samples()))
    for index, (path, body) in enumerate(bodies.items()):
        feeds = runs[path][0].feeds
        (ours, *_), (theirs, *_) = (
            _run(model, tmp_path / f"{index}-{side}", feeds)
            for side, model in (("ours", body.reference), ("theirs", body.candidate))
        )
        assert ours.shape == theirs.shape
        assert 0 < np.abs(ours - theirs).max() < 0.1 * np.abs(ours).max()


def test_a_branch_is_recorded_for_the_samples_that_take_it(tmp_path: Path) -> None:
    pair, bodies = _opened("if", tmp_path)
    samples = network("if").samples()
    runs = record_runs(pair, list(bodies.values()), MemorySamples(samples))
    bright = tuple(f"s{i}" for i, feed in enumerate(samples) if feed["x"].mean() > 0)
    assert 0 < len(bright) < len(samples)
    assert runs["pick/then_branch"].taken_by == bright
    assert runs["pick/else_branch"].passed_by == bright
    (outer,) = bodies["pick/then_branch"].outer
    (expected,) = _written_out(tmp_path / "reference.onnx", samples[1], [outer])
    recorded = {run.name: run for run in runs["pick/then_branch"].runs}
    np.testing.assert_array_equal(recorded["s1"].feeds[outer], expected)


@pytest.mark.parametrize(("name", "output", "place"), [("loop", "trace", 1), ("scan", "seen", 0)])
def test_iterations_are_unrolled_as_the_runtime_runs_them(
    name: str, output: str, place: int, tmp_path: Path
) -> None:
    """What each iteration hands out, computed from its record, is what the whole network stacked."""
    pair, bodies = _opened(name, tmp_path)
    (body,) = bodies.values()
    samples = network(name).samples(1)
    runs = record_runs(pair, [body], MemorySamples(samples))["recur/body"]
    (stacked,) = _written_out(tmp_path / "reference.onnx", samples[0], [output])
    assert runs.iterations == len(runs) == len(stacked)
    for iteration, run in enumerate(runs.runs):
        assert run.name == f"s0/{iteration}"
        made = _run(body.reference, tmp_path / "body", run.feeds)
        np.testing.assert_allclose(made[place], stacked[iteration], rtol=1e-5, atol=1e-6)


def test_few_of_many_iterations_are_kept_the_first_and_the_last_among_them(tmp_path: Path) -> None:
    pair, bodies = _opened("loop", tmp_path)
    feeds = {**network("loop").samples(1)[0], "n": np.array(100, np.int64)}
    runs = record_runs(pair, list(bodies.values()), MemorySamples([feeds]))["recur/body"]
    assert runs.iterations == 100
    assert len(runs) < 30
    assert {"s0/0", "s0/99"} <= set(runs.names)


def test_a_loop_ends_when_its_condition_does(tmp_path: Path) -> None:
    text = NETWORKS["loop"][0].replace("go_on = Identity(go)", "go_on = Less(i, two)")
    changed = network("loop")
    changed.text = text
    pair = open_models(*changed.write(tmp_path))
    bodies = [body for body in find_bodies(pair) if isinstance(body, Body)]
    feeds = {**changed.samples(1)[0], "n": np.array(100, np.int64)}
    assert record_runs(pair, bodies, MemorySamples([feeds]))["recur/body"].iterations == 3


def test_a_second_quantizer_in_front_of_a_body_comes_along(tmp_path: Path) -> None:
    """The body reads ``a`` through a coarser quantizer than its producer's store."""
    reference, candidate = network("if").write(tmp_path)
    model = onnx.load(candidate)
    place, node = next((i, n) for i, n in enumerate(model.graph.node) if n.name == "pick")
    coarse = onnx.numpy_helper.from_array(np.float32(0.25), "coarse")
    model.graph.initializer.append(coarse)
    again = [
        onnx.helper.make_node("QuantizeLinear", ["a_DQ", "coarse", "a_zero"], ["a_edge"]),
        onnx.helper.make_node("DequantizeLinear", ["a_edge", "coarse", "a_zero"], ["a_coarse"]),
    ]
    for attribute in node.attribute:
        for inner in attribute.g.node:
            inner.input[:] = ["a_coarse" if name == "a_DQ" else name for name in inner.input]
    nodes = [*list(model.graph.node)[:place], *again, *list(model.graph.node)[place:]]
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, candidate)
    bodies = [b for b in find_bodies(open_models(reference, candidate)) if isinstance(b, Body)]
    for body in bodies:
        scales = [
            float(n.inputs[1].const_value.numpy())
            for n in body.candidate.graph
            if n.op_type == "QuantizeLinear"
            and n.inputs[1] is not None
            and n.inputs[1].const_value is not None
        ]
        assert 0.25 in scales
        assert body.outer == ("a",)


def test_a_body_with_other_outputs_stays_closed(tmp_path: Path) -> None:
    reference, candidate = network("loop").write(tmp_path)
    model = onnx.load(candidate)
    loop = next(n for n in model.graph.node if n.name == "recur")
    body = loop.attribute[0].g
    extra = onnx.helper.make_tensor_value_info("next", onnx.TensorProto.FLOAT, [1, 12])
    body.output.append(extra)
    loop.output.append("unread")
    onnx.save(model, candidate)
    (found,) = find_bodies(open_models(reference, candidate))
    assert isinstance(found, ClosedBody)
    assert "number" in found.reason


def test_networks_without_bodies_have_none(tmp_path: Path) -> None:
    from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized

    assert list(find_bodies(open_models(*quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)))) == []
