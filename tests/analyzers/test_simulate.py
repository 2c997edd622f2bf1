from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.graph import save_model
from analyzers.project import Pair, open_models
from analyzers.records import RULES, Array, Plan, Precision, Rule
from analyzers.simulate import simulate, simulate_plan
from tests.networks import NETWORKS, PLAIN, PLAIN_SHAPES, SILU, SILU_SHAPES, build, quantized, samples


@pytest.fixture(
    scope="module", params=[(n, f) for n in NETWORKS for f in ("QDQ", "QOperator")], ids=lambda p: "-".join(p)
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name, form = request.param
    folder = tmp_path_factory.mktemp(name)
    return open_models(*quantized(build(*NETWORKS[name]), folder, form=form))


def members(pair: Pair) -> list[str]:
    return [layer.name for layer in pair.pairing.layers if not layer.is_pass_through]


def feed(pair: Pair) -> dict[str, Array]:
    return samples(onnx.load(pair.reference.path), 1, seed=5)[0]


def run(pair: Pair, plan: Plan, folder: Path) -> dict[str, Array]:
    path = save_model(simulate(pair, plan), folder)
    return open_session(path, is_simulated=True).run(feed(pair))


@pytest.mark.parametrize("rule", RULES)
def test_the_empty_plan_is_the_candidate(pair: Pair, rule: Rule, tmp_path: Path) -> None:
    given = open_session(pair.candidate.path).run(feed(pair))
    simulated = run(pair, Plan(frozenset(), rule=rule), tmp_path)
    for name, twin in pair.pairing.outputs.items():
        step = np.abs(given[twin]).max() / 127
        assert np.abs(given[twin] - simulated[name]).max() <= 2 * step


@pytest.mark.parametrize("rule", RULES)
def test_the_full_fp32_plan_is_the_reference(pair: Pair, rule: Rule, tmp_path: Path) -> None:
    expected = open_session(pair.reference.path).run(feed(pair))
    simulated = run(pair, Plan(frozenset(members(pair)), "fp32", rule), tmp_path)
    for name, value in expected.items():
        np.testing.assert_allclose(simulated[name], value, rtol=1e-5, atol=1e-6)


def test_a_larger_fp16_plan_is_close_to_half_precision(pair: Pair, tmp_path: Path) -> None:
    expected = open_session(pair.reference.path).run(feed(pair))
    simulated = run(pair, Plan(frozenset(members(pair)), "fp16"), tmp_path)
    for name, value in expected.items():
        error = np.abs(simulated[name] - value).max() / np.abs(value).max()
        assert 0 < error < 5e-3


def plan_shapes(pair: Pair) -> list[frozenset[str]]:
    names = members(pair)
    singles = [frozenset({n}) for n in names]
    return [
        *singles,
        frozenset(names[: len(names) // 2]),
        frozenset(names[len(names) // 2 :]),
        frozenset(names[::2]),
    ]


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("rule", RULES)
def test_no_session_setting_in_use_changes_a_plan(
    pair: Pair, rule: Rule, precision: Precision, tmp_path: Path
) -> None:
    for shape in plan_shapes(pair):
        path = save_model(simulate(pair, Plan(shape, precision, rule)), tmp_path)
        plain = ort.SessionOptions()
        plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        expected = ort.InferenceSession(str(path), plain).run(None, feed(pair))
        for mode in ("as-executed", "literal"):
            outputs = open_session(path, mode=mode, is_simulated=True).run(feed(pair)).values()
            for got, want in zip(outputs, expected, strict=True):
                assert _db(want, got) > 40, (shape, mode)


def _db(want: Array, got: Array) -> float:
    noise = float(np.square(want - got).sum())
    return 200.0 if noise == 0 else 10 * float(np.log10(np.square(want).sum() / noise))


def test_fallback_weights_are_not_quantized_again_by_the_session(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    wide = onnx.numpy_helper.to_array(model.graph.initializer[2]) * np.array(
        [50, 1, 1, 1, 0.02, 0.02, 1, 1], np.float32
    ).reshape(8, 1, 1, 1)
    model.graph.initializer[2].CopyFrom(onnx.numpy_helper.from_array(wide, "wd"))
    pair = open_models(*quantized(model, tmp_path, per_channel=False))
    path = save_model(simulate(pair, Plan(frozenset({"dw"}), "fp32")), tmp_path / "plan")
    protected = open_session(path, is_simulated=True).run(feed(pair))["scores"]
    literal = open_session(path, mode="literal", is_simulated=True).run(feed(pair))["scores"]
    assert _db(literal, protected) > 30


def test_a_value_beyond_half_precision_is_visible(tmp_path: Path) -> None:
    model = build(SILU, SILU_SHAPES)
    for tensor in model.graph.initializer:
        if tensor.name == "w0":
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * 1e5, "w0"))
    pair = open_models(*quantized(model, tmp_path))
    simulated = simulate_plan(pair, Plan(frozenset({"c0"})))
    outputs = [*simulated.half_values, *(v.name or "" for v in simulated.model.graph.outputs)]
    values = {v.name: v for n in simulated.model.graph for v in n.outputs}
    simulated.model.graph.outputs.clear()
    simulated.model.graph.outputs.extend(values[name] for name in outputs)
    result = open_session(save_model(simulated.model, tmp_path), is_simulated=True).run(feed(pair))
    infinite = {simulated.half_values[n] for n in simulated.half_values if not np.isfinite(result[n]).all()}
    assert infinite == {"c0"}


def test_per_edge_quantizes_what_an_int8_consumer_reads_and_hybrid_does_not(tmp_path: Path) -> None:
    pair = open_models(*quantized(build(PLAIN, PLAIN_SHAPES), tmp_path))
    counts = {}
    for rule in RULES:
        graph = simulate(pair, Plan(frozenset({"dw"}), rule=rule)).graph
        counts[rule] = sum(n.op_type == "QuantizeLinear" for n in graph)
    assert counts["hybrid"] < counts["per-edge"] == counts["nodes-to-exclude"]


def test_an_unknown_layer_is_our_own_mistake(tmp_path: Path) -> None:
    pair = open_models(*quantized(build(PLAIN, PLAIN_SHAPES), tmp_path))
    with pytest.raises(ValueError, match="no such layer"):
        simulate(pair, Plan(frozenset({"nonsense"})))
