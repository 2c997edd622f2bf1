from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from analyzers.constant_pairs import constant_pairs
from analyzers.evidence import ConstantPair
from analyzers.project import open_models
from analyzers.records import Array
from tests.networks import HEADER, NETWORKS, PLAIN, PLAIN_SHAPES, build, quantized

RANDOM = np.random.default_rng(3)


def model(text: str, constants: Mapping[str, Array], *, opset: int = 13) -> onnx.ModelProto:
    found: onnx.ModelProto = onnx.parser.parse_model(HEADER.replace("{opset}", str(opset)) + text)
    found.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())
    return found


def pairs_of(
    reference: onnx.ModelProto, candidate: onnx.ModelProto, folder: Path
) -> dict[tuple[str, str], ConstantPair]:
    onnx.save(reference, folder / "a.onnx")
    onnx.save(candidate, folder / "b.onnx")
    found = constant_pairs(open_models(folder / "a.onnx", folder / "b.onnx"))
    return {(c.node, c.role): c for c in found}


def normal(*shape: int) -> Array:
    return RANDOM.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_weight_of_the_stock_quantizer_is_paired_to_half_a_step(
    name: str, per_channel: bool, form: str, tmp_path: Path
) -> None:
    text, shapes = NETWORKS[name]
    reference = build(text, shapes)
    pair = open_models(*quantized(reference, tmp_path, form=form, per_channel=per_channel))
    found = [c for c in constant_pairs(pair) if c.role == "weight"]
    assert len(found) == sum(len(shape) > 1 for shape in shapes.values())
    for constant in found:
        assert constant.quantization is not None
        assert constant.integers is not None
        assert constant.unfolded is None
        step = float(constant.quantization.scale.max())
        assert np.abs(constant.candidate - constant.reference).max() <= 0.501 * step


def test_a_bias_knows_the_scales_that_it_has_to_fit(tmp_path: Path) -> None:
    pair = open_models(*quantized(build(PLAIN, PLAIN_SHAPES), tmp_path))
    bias = next(c for c in constant_pairs(pair) if (c.node, c.role) == ("conv1", "bias"))
    assert bias.quantization is not None
    assert bias.input_scale is not None
    assert bias.weight_scale is not None
    assert np.allclose(bias.quantization.scale, bias.input_scale * bias.weight_scale, rtol=1e-6)


FOLDS = {
    "conv": (
        "[c] y = Conv<kernel_shape=[3,3]>(x, w) [n] z = BatchNormalization(y, g, b, m, v) [r] out = Relu(z)",
        "[c] y = Conv<kernel_shape=[3,3]>(x, w, bias) [r] out = Relu(y)",
        (5, 3, 3, 3),
        lambda w, f: w * f.reshape(5, 1, 1, 1),
    ),
    "transposed conv": (
        "[c] y = ConvTranspose(x, w) [n] z = BatchNormalization(y, g, b, m, v) [r] out = Relu(z)",
        "[c] y = ConvTranspose(x, w, bias) [r] out = Relu(y)",
        (3, 5, 3, 3),
        lambda w, f: w * f.reshape(1, 5, 1, 1),
    ),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_normalization_is_folded_where_the_candidate_has_none(name: str, tmp_path: Path) -> None:
    ours, theirs, shape, fold = FOLDS[name]
    constants = {"w": normal(*shape), "g": normal(5), "b": normal(5), "m": normal(5)}
    constants["v"] = np.abs(normal(5)) + np.float32(0.5)
    factor = constants["g"] / np.sqrt(constants["v"] + 1e-5)
    folded = {"w": fold(constants["w"], factor).astype(np.float32)}
    folded["bias"] = constants["b"] - constants["m"] * factor
    head = "net (float[1,3,8,8] x) => (float[1,5,h,w] out) {%s}"
    found = pairs_of(model(head % ours, constants), model(head % theirs, folded), tmp_path)
    weight, bias = found["c", "weight"], found["c", "bias"]
    assert np.allclose(weight.reference, weight.candidate, rtol=1e-5)
    assert weight.unfolded is not None
    assert np.array_equal(weight.unfolded, constants["w"])
    assert np.allclose(bias.reference, bias.candidate, rtol=1e-4, atol=1e-6)
    assert bias.unfolded is not None
    assert not bias.unfolded.any()


def test_a_normalization_that_both_sides_have_is_not_folded(tmp_path: Path) -> None:
    text = "net (float[1,3,8,8] x) => (float[1,5,6,6] out) {" + FOLDS["conv"][0] + "}"
    constants = {"w": normal(5, 3, 3, 3), "g": normal(5), "b": normal(5), "m": normal(5)}
    constants["v"] = np.abs(normal(5)) + np.float32(0.5)
    found = pairs_of(model(text, constants), model(text, constants), tmp_path)
    assert np.array_equal(found["c", "weight"].reference, constants["w"])
    assert {role for node, role in found if node == "n"} == {"weight", "bias"}


SAME = {
    "Gemm as MatMul and Add": (
        "[g] y = Gemm<transB=1>(x, w, b)",
        "[g] z = MatMul(x, wt) [a] y = Add(z, b)",
    ),
    "MatMul and Add as Gemm": (
        "[g] z = MatMul(x, wt) [a] y = Add(z, b)",
        "[g] y = Gemm<transB=1>(x, w, b)",
    ),
    "Gemm with its weight the other way round": (
        "[g] y = Gemm<transB=1>(x, w, b)",
        "[g] y = Gemm(x, wt, b)",
    ),
    "MatMul and Add on both sides": (
        "[g] z = MatMul(x, wt) [a] y = Add(b, z)",
        "[g] z = MatMul(x, wt) [a] y = Add(z, b)",
    ),
    "a weight that is transposed in the graph": (
        "[g] y = Gemm<transB=1>(x, w, b)",
        "[t] u = Transpose<perm=[1,0]>(w) [g] y = Gemm(x, u, b)",
    ),
    "alpha and beta": (
        "[g] y = Gemm<transB=1>(x, w, b)",
        "[g] y = Gemm<transB=1, alpha=2.0, beta=4.0>(x, half, quarter)",
    ),
    "a factor behind": (
        "[g] z = Gemm<transB=1>(x, half, quarter) [m] u = Mul(z, two) [a] y = Add(u, rest)",
        "[g] y = Gemm<transB=1>(x, w, b)",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_product_written_otherwise_has_the_same_constants(name: str, tmp_path: Path) -> None:
    ours, theirs = SAME[name]
    w, b = normal(4, 6), normal(4)
    constants = {"w": w, "wt": w.T.copy(), "b": b, "half": w / 2, "quarter": b / 4}
    constants |= {"two": np.float32(2), "rest": b / 2}
    head = "net (float[2,6] x) => (float[2,4] out) {%s [r] out = Relu(y)}"
    found = pairs_of(model(head % ours, constants), model(head % theirs, constants), tmp_path)
    weight = found["g", "weight"]
    bias = next(c for (_, role), c in found.items() if role == "bias")
    for constant in (weight, bias):
        assert np.allclose(constant.reference, constant.candidate, rtol=1e-5, atol=1e-7)
    assert sorted(weight.reference.shape) == [4, 6]


def test_a_bias_that_the_candidate_lacks_has_no_value(tmp_path: Path) -> None:
    head = "net (float[2,6] x) => (float[2,4] out) {%s [r] out = Relu(y)}"
    w, b = normal(4, 6), normal(4)
    found = pairs_of(
        model(head % "[g] y = Gemm<transB=1>(x, w, b)", {"w": w, "b": b}),
        model(head % "[g] y = Gemm<transB=1>(x, w)", {"w": w}),
        tmp_path,
    )
    bias = found["g", "bias"]
    assert bias.value == ""
    assert np.array_equal(bias.reference, b)
    assert not bias.candidate.any()


def test_a_float_weight_behind_quantizers_is_what_they_make_of_it(tmp_path: Path) -> None:
    head = "net (float[1,3,8,8] x) => (float[1,5,6,6] out) {%s [r] out = Relu(y)}"
    theirs = """
        [q] i = QuantizeLinear<axis=0>(w, s, z) [d] u = DequantizeLinear<axis=0>(i, s, z)
        [c] y = Conv<kernel_shape=[3,3]>(x, u)
    """
    w = normal(5, 3, 3, 3)
    scale = np.abs(w).max(axis=(1, 2, 3)) / np.float32(127)
    constants = {"w": w, "s": scale, "z": np.zeros(5, np.int8)}
    ours = model(head % "[c] y = Conv<kernel_shape=[3,3]>(x, w)", {"w": w})
    weight = pairs_of(ours, model(head % theirs, constants), tmp_path)["c", "weight"]
    assert weight.value == "u"
    assert weight.integers is not None
    assert np.abs(weight.integers).max() == 127
    assert np.abs(weight.candidate - w).max() <= 0.501 * scale.max()


def test_blocks_of_four_bits_are_read(tmp_path: Path) -> None:
    head = "net (float[2,32] x) => (float[2,4] out) {%s [r] out = Relu(y)}"
    w = normal(32, 4)
    scale = (np.abs(w.reshape(4, 8, 4)).max(axis=1) / 7).astype(np.float32)
    levels = np.rint(w / np.repeat(scale, 8, axis=0)).astype(np.int8)
    candidate = model(
        head % "[d] u = DequantizeLinear<axis=0, block_size=8>(q, s) [g] y = MatMul(x, u)",
        {"s": scale},
        opset=21,
    )
    packed = onnx.helper.make_tensor("q", onnx.TensorProto.INT4, (32, 4), levels.ravel())
    candidate.graph.initializer.append(packed)
    candidate.ir_version = 10
    weight = pairs_of(model(head % "[g] y = MatMul(x, w)", {"w": w}), candidate, tmp_path)["g", "weight"]
    assert weight.quantization is not None
    assert (weight.quantization.dtype, weight.quantization.block_size) == ("int4", 8)
    assert np.abs(weight.candidate - weight.reference).max() <= 0.501 * scale.max()


def test_operators_that_share_a_constant_are_named(tmp_path: Path) -> None:
    text = """net (float[2,4] x) => (float[2,4] out) {
        [a] y = Gemm<transB=1>(x, w, b) [r] z = Relu(y) [c] u = Gemm<transB=1>(z, w, b) [s] out = Sigmoid(u)
    }"""
    constants = {"w": normal(4, 4), "b": normal(4)}
    found = pairs_of(model(text, constants), model(text, constants), tmp_path)
    assert found["a", "weight"].shared_by == found["c", "bias"].shared_by == ("a", "c")
