from __future__ import annotations

from pathlib import Path

from analyzers.store_families import families
from tests.analyzers.gathered import gathered
from tests.analyzers.spoiled_stores import store_again
from tests.networks import build, quantized, samples

POOLS = """
net (float[1,3,16,16] x) => (float[1,4,4,4] y)
{
    [conv] c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0)
    [most] m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(c)
    [mean] a = AveragePool<kernel_shape=[2,2], strides=[2,2]>(m)
    [head] y = Conv<kernel_shape=[1,1]>(a, w1)
}
"""
SHAPES = {"w0": (4, 3, 3, 3), "w1": (4, 4, 1, 1)}


def test_pools_that_have_the_parameters_of_their_input_follow_it(tmp_path: Path) -> None:
    model = build(POOLS, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    found = families(gathered(reference, candidate, samples(model, 1)))
    by_head = {family.head.tensor: [store.tensor for store in family.followers] for family in found}
    assert by_head == {"x": [], "c": ["a"], "y": []}  # a lift of ``c`` takes the MaxPool along


def test_a_pool_with_parameters_of_its_own_heads_a_family(tmp_path: Path) -> None:
    model = build(POOLS, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    import numpy as np
    import onnx

    spoiled = onnx.load(candidate)
    for node in spoiled.graph.node:
        if any("a_" in name for name in (*node.output, *node.input)) and "Linear" in node.op_type:
            node.input[1] = "own_scale"
    spoiled.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.5), "own_scale"))
    onnx.save(spoiled, candidate)
    heads = {family.head.tensor for family in families(gathered(reference, candidate, samples(model, 1)))}
    assert "a" in heads


def test_second_quantizers_on_edges_are_no_stores_of_their_own(tmp_path: Path) -> None:
    model = build(POOLS, SHAPES)
    reference, candidate = quantized(model, tmp_path)
    store_again(candidate, "c", "head", 2.0)
    heads = {family.head.tensor for family in families(gathered(reference, candidate, samples(model, 1)))}
    assert heads == {"x", "c", "y"}
