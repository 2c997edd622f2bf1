from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from analyzers.errors import PairingError
from analyzers.project import Pair, open_models
from tests.networks import NETWORKS, build, quantized


def opened(name: str, folder: Path, *, form: str = "QDQ", opset: int = 13) -> Pair:
    reference, candidate = quantized(build(*NETWORKS[name], opset=opset), folder, form=form)
    return open_models(reference, candidate)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_of_a_stock_candidate_pairs(name: str, form: str, tmp_path: Path) -> None:
    pairing = opened(name, tmp_path, form=form).pairing
    assert pairing.coverage == 1.0
    assert not pairing.unpaired
    assert pairing.outputs == {t: t for t in pairing.outputs}


@pytest.mark.parametrize("name", NETWORKS)
def test_pairs_survive_renaming_of_everything(name: str, tmp_path: Path) -> None:
    reference, candidate = quantized(build(*NETWORKS[name]), tmp_path)
    expected = {p.reference: p.quantization for p in open_models(reference, candidate).pairing.pairs}
    renamed = onnx.load(candidate)
    keep = {v.name for v in [*renamed.graph.input, *renamed.graph.output]}
    new = {
        n: f"t{i}"
        for i, n in enumerate(sorted({x for n in renamed.graph.node for x in [*n.input, *n.output]}))
    }
    for node in renamed.graph.node:
        node.name = f"n{new[node.output[0]]}" if node.output[0] in new else ""
        node.input[:] = [x if x in keep else new[x] for x in node.input]
        node.output[:] = [x if x in keep else new[x] for x in node.output]
    for tensor in renamed.graph.initializer:
        tensor.name = new[tensor.name]
    del renamed.graph.value_info[:]
    onnx.save(renamed, candidate)
    found = {p.reference: p.quantization for p in open_models(reference, candidate).pairing.pairs}
    assert found.keys() == expected.keys()
    for tensor, quantization in expected.items():
        other = found[tensor]
        assert (quantization is None) == (other is None)
        if quantization is not None and other is not None:
            assert quantization.scale == other.scale


def test_a_deleted_relu_pairs_its_own_tensor_and_not_the_one_before_it(tmp_path: Path) -> None:
    pairing = opened("plain", tmp_path).pairing
    pairs = {p.reference: p for p in pairing.pairs}
    assert "c0" not in pairs
    assert pairs["r0"].candidate == "r0_DequantizeLinear_Output"
    assert "d" not in pairs
    assert pairs["k"].quantization is not None


def test_layers_join_what_is_not_stored_in_between(tmp_path: Path) -> None:
    layers = {layer.name: layer.nodes for layer in opened("plain", tmp_path).pairing.layers}
    assert layers["conv0"] == ("conv0", "relu0")
    assert layers["dw"] == ("dw", "clip")
    assert layers["head"] == ("head",)


def test_a_sigmoid_and_its_product_belong_to_the_layer_that_feeds_them(tmp_path: Path) -> None:
    layers = {layer.name: layer.nodes for layer in opened("silu", tmp_path).pairing.layers}
    assert layers["c0"] == ("c0", "s0", "m0")
    assert layers["add"] == ("add",)
    assert layers["cat"] == ("cat",)


def test_a_sigmoid_that_others_read_too_keeps_its_meaning(tmp_path: Path) -> None:
    pairs = {p.reference: p for p in opened("silu", tmp_path).pairing.pairs}
    assert {"x1", "g1", "a1"} <= pairs.keys()


def test_pass_through_operators_are_marked(tmp_path: Path) -> None:
    layers = {layer.name: layer for layer in opened("plain", tmp_path).pairing.layers}
    assert layers["pool"].is_pass_through
    assert layers["flat"].is_pass_through
    assert not layers["gap"].is_pass_through


def test_an_old_opset_is_lifted_before_pairing(tmp_path: Path) -> None:
    reference, candidate = quantized(build(*NETWORKS["silu"]), tmp_path)
    onnx.save(build(*NETWORKS["silu"], opset=9), reference)
    assert open_models(reference, candidate).pairing.coverage == 1.0


def test_unrelated_models_are_refused(tmp_path: Path) -> None:
    _, candidate = quantized(build(*NETWORKS["attention"]), tmp_path)
    reference = tmp_path / "other.onnx"
    onnx.save(build(*NETWORKS["plain"]), reference)
    with pytest.raises(PairingError) as caught:
        open_models(reference, candidate)
    assert caught.value.code == "unrelated_models"


def test_a_changed_operator_is_reported_and_still_paired(tmp_path: Path) -> None:
    reference, candidate = quantized(build(*NETWORKS["silu"]), tmp_path)
    changed = onnx.load(candidate)
    for node in changed.graph.node:
        if node.name == "s1":
            node.op_type = "HardSigmoid"
    onnx.save(changed, candidate)
    pair = open_models(reference, candidate)
    assert "operator_changed" in {w.code for w in pair.warnings}
    assert "g1" in {p.reference for p in pair.pairing.pairs}
