from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.graph import save_model
from analyzers.project import Pair, open_models
from analyzers.records import Plan, Rule
from analyzers.simulate import simulate
from analyzers.switches import mask_of, switch_layers
from tests.networks import NETWORKS, build, quantized, samples


@pytest.fixture(
    scope="module", params=[(n, f) for n in NETWORKS for f in ("QDQ", "QOperator")], ids=lambda p: "-".join(p)
)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name, form = request.param
    folder = tmp_path_factory.mktemp(name)
    return open_models(*quantized(build(*NETWORKS[name]), folder, form=form))


@pytest.mark.parametrize("rule", ["per-edge", "hybrid"])
def test_every_mask_computes_what_the_simulated_plan_computes(pair: Pair, rule: Rule, tmp_path: Path) -> None:
    layers = [layer.name for layer in pair.pairing.layers if not layer.is_pass_through]
    feeds = samples(onnx.load(pair.reference.path), 1, seed=5)[0]
    switched = switch_layers(pair, layers, rule=rule)
    session = open_session(
        save_model(switched.model, tmp_path, name="switches.onnx"), mode="literal", is_simulated=True
    )
    plans = [frozenset[str](), frozenset(layers)]
    plans += [frozenset({layer}) for layer in layers] + [frozenset(layers) - {layer} for layer in layers]
    plans += [frozenset(random.Random(i).sample(layers, len(layers) // 2)) for i in range(4)]
    for fallback in plans:
        path = save_model(simulate(pair, Plan(fallback, "fp32", rule)), tmp_path)
        expected = open_session(path, mode="literal", is_simulated=True).run(feeds)
        got = session.run({**feeds, switched.mask: mask_of(layers, fallback)})
        for name, value in expected.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-6, err_msg=str(sorted(fallback)))


def test_layers_without_a_switch_stay_as_the_candidate_computes_them(pair: Pair, tmp_path: Path) -> None:
    layers = [layer.name for layer in pair.pairing.layers if not layer.is_pass_through]
    feeds = samples(onnx.load(pair.reference.path), 1, seed=5)[0]
    switched = switch_layers(pair, layers[:1])
    path = save_model(switched.model, tmp_path, name="switches.onnx")
    got = open_session(path, mode="literal").run({**feeds, switched.mask: mask_of(layers[:1], frozenset())})
    plan = save_model(simulate(pair, Plan(frozenset(), "fp32")), tmp_path)
    expected = open_session(plan, mode="literal").run(feeds)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-6)


def test_a_rule_that_looks_at_all_neighbours_is_refused(pair: Pair) -> None:
    with pytest.raises(ValueError, match="nodes-to-exclude"):
        switch_layers(pair, [], rule="nodes-to-exclude")
