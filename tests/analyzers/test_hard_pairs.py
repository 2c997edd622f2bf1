"""Pairing where names, operators, constants or structure differ on the two sides."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from analyzers.graph import node_name
from analyzers.project import Pair, open_models
from analyzers.records import Array
from tests.analyzers.rewrites import (
    changed_constants,
    in_half_precision,
    renamed,
    with_folded_normalizations,
    with_products_written_out,
    with_silu_in_one,
)
from tests.analyzers.surgery import Patient
from tests.networks import NETWORKS, PLAIN, PLAIN_SHAPES, build, quantized

NORMALIZED = """
net (float[1,3,12,12] image) => (float[1,6] out)
{
    [conv0] c0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [bn0] n0 = BatchNormalization(c0, g0, h0, m0, v0)
    [relu0] r0 = Relu(n0)
    [conv1] c1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=8>(r0, w1)
    [bn1] n1 = BatchNormalization(c1, g1, h1, m1, v1)
    [clip1] r1 = Clip(n1, zero, six)
    [conv2] c2 = Conv<kernel_shape=[1,1]>(r1, w2)
    [bn2] n2 = BatchNormalization(c2, g2, h2, m2, v2)
    [add] a = Add(n2, r0)
    [gap] g = GlobalAveragePool(a)
    [flat] f = Flatten(g)
    [head] out = Gemm<transB=1>(f, wh, bh)
}
"""
NORMALIZED_SHAPES: dict[str, tuple[int, ...]] = {
    "w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 1, 3, 3), "w2": (8, 8, 1, 1), "wh": (6, 8), "bh": (6,),
    **{f"{kind}{i}": (8,) for kind in "ghmv" for i in range(3)},
}  # fmt: skip
HARD_SWISH = """
net (float[1,4,8,8] image) => (float[1,4,8,8] out)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [g0] y0 = HardSigmoid<alpha=0.16666667, beta=0.5>(x0)
    [m0] a0 = Mul(x0, y0)
    [c1] x1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a0, w1, b1)
    [g1] y1 = HardSigmoid<alpha=0.16666667, beta=0.5>(x1)
    [m1] out = Mul(x1, y1)
}
"""
HARD_SWISH_SHAPES = {"w0": (4, 4, 3, 3), "b0": (4,), "w1": (4, 4, 3, 3), "b1": (4,)}
TWO_HEADS = """
net (float[1,4,8,8] left, float[1,4,8,8] right) => (float[1,4,8,8] first, float[1,4,8,8] second)
{
    [cl] l = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(left, w0, b0)
    [cr] r = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(right, w1, b1)
    [sum] s = Add(l, r)
    [h1] first = Conv<kernel_shape=[1,1]>(s, w2, b2)
    [h2] second = Conv<kernel_shape=[1,1]>(s, w3, b3)
}
"""
TWO_HEADS_SHAPES: dict[str, tuple[int, ...]] = {
    "w0": (4, 4, 3, 3), "w1": (4, 4, 3, 3), "w2": (4, 4, 1, 1), "w3": (4, 4, 1, 1),
    **{f"b{i}": (4,) for i in range(4)},
}  # fmt: skip


def normalized(seed: int = 0) -> onnx.ModelProto:
    random = np.random.default_rng(seed)

    def positive(name: str, array: Array) -> Array:
        is_positive = len(name) == 2 and name[0] in "gv"
        return random.uniform(0.5, 2, array.shape).astype(np.float32) if is_positive else array

    return changed_constants(build(NORMALIZED, NORMALIZED_SHAPES, seed=seed), positive)


def twins(pair: Pair) -> dict[str, str]:
    """Return reference node -> candidate node, by name."""
    return {node_name(ours): node_name(theirs) for ours, theirs in pair.paired.matches.nodes.items()}


def as_candidate(reference: onnx.ModelProto, written: onnx.ModelProto, folder: Path, **how: object) -> Pair:
    """Quantize another form of the reference and pair it with the reference."""
    _, candidate = quantized(written, folder, **how)  # type: ignore[arg-type]
    onnx.save(reference, folder / "reference.onnx")
    return open_models(folder / "reference.onnx", candidate)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_candidate_with_other_names_throughout_pairs(name: str, form: str, tmp_path: Path) -> None:
    reference, candidate = quantized(build(*NETWORKS[name]), tmp_path, form=form)
    plain = open_models(reference, candidate).pairing
    onnx.save(renamed(onnx.load(candidate)), candidate)
    pairing = open_models(reference, candidate).pairing
    assert pairing.coverage == 1.0
    assert [p.reference for p in pairing.pairs] == [p.reference for p in plain.pairs]
    for ours, theirs in zip(plain.pairs, pairing.pairs, strict=True):
        assert (ours.quantization is None) == (theirs.quantization is None)
        if ours.quantization is not None and theirs.quantization is not None:
            assert ours.quantization.scale == theirs.quantization.scale
    assert {p.evidence for p in pairing.pairs} <= {"structure", "weights"}


@pytest.mark.parametrize("has_names", [True, False])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_folded_normalizations_and_deleted_activations_pair_behind_them(
    form: str, has_names: bool, tmp_path: Path
) -> None:
    model = normalized()
    _, candidate = quantized(with_folded_normalizations(model), tmp_path, form=form)
    onnx.save(model, tmp_path / "reference.onnx")
    if not has_names:
        onnx.save(renamed(onnx.load(candidate)), candidate)
    pairing = open_models(tmp_path / "reference.onnx", candidate).pairing
    assert pairing.coverage == 1.0
    pairs = {p.reference: p for p in pairing.pairs}
    assert {"r0", "r1", "n2", "a", "out"} <= pairs.keys()
    assert not {"c0", "n0", "c1", "n1", "c2"} & pairs.keys(), "inside of a layer nothing is comparable"
    layers = {layer.name: layer.nodes for layer in pairing.layers}
    assert layers["conv0"] == ("conv0", "bn0", "relu0")


@pytest.mark.parametrize("is_candidate_written_out", [True, False])
def test_products_and_sums_pair_with_gemm(is_candidate_written_out: bool, tmp_path: Path) -> None:
    whole = build(PLAIN, PLAIN_SHAPES)
    parts = with_products_written_out(whole)
    reference, written = (whole, parts) if is_candidate_written_out else (parts, whole)
    pair = as_candidate(reference, written, tmp_path)
    assert pair.pairing.coverage == 1.0
    assert not pair.paired.matches.changed
    head = "head" if is_candidate_written_out else "head_matmul"
    assert twins(pair)[head] == ("head_matmul" if is_candidate_written_out else "head")
    last = {p.reference: p for p in pair.pairing.pairs}["scores"]
    assert last.candidate == "scores"


@pytest.mark.parametrize("is_candidate_in_one", [True, False])
@pytest.mark.parametrize("has_names", [True, False])
def test_an_activation_pairs_whether_written_out_or_in_one(
    has_names: bool, is_candidate_in_one: bool, tmp_path: Path
) -> None:
    parts = build(HARD_SWISH, HARD_SWISH_SHAPES, opset=14)
    whole = with_silu_in_one(parts)
    reference, written = (parts, whole) if is_candidate_in_one else (whole, parts)
    _, candidate = quantized(written, tmp_path)
    onnx.save(reference, tmp_path / "reference.onnx")
    if not has_names:
        onnx.save(renamed(onnx.load(candidate)), candidate)
    pair = open_models(tmp_path / "reference.onnx", candidate)
    assert pair.pairing.coverage == 1.0
    assert {"a0", "out"} <= {p.reference for p in pair.pairing.pairs}


@pytest.mark.parametrize("has_names", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_dynamically_quantized_products_pair_with_their_weights(
    name: str, has_names: bool, tmp_path: Path
) -> None:
    reference, candidate = tmp_path / "reference.onnx", tmp_path / "candidate.onnx"
    onnx.save(build(*NETWORKS[name]), reference)
    logging.getLogger().setLevel(logging.ERROR)
    quantize_dynamic(str(reference), str(candidate), weight_type=QuantType.QUInt8)
    if not has_names:
        onnx.save(renamed(onnx.load(candidate)), candidate)
    pair = open_models(reference, candidate)
    assert pair.pairing.coverage == 1.0
    assert not pair.paired.matches.changed
    assert any(layer.is_quantized for layer in pair.pairing.layers)


def test_inputs_and_outputs_of_equal_shape_are_told_apart_by_what_is_computed(tmp_path: Path) -> None:
    reference, candidate = quantized(build(TWO_HEADS, TWO_HEADS_SHAPES), tmp_path)
    model = onnx.load(candidate)
    outputs = [model.graph.output[1], model.graph.output[0]]
    kept = [onnx.ValueInfoProto.FromString(o.SerializeToString()) for o in outputs]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    onnx.save(model, candidate)
    assert open_models(reference, candidate).pairing.outputs == {"first": "first", "second": "second"}


def test_a_model_in_half_precision_pairs(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = tmp_path / "reference.onnx", tmp_path / "candidate.onnx"
    onnx.save(model, reference)
    onnx.save(in_half_precision(model), candidate)
    assert open_models(reference, candidate).pairing.coverage == 1.0


@pytest.mark.parametrize("kind", ["per reader", "one for all"])
def test_quantizers_per_reader_and_quantizers_in_common_pair_alike(kind: str, tmp_path: Path) -> None:
    """The residual tensor r0 has two readers; each gets a DequantizeLinear of its own, or they share one."""
    reference, candidate = quantized(with_folded_normalizations(normalized()), tmp_path)
    patient = Patient(candidate)
    readers = [n for n in patient.graph.node if "r0_DequantizeLinear_Output" in n.input]
    assert len(readers) == 2
    if kind == "per reader":
        source = patient.maker("r0_DequantizeLinear_Output")
        for i, reader in enumerate(readers):
            copy = helper.make_node("DequantizeLinear", list(source.input), [f"read{i}"], f"reading{i}")
            patient.graph.node.insert(list(patient.graph.node).index(source) + 1, copy)
            reader.input[:] = [f"read{i}" if x == "r0_DequantizeLinear_Output" else x for x in reader.input]
        patient.graph.node.remove(source)
    patient.save()
    pairing = open_models(reference, candidate).pairing
    assert pairing.coverage == 1.0
    assert {p.reference for p in pairing.pairs} >= {"r0", "a"}


def test_a_spoiled_branch_does_not_take_the_twin_of_its_sibling(tmp_path: Path) -> None:
    """Without names, three products read one tensor; the first has weights of noise."""
    text = """
    net (float[1,8,16] x) => (float[1,8,16] out)
    {
        [q] q = MatMul(x, wq)
        [k] k = MatMul(x, wk)
        [v] v = MatMul(x, wv)
        [a] a = Add(q, k)
        [b] out = Mul(a, v)
    }
    """
    reference, candidate = quantized(build(text, dict.fromkeys(("wq", "wk", "wv"), (16, 16))), tmp_path)
    model = onnx.load(candidate)
    for tensor in model.graph.initializer:
        if tensor.name == "wq_quantized":
            noise = np.random.default_rng(5).integers(-127, 128, (16, 16)).astype(np.int8)
            tensor.CopyFrom(numpy_helper.from_array(noise, tensor.name))
    scales = {p.reference: p.quantization for p in open_models(reference, candidate).pairing.pairs}
    onnx.save(model, candidate)
    onnx.save(renamed(onnx.load(candidate)), candidate)
    found = {p.reference: p.quantization for p in open_models(reference, candidate).pairing.pairs}
    for name in ("q", "k", "v"):
        ours, theirs = scales[name], found[name]
        assert ours is not None
        assert theirs is not None
        assert ours.scale == theirs.scale


def test_an_operator_that_is_gone_passes_its_input_on(tmp_path: Path) -> None:
    reference, candidate = quantized(build(*NETWORKS["silu"]), tmp_path)
    patient = Patient(candidate)
    patient.bypass("add")
    patient.save()
    pair = open_models(reference, candidate)
    assert [node_name(n) for n in pair.paired.matches.lost] == ["add"]
    assert "operator_lost" in {w.code for w in pair.warnings}
    assert "sum" in {p.reference for p in pair.pairing.pairs}


def test_an_operator_that_only_the_candidate_has_is_seen_through(tmp_path: Path) -> None:
    reference, candidate = quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)
    patient = Patient(candidate)
    node = patient.node("conv1")
    patient.insert_before("conv1", [helper.make_node("Abs", [node.input[0]], ["extra"], "extra")])
    node.input[0] = "extra"
    patient.save()
    pair = open_models(reference, candidate)
    assert pair.pairing.coverage == 1.0
    assert {n.op_type: node_name(o) for n, o in pair.paired.matches.added.items()} == {"Abs": "conv1"}


@pytest.mark.parametrize(("opset", "operator"), [(9, "Upsample"), (10, "Resize")])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_an_old_upsample_keeps_its_name_and_its_meaning(
    opset: int, operator: str, mode: str, tmp_path: Path
) -> None:
    text = f"""
    net (float[1,2,4,4] image) => (float[1,2,8,8] out)
    <float[4] scales = {{1, 1, 2, 2}}>
    {{
        [up] u = {operator}<mode="{mode}">(image, scales)
        [act] out = Relu(u)
    }}
    """
    from analyzers.backends.onnxruntime import open_session
    from analyzers.graph import read_model, save_model

    path = tmp_path / "old.onnx"
    onnx.save(build(text, {}, opset=opset), path)
    lifted = read_model(path)
    assert [n.name for n in lifted.ir.graph] == ["up", "act"]
    assert lifted.ir.graph[0].outputs[0].name == "u"
    feeds = {"image": np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32)}
    before = open_session(path).run(feeds)["out"]
    after = open_session(save_model(lifted.ir, tmp_path, name="lifted.onnx")).run(feeds)["out"]
    np.testing.assert_allclose(after, before, rtol=1e-6)


@pytest.mark.parametrize(("bits", "block"), [(4, 0), (4, 8), (8, 8)])
def test_weights_of_few_bits_and_in_blocks_pair(bits: int, block: int, tmp_path: Path) -> None:
    text = """
    net (float[1,4,16] x) => (float[1,4,16] out)
    {
        [m0] a = MatMul(x, w0)
        [r] b = Relu(a)
        [m1] out = MatMul(b, w1)
    }
    """
    model = build(text, {"w0": (16, 16), "w1": (16, 16)}, opset=21)
    onnx.save(model, tmp_path / "reference.onnx")
    dtype = {4: onnx.TensorProto.INT4, 8: onnx.TensorProto.INT8}[bits]
    for name in ("w0", "w1"):
        weight = numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == name))
        _store(model, name, weight, dtype, block)
    onnx.checker.check_model(model)
    onnx.save(renamed(model), tmp_path / "candidate.onnx")
    pair = open_models(tmp_path / "reference.onnx", tmp_path / "candidate.onnx")
    assert pair.pairing.coverage == 1.0
    assert set(twins(pair)) == {"m0", "r", "m1"}


def _store(model: onnx.ModelProto, name: str, weight: Array, dtype: int, block: int) -> None:
    """Let a weight be read from integers, blocked along the first axis or per column."""
    top = 7 if dtype == onnx.TensorProto.INT4 else 127
    grouped = weight.reshape(-1, block, weight.shape[1]) if block else weight[None]
    scale = np.abs(grouped).max(axis=1) / top
    integers = np.rint(grouped / scale[:, None]).reshape(weight.shape).astype(np.int8)
    stored = helper.make_tensor(f"{name}_int", dtype, weight.shape, integers.reshape(-1).tolist())
    keep = [t for t in model.graph.initializer if t.name != name]
    del model.graph.initializer[:]
    scales = scale if block else scale[0]
    model.graph.initializer.extend(
        [*keep, stored, numpy_helper.from_array(scales.astype(np.float32), f"{name}_scale")]
    )
    options = {"axis": 0, "block_size": block} if block else {"axis": 1}
    node = helper.make_node(
        "DequantizeLinear", [f"{name}_int", f"{name}_scale"], [name], f"{name}_dq", **options
    )
    model.graph.node.insert(0, node)
