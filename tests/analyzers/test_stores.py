from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from analyzers.project import open_models
from analyzers.records import INPUT_LAYER, Array
from analyzers.stores import find_stores
from tests.networks import NETWORKS, PLAIN, PLAIN_SHAPES, build, quantized


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_stored_pair_has_a_store_with_its_quantizers_own_parameters(
    name: str, form: str, tmp_path: Path
) -> None:
    pair = open_models(*quantized(build(*NETWORKS[name]), tmp_path, form=form))
    stores = find_stores(pair)
    stored = {p.reference: p for p in pair.pairing.pairs if p.quantization is not None}
    assert stores.keys() == stored.keys()
    for tensor, store in stores.items():
        expected = stored[tensor].quantization
        assert expected is not None
        assert (store.layer, store.node) == (stored[tensor].layer, stored[tensor].node)
        assert store.quantization.scale == expected.scale
        assert store.quantization.zero_point == expected.zero_point
        assert store.quantization.dtype == "uint8"


def test_the_input_is_a_store_and_its_reader_is_the_first_layer(tmp_path: Path) -> None:
    stores = find_stores(open_models(*quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)))
    assert stores["image"].layer == INPUT_LAYER
    assert [(r.layer, r.node) for r in stores["image"].readers] == [("conv0", "conv0")]


def test_an_output_leaves_the_graph_and_has_a_nameless_reader(tmp_path: Path) -> None:
    stores = find_stores(open_models(*quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)))
    assert [(r.layer, r.node) for r in stores["scores"].readers] == [("", "")]


def test_each_reader_has_the_parameters_that_it_reads_with(tmp_path: Path) -> None:
    """``r0`` gets a DequantizeLinear of its own for the convolution, twice as coarse as the quantizer."""
    reference, candidate = quantized(build(PLAIN, PLAIN_SHAPES), tmp_path)
    model = onnx.load(candidate)
    scale = _constant(model, "r0_scale")
    read = _dequantizer(model, "r0")
    model.graph.initializer.append(onnx.numpy_helper.from_array(scale * 2, "other_scale"))
    read.input[1] = "other_scale"
    onnx.save(model, candidate)
    store = find_stores(open_models(reference, candidate))["r0"]
    assert store.quantization.scale == scale
    assert [(r.node, float(r.quantization.scale)) for r in store.readers] == [("dw", float(scale * 2))]
    assert store.readers[0].written.scale == scale


def test_a_second_quantizer_on_an_edge_belongs_to_its_reader_alone(tmp_path: Path) -> None:
    text = """
    net (float[1,4,8,8] x) => (float[1,4,8,8] a, float[1,4,8,8] b)
    {
        [conv] c = Conv<kernel_shape=[1,1]>(x, w)
        [act] r = Relu(c)
        [left] a = Conv<kernel_shape=[1,1]>(r, wa)
        [right] b = Conv<kernel_shape=[1,1]>(r, wb)
    }
    """
    shapes: dict[str, tuple[int, ...]] = {"w": (4, 4, 1, 1), "wa": (4, 4, 1, 1), "wb": (4, 4, 1, 1)}
    reference, candidate = quantized(build(text, shapes), tmp_path)
    model = onnx.load(candidate)
    read = _dequantizer(model, "r_")
    reader = next(n for n in model.graph.node if n.name == "right")
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(_constant(model, "r_scale") * 3, "edge_scale")
    )
    again = [
        onnx.helper.make_node("QuantizeLinear", [read.output[0], "edge_scale", read.input[2]], ["r_edge"]),
        onnx.helper.make_node("DequantizeLinear", ["r_edge", "edge_scale", read.input[2]], ["r_again"]),
    ]
    reader.input[0] = "r_again"
    nodes = list(model.graph.node)
    nodes[nodes.index(reader) : nodes.index(reader)] = again
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, candidate)
    store = find_stores(open_models(reference, candidate))["r"]
    scale = float(store.quantization.scale)
    by_node = {r.node: r for r in store.readers}
    assert float(by_node["left"].quantization.scale) == pytest.approx(scale)
    assert float(by_node["right"].quantization.scale) == pytest.approx(3 * scale)
    assert float(by_node["right"].written.scale) == pytest.approx(3 * scale)


def _constant(model: onnx.ModelProto, name: str) -> Array:
    return next(onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name == name)


def _dequantizer(model: onnx.ModelProto, output: str) -> onnx.NodeProto:
    nodes = [n for n in model.graph.node if n.op_type == "DequantizeLinear"]
    return next(n for n in nodes if n.output[0].startswith(output))
