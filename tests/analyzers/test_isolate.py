from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.graph import save_model, with_outputs
from analyzers.isolate import isolate
from analyzers.project import Pair, open_models
from analyzers.records import Array
from tests.networks import NETWORKS, PLAIN, PLAIN_SHAPES, build, quantized, samples


def isolated_values(pair: Pair, folder: Path) -> dict[str, tuple[Array, Array]]:
    """Return reference tensor -> (its value, the isolated candidate layer's value)."""
    isolated = isolate(pair)
    names = dict.fromkeys([*isolated.results, *isolated.results.values()])
    inputs = {v.name for v in isolated.model.graph.inputs}
    path = save_model(with_outputs(isolated.model, [n for n in names if n not in inputs]), folder)
    feed = samples(onnx.load(pair.reference.path), 1, seed=5)[0]
    values = open_session(path, mode="literal", is_simulated=True).run(feed) | feed
    return {tensor: (values[tensor], values[name]) for tensor, name in isolated.results.items()}


def sqnr_db(pair: tuple[Array, Array]) -> float:
    return 10 * float(np.log10(np.square(pair[0]).sum() / np.square(pair[0] - pair[1]).sum()))


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_pair_has_an_isolated_value_close_to_the_reference(
    name: str, form: str, tmp_path: Path
) -> None:
    pair = open_models(*quantized(build(*NETWORKS[name]), tmp_path, form=form))
    values = isolated_values(pair, tmp_path)
    assert values.keys() == {p.reference for p in pair.pairing.pairs}
    assert min(sqnr_db(both) for both in values.values()) > 20


def test_a_fault_stays_in_its_own_layer(tmp_path: Path) -> None:
    reference, candidate = quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)
    broken = onnx.load(candidate)
    for tensor in broken.graph.initializer:
        if tensor.name == "wd_quantized":
            values = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values[::-1].copy(), tensor.name))
    onnx.save(broken, candidate)
    values = isolated_values(open_models(reference, candidate), tmp_path)
    bad = {tensor for tensor, both in values.items() if sqnr_db(both) < 15}
    assert bad == {"k"}


def test_the_producers_storage_is_not_charged_to_the_consumer(tmp_path: Path) -> None:
    reference, candidate = quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)
    coarse = onnx.load(candidate)
    for tensor in coarse.graph.initializer:
        if tensor.name == "r0_scale":
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * 16, tensor.name)
            )
    onnx.save(coarse, candidate)
    values = isolated_values(open_models(reference, candidate), tmp_path)
    assert sqnr_db(values["r0"]) < 25 < sqnr_db(values["k"])
