"""Small networks as ONNX text, and real candidates made of them with the stock quantizer."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from analyzers.records import Array

HEADER = '<ir_version: 8, opset_import: ["" : {opset}]>'

PLAIN = """
net (float[1,3,16,16] image) => (float[1,10] scores)
{
    [conv0] c0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [relu0] r0 = Relu(c0)
    [dw] d = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=8>(r0, wd, bd)
    [clip] k = Clip(d, zero, six)
    [pool] p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(k)
    [conv1] c1 = Conv<kernel_shape=[1,1]>(p, w1, b1)
    [relu1] r1 = Relu(c1)
    [gap] g = GlobalAveragePool(r1)
    [flat] f = Flatten(g)
    [head] scores = Gemm<transB=1>(f, wh, bh)
}
"""
PLAIN_SHAPES = {
    "w0": (8, 3, 3, 3), "b0": (8,), "wd": (8, 1, 3, 3), "bd": (8,), "w1": (12, 8, 1, 1), "b1": (12,),
    "wh": (10, 12), "bh": (10,),
}  # fmt: skip

SILU = """
net (float[1,3,16,16] image) => (float[1,12,16,16] out)
{
    [c0] x0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(image, w0, b0)
    [s0] g0 = Sigmoid(x0)
    [m0] a0 = Mul(x0, g0)
    [c1] x1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(a0, w1, b1)
    [s1] g1 = Sigmoid(x1)
    [m1] a1 = Mul(x1, g1)
    [add] sum = Add(a0, a1)
    [cat] out = Concat<axis=1>(sum, g1)
}
"""
SILU_SHAPES = {"w0": (6, 3, 3, 3), "b0": (6,), "w1": (6, 6, 3, 3), "b1": (6,)}

ATTENTION = """
net (float[1,8,16] tokens) => (float[1,8,16] out)
{
    [q] q = MatMul(tokens, wq)
    [k] k = MatMul(tokens, wk)
    [kt] t = Transpose<perm=[0,2,1]>(k)
    [scores] s = MatMul(q, t)
    [soft] p = Softmax<axis=2>(s)
    [mix] m = MatMul(p, tokens)
    [res] out = Add(m, tokens)
}
"""
ATTENTION_SHAPES = {"wq": (16, 16), "wk": (16, 16)}

NETWORKS = {
    "plain": (PLAIN, PLAIN_SHAPES),
    "silu": (SILU, SILU_SHAPES),
    "attention": (ATTENTION, ATTENTION_SHAPES),
}


def build(
    text: str, shapes: dict[str, tuple[int, ...]], *, opset: int = 13, seed: int = 0
) -> onnx.ModelProto:
    """Return the network with seeded weights (fan-in scaled), plus the constants ``zero`` and ``six``."""
    model: onnx.ModelProto = onnx.parser.parse_model(HEADER.replace("{opset}", str(opset)) + text)
    random = np.random.default_rng(seed)
    for name, shape in shapes.items():
        scale = 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 0.1
        weights = (random.normal(size=shape) * scale).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    used = {name for node in model.graph.node for name in node.input}
    for name, value in {"zero": 0.0, "six": 6.0}.items():
        if name in used:
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(value), name))
    return model


def samples(model: onnx.ModelProto, count: int = 4, *, seed: int = 1) -> list[dict[str, Array]]:
    """Return seeded normal inputs."""
    random = np.random.default_rng(seed)
    feeds = []
    for _ in range(count):
        feed = {}
        for value in model.graph.input:
            shape = [d.dim_value or 1 for d in value.type.tensor_type.shape.dim]
            feed[value.name] = random.normal(size=shape).astype(np.float32)
        feeds.append(feed)
    return feeds


class _Reader(CalibrationDataReader):
    def __init__(self, feeds: Sequence[dict[str, Array]]) -> None:
        self._feeds: Iterator[dict[str, Array]] = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:
        return next(self._feeds, None)


def quantized(
    model: onnx.ModelProto,
    folder: Path,
    *,
    form: str = "QDQ",
    per_channel: bool = True,
    feeds: Sequence[dict[str, Array]] | None = None,
    exclude: Sequence[str] = (),
) -> tuple[Path, Path]:
    """Write the reference and a candidate of the stock quantizer; return their paths."""
    reference, candidate = folder / "reference.onnx", folder / "candidate.onnx"
    onnx.save(model, reference)
    logging.getLogger().setLevel(logging.ERROR)
    quantize_static(
        str(reference),
        str(candidate),
        _Reader(feeds if feeds is not None else samples(model)),
        quant_format=QuantFormat[form],
        per_channel=per_channel,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=list(exclude),
    )
    return reference, candidate
