"""Dynamic and blocked integer products in QDQ form compute what the given operators do."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

from analyzers.backends.onnxruntime import open_session
from analyzers.constant_pairs import constant_pairs
from analyzers.graph import save_model
from analyzers.project import Pair, open_models
from analyzers.records import Array
from tests.networks import NETWORKS, build, samples

PRODUCTS = """
net (float[1,4,64] x) => (float[1,4,32] out)
{
    [m0] a = MatMul(x, w0)
    [r] b = Relu(a)
    [m1] c = MatMul(b, w1)
    [s] out = Add(c, b1)
}
"""
SHAPES = {"w0": (64, 48), "w1": (48, 32), "b1": (32,)}


def worst_db(pair: Pair, feeds: dict[str, Array], folder: Path) -> float:
    """Return how well the QDQ form agrees with the candidate's own file."""
    given = open_session(pair.candidate.path).run(feeds)
    made = open_session(save_model(pair.canonical, folder, name="qdq.onnx"), mode="literal").run(feeds)
    ratios = [np.square(a).sum() / max(np.square(a - made[n]).sum(), 1e-30) for n, a in given.items()]
    return float(10 * np.log10(min(ratios)))


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_dynamic_quantization_in_qdq_form_computes_the_same(
    name: str, per_channel: bool, tmp_path: Path
) -> None:
    logging.getLogger().setLevel(logging.ERROR)
    model = build(*NETWORKS[name])
    reference, candidate = tmp_path / "reference.onnx", tmp_path / "candidate.onnx"
    onnx.save(model, reference)
    kind = QuantType.QInt8 if per_channel and name == "attention" else QuantType.QUInt8
    quantize_dynamic(str(reference), str(candidate), weight_type=kind, per_channel=per_channel)
    pair = open_models(reference, candidate)
    assert not {n.op_type for n in pair.canonical.graph} & {"MatMulInteger", "ConvInteger"}
    assert worst_db(pair, samples(model, 1)[0], tmp_path) > 40
    stored = [c for c in constant_pairs(pair) if c.role == "weight" and c.integers is not None]
    assert stored
    for constant in stored:
        noise = np.abs(constant.reference - constant.candidate).max()
        assert noise <= 0.02 * np.abs(constant.reference).max()


@pytest.mark.parametrize("operator", ["MatMulIntegerToFloat", "DynamicQuantizeMatMul"])
def test_operators_of_onnxruntime_with_dynamic_scales_compute_the_same(operator: str, tmp_path: Path) -> None:
    model = build(PRODUCTS, SHAPES)
    reference, candidate = tmp_path / "reference.onnx", tmp_path / "candidate.onnx"
    onnx.save(model, reference)
    weight = numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == "w1"))
    scale = np.float32(np.abs(weight).max() / 127)
    constants = {
        "w1_int": np.rint(weight / scale).astype(np.int8),
        "w1_scale": np.array(scale),
        "w1_zero": np.array(0, np.int8),
    }
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
    place = next(i for i, n in enumerate(model.graph.node) if n.name == "m1")
    del model.graph.node[place : place + 2]
    if operator == "MatMulIntegerToFloat":
        stored = ["b_q", "w1_int", "b_scale", "w1_scale", "b_zero", "w1_zero", "b1"]
        model.graph.node.append(
            helper.make_node("DynamicQuantizeLinear", ["b"], ["b_q", "b_scale", "b_zero"], "dynamic")
        )
    else:
        stored = ["b", "w1_int", "w1_scale", "w1_zero", "b1"]
    model.graph.node.append(helper.make_node(operator, stored, ["out"], "m1_quant", domain="com.microsoft"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, candidate)
    pair = open_models(reference, candidate)
    assert pair.pairing.coverage == 1.0
    assert worst_db(pair, samples(build(PRODUCTS, SHAPES), 1)[0], tmp_path) > 40
    assert {(c.node, c.role) for c in constant_pairs(pair)} >= {("m1", "weight"), ("s", "bias")}


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("form", ["QOperator", "QDQ"])
@pytest.mark.parametrize("block", [16, 32])
def test_weights_of_four_bits_in_blocks_compute_the_same(
    block: int, form: str, is_symmetric: bool, tmp_path: Path
) -> None:
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("onnxruntime.quantization.matmul_nbits_quantizer").setLevel(logging.ERROR)
    model = build(PRODUCTS, SHAPES)
    reference, candidate = tmp_path / "reference.onnx", tmp_path / "candidate.onnx"
    onnx.save(model, reference)
    quantizer = MatMulNBitsQuantizer(
        onnx.load(reference), block_size=block, is_symmetric=is_symmetric, quant_format=QuantFormat[form]
    )
    quantizer.process()
    onnx.save(quantizer.model.model, candidate)
    pair = open_models(reference, candidate)
    assert pair.pairing.coverage == 1.0
    assert not {n.op_type for n in pair.canonical.graph} & {"MatMulNBits"}
    assert worst_db(pair, samples(model, 1)[0], tmp_path) > 40
    weights = {c.node: c for c in constant_pairs(pair) if c.role == "weight"}
    assert set(weights) == {"m0", "m1"}
    for constant in weights.values():
        noise = np.linalg.norm(constant.reference - constant.candidate)
        assert noise < 0.15 * np.linalg.norm(constant.reference)
