from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from analyzers.constant_pairs import constant_pairs
from analyzers.diagnoses.mixed_precision_hole import ENTRY
from analyzers.lifts import changed_model
from analyzers.project import open_models
from analyzers.suspicions import Change
from tests.analyzers.gathered import gathered
from tests.networks import PLAIN, PLAIN_SHAPES, build, samples


class _Feeds(CalibrationDataReader):
    def __init__(self, model: onnx.ModelProto) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter(samples(model))

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def sixteen_bits(model: onnx.ModelProto, folder: Path) -> tuple[Path, Path]:
    """Return the reference and a candidate with 16-bit activations, in the quantizers of older opsets."""
    reference, candidate = folder / "reference.onnx", folder / "candidate.onnx"
    onnx.save(model, reference)
    logging.getLogger().setLevel(logging.ERROR)
    quantize_static(
        str(reference),
        str(candidate),
        _Feeds(model),
        activation_type=QuantType.QUInt16,
        weight_type=QuantType.QInt8,
        extra_options={"UseQDQContribOps": True},
    )
    return reference, candidate


def to_eight_bits(candidate: Path, tensor: str) -> None:
    model = onnx.load(candidate)
    for constant in model.graph.initializer:
        array = onnx.numpy_helper.to_array(constant)
        if constant.name == f"{tensor}_zero_point":
            constant.CopyFrom(onnx.numpy_helper.from_array(np.array(array // 256, np.uint8), constant.name))
        elif constant.name == f"{tensor}_scale":
            wider = np.asarray(array * np.float32(257))
            constant.CopyFrom(onnx.numpy_helper.from_array(wider, constant.name))
    del model.graph.value_info[:]
    onnx.save(model, candidate)


@pytest.mark.parametrize(
    ("narrow", "layers"),
    [
        (["r0"], [("conv0",)]),
        ([], []),
        (["image", "r0", "k", "r1"], []),  # half of them: mixed precision by choice
    ],
)
def test_the_one_tensor_with_fewer_bits_is_suspected(
    narrow: list[str], layers: list[tuple[str]], tmp_path: Path
) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = sixteen_bits(model, tmp_path)
    for tensor in narrow:
        to_eight_bits(candidate, tensor)
    found = list(ENTRY.find(gathered(reference, candidate, samples(model, 2))))
    assert [s.layers for s in found] == layers
    for suspicion in found:
        assert (suspicion.evidence["bits"], suspicion.evidence["usual_bits"]) == (8, 16)
        quantization = suspicion.repairs[0].changes[0].quantization
        assert quantization is not None
        assert quantization.dtype == "uint16"


def test_such_a_store_can_be_lifted_though_nothing_declares_its_type(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    reference, candidate = sixteen_bits(model, tmp_path)
    to_eight_bits(candidate, "r0")
    (suspicion,) = ENTRY.find(gathered(reference, candidate, samples(model, 1)))
    pair = open_models(reference, candidate)
    lifted = changed_model(pair, [Change(s) for s in suspicion.sources], constant_pairs(pair))
    source = next(n for n in lifted.graph if n.name == "dw").inputs[0]
    assert source is not None
    producer = source.producer()
    assert producer is not None
    assert producer.op_type != "DequantizeLinear"
