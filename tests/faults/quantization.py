"""Quantize a float network honestly, in the styles that onnxruntime's quantizer offers."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
from numpy.random import Generator
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)

from analyzers.records import Array
from tests.faults.network import Feeds

_QDQ_ONLY = frozenset({"QUInt16", "QInt16"})


@dataclass(frozen=True)
class Style:
    """How a network is quantized.

    Attributes:
        form: "QDQ" or "QOperator".
        activation: Type of activations ("QUInt8", "QInt8", "QUInt16", "QInt16").
        weight: Type of weights ("QInt8", "QUInt8").
        per_channel: One scale per output channel of a weight.
        method: "MinMax", "Percentile" or "Entropy".
        symmetric: Zero point of activations in the middle (int8 and int16 only).
        keep_activations: Leave Relu and Clip in the graph where the range could stand for them.
        exclude: Names of nodes that stay float.
        overrides: Given ranges: tensor -> (low, high); QDQ only.
        types: Given activation types: tensor -> type; QDQ only.
    """

    form: str = "QDQ"
    activation: str = "QUInt8"
    weight: str = "QInt8"
    per_channel: bool = True
    method: str = "MinMax"
    symmetric: bool = False
    keep_activations: bool = False
    exclude: tuple[str, ...] = ()
    overrides: dict[str, tuple[float, float]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        words = [self.form, self.activation, self.weight, self.method]
        words += ["per-channel"] if self.per_channel else ["per-tensor"]
        words += ["symmetric"] if self.symmetric else []
        return " ".join(words)


def any_style(random: Generator, *, opset: int, qdq: bool = False) -> Style:
    """Draw a style; ``qdq`` keeps to the QDQ form."""
    form = "QDQ" if qdq or random.uniform() < 0.7 else "QOperator"
    kind = random.integers(10)
    if form == "QDQ" and kind == 0 and opset >= 13:
        activation, symmetric = ("QUInt16", False) if random.integers(2) else ("QInt16", True)
    elif kind <= 3:
        activation, symmetric = "QInt8", bool(random.integers(2))
    else:
        activation, symmetric = "QUInt8", False
    return Style(
        form=form,
        activation=activation,
        weight="QUInt8" if activation == "QUInt8" and random.uniform() < 0.15 else "QInt8",
        per_channel=(opset >= 13 or form == "QOperator") and random.uniform() < 0.75,
        method="Percentile" if random.uniform() < 0.15 else "MinMax",
        symmetric=symmetric,
        keep_activations=bool(random.integers(2)),
    )


def plain_style(random: Generator, *, opset: int, per_channel: bool | None = None) -> Style:
    """Draw among the most common ones: QDQ, 8 bits, MinMax."""
    style = any_style(random, opset=opset, qdq=True)
    return replace(
        style,
        activation="QUInt8",
        symmetric=False,
        method="MinMax",
        per_channel=style.per_channel if per_channel is None else per_channel and opset >= 13,
    )


class _Reader(CalibrationDataReader):
    def __init__(self, feeds: Sequence[Feeds]) -> None:
        self._feeds: Iterator[Feeds] = iter(feeds)

    def get_next(self) -> dict[str, Array] | None:  # type: ignore[override]  # None ends the stream
        return next(self._feeds, None)


def quantize(model: onnx.ModelProto, calibration: Sequence[Feeds], style: Style) -> onnx.ModelProto:
    """Return the quantized network."""
    options: dict[str, object] = {
        "ActivationSymmetric": style.symmetric,
        "WeightSymmetric": style.weight == "QInt8",
        "QDQKeepRemovableActivations": style.keep_activations,
        "UseQDQContribOps": style.activation in _QDQ_ONLY and model.opset_import[0].version < 21,
    }
    overrides: dict[str, list[dict[str, object]]] = {}
    for tensor, (low, high) in style.overrides.items():
        overrides[tensor] = [{"rmin": np.float32(low), "rmax": np.float32(high)}]
    for tensor, kind in style.types.items():
        overrides.setdefault(tensor, [{}])[0]["quant_type"] = QuantType[kind]
    if overrides:
        options["TensorQuantOverrides"] = overrides
    float_types = sorted({node.op_type for node in model.graph.node})
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, silence():
        source, target = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, source)
        quantize_static(
            str(source),
            str(target),
            _Reader(calibration),
            quant_format=QuantFormat[style.form],
            op_types_to_quantize=float_types if style.form == "QDQ" else None,
            per_channel=style.per_channel,
            activation_type=QuantType[style.activation],
            weight_type=QuantType[style.weight],
            nodes_to_exclude=list(style.exclude),
            calibrate_method=CalibrationMethod[style.method],
            extra_options=options,
        )
        return onnx.load(target)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep the quantizer's advice and progress off the screen."""
    logger = logging.getLogger()
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(before)
