"""Faults inside the bodies of If, Loop and Scan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers import api
from analyzers.diagnoses.bodies import find
from analyzers.records import Inputs
from analyzers.suspicions import Source, Suspicion
from tests.analyzers.gathered import gathered
from tests.analyzers.with_bodies import NETWORKS, Network, network, scrambled
from tests.networks import PLAIN, PLAIN_SHAPES, build, quantized, samples


def _suspected(changed: Network, folder: Path, *, is_outside: bool = False) -> list[Suspicion]:
    reference, candidate = changed.write(folder, is_outside=is_outside)
    return list(find(gathered(reference, candidate, changed.samples())))


@pytest.mark.parametrize("name", NETWORKS)
def test_healthy_bodies_are_not_suspected(name: str, tmp_path: Path) -> None:
    assert _suspected(network(name), tmp_path) == []


@pytest.mark.parametrize(
    ("name", "weight", "layer", "guilty", "is_outside"),
    [
        ("if", "w2", "pick", "pick/else_branch/else_conv", False),
        ("loop", "w0", "recur", "recur/body/step_mm", False),
        ("loop", "w1", "recur", "recur/body/seen_mm", True),
        ("nested", "w1", "recur", "recur/body/pick/then_branch/odd_mm", False),
        ("scan", "w1", "recur", "recur/body/state_mm", False),
    ],
)
def test_a_wrong_weight_is_found_in_its_body(
    name: str, weight: str, layer: str, guilty: str, is_outside: bool, tmp_path: Path
) -> None:
    changed = network(name)
    changed.corrupted[weight] = scrambled(changed.shapes[weight])
    (found,) = _suspected(changed, tmp_path, is_outside=is_outside)
    assert (found.cause, found.layers) == ("weight_corrupted", (guilty,))
    assert found.sources == (Source("layer", layer),)


@pytest.mark.parametrize(
    ("name", "tensor", "bounds", "guilty"),
    [
        ("if", "e", (0.0, 0.3), "pick/else_branch/else_conv"),
        ("loop", "state", (-0.2, 0.2), "recur/body/step_mm"),
        ("scan", "frame", (-0.4, 0.4), "recur/body/in_mm"),
    ],
)
def test_a_clipped_tensor_is_found_in_its_body(
    name: str, tensor: str, bounds: tuple[float, float], guilty: str, tmp_path: Path
) -> None:
    changed = network(name)
    changed.ranges[tensor] = bounds
    (found,) = _suspected(changed, tmp_path)
    assert (found.cause, found.layers) == ("activation_clipping", (guilty,))


def test_it_is_said_which_samples_take_the_branch(tmp_path: Path) -> None:
    changed = network("if")
    changed.corrupted["w1"] = scrambled(changed.shapes["w1"])
    (found,) = _suspected(changed, tmp_path)
    assert found.layers == ("pick/then_branch/then_conv",)
    assert found.evidence["taken_by"] == ("s1", "s3", "s5")
    assert found.evidence["not_taken_by"] == ("s0", "s2", "s4")
    there, elsewhere = (found.evidence[f"sqnr_{where}_db"] for where in ("where_taken", "elsewhere"))
    assert isinstance(there, float)
    assert isinstance(elsewhere, float)
    assert there < 10 < 30 < elsewhere
    assert "3 of 6" in found.message


def test_faults_in_both_branches_are_both_named(tmp_path: Path) -> None:
    changed = network("if")
    changed.corrupted["w1"] = scrambled(changed.shapes["w1"])
    changed.ranges["e"] = (0.0, 0.3)
    (found,) = _suspected(changed, tmp_path)
    assert set(found.layers) == {"pick/then_branch/then_conv", "pick/else_branch/else_conv"}


def test_a_weight_that_is_only_rounded_is_a_near_miss(tmp_path: Path) -> None:
    changed = network("loop")
    random = np.random.default_rng(5)  # the seed of the reference's own weights
    weight = (random.normal(size=(12, 12)) / np.sqrt(12)).astype(np.float32)
    step = np.abs(weight).max() / 127
    changed.corrupted["w0"] = (np.rint(weight / step) * step).astype(np.float32)
    assert _suspected(changed, tmp_path) == []


def test_a_node_whose_body_cannot_be_looked_into_is_named_itself(tmp_path: Path) -> None:
    """The candidate's loop hands out one tensor more, so the two bodies do not compare."""
    changed = network("loop")
    changed.ranges["state"] = (-0.2, 0.2)
    reference, candidate = changed.write(tmp_path)
    model = onnx.load(candidate)
    loop = next(n for n in model.graph.node if n.name == "recur")
    loop.attribute[0].g.output.append(
        onnx.helper.make_tensor_value_info("next", onnx.TensorProto.FLOAT, [1, 12])
    )
    loop.output.append("unread")
    onnx.save(model, candidate)
    (found,) = find(gathered(reference, candidate, changed.samples()))
    assert found.layers == ("recur",)
    assert found.evidence["bodies_not_looked_into"] == ("recur/body",)
    assert "was not looked into" in found.message


def test_iterations_that_add_up_blame_no_layer(tmp_path: Path) -> None:
    """A network of this gain is chaotic: any rounding grows until nothing is left."""
    changed = network("loop")
    changed.text = changed.text.replace("Tanh(mm)", "Tanh(loud)").replace(
        "[step_act]", "[louder] loud = Mul(mm, gain)\n            [step_act]"
    )
    reference, candidate = changed.write(tmp_path)
    feeds = [{**feed, "n": np.array(60, np.int64)} for feed in changed.samples(3)]
    (found,) = find(gathered(reference, candidate, feeds))
    assert (found.cause, found.layers) == ("cumulative_error", ())
    assert "60 iterations add up" in found.message


def test_networks_without_bodies_are_passed_by(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    assert list(find(gathered(*quantized(model, tmp_path), samples(model)))) == []


def test_a_fault_in_a_nested_body_is_proved_and_reported(tmp_path: Path) -> None:
    changed = network("nested")
    changed.corrupted["w1"] = scrambled(changed.shapes["w1"])
    reference, candidate = changed.write(tmp_path)
    keyed = {
        f"s{i:03d}::{name}": array for i, feed in enumerate(changed.samples()) for name, array in feed.items()
    }
    np.savez(tmp_path / "data.npz", **keyed)
    result = api.diagnose(
        Inputs(reference, candidate, data=tmp_path / "data.npz", workspace=tmp_path / "workspace")
    )
    assert result.verdict == "faulty_layers"
    finding = result.findings[0]
    assert (finding.cause, finding.layers) == ("weight_corrupted", ("recur/body/pick/then_branch/odd_mm",))
    assert finding.gain is not None
    assert finding.gain.after > finding.gain.before + 10
