"""Plant faults with known answers into the healthy candidate: ``python -m sample_models.make_planted``.

Every fault is one that devices and converters make. The files and ``answers.json`` go to ``planted/``.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

FOLDER = Path(__file__).parent
SEED = 3
CORRUPTED_LAYER = "/backbone/stages.2/stages.2.1/project/Conv"
DIRTY_LAYER = "/backbone/stages.1/stages.1.2/expand/expand.0/Conv"
SHIFTED_LAYER = "/backbone/stages.2/stages.2.2/project/Conv"
ZERO_POINT_ERROR = 24
STALE_SPREAD = 34  # levels; near the spread of the whole tensor


@dataclass(frozen=True, slots=True)
class Answer:
    """What is wrong with one candidate.

    Attributes:
        candidate: File name below ``sample_models``.
        reference: Its FP32 side.
        fault: The cause, in the words of the diagnoses.
        layer: The reference node that is to blame.
        story: How such a fault comes about.
    """

    candidate: str
    reference: str
    fault: str
    layer: str
    story: str


def main(folder: Path = FOLDER) -> None:
    """Write all planted candidates and their answers below ``folder``."""
    target = folder / "planted"
    target.mkdir(exist_ok=True)
    healthy = onnx.load(folder / "candidates" / "detector_int8.onnx")
    answers = []
    for plant in (corrupt_weights, dirty_channel, wrong_zero_point):
        model = onnx.ModelProto()
        model.CopyFrom(healthy)
        answer = plant(model)
        onnx.checker.check_model(model)
        onnx.save(model, folder / answer.candidate)
        answers.append(answer)
    answers.append(
        Answer(
            "candidates/detector_decoded_int8.onnx",
            "detector_decoded.onnx",
            "concat_shared_scale",
            "/Concat",
            "Boxes up to 320 and scores up to 1 leave in one tensor with one scale: scores become 0 or 1.",
        )
    )
    text = json.dumps([asdict(answer) for answer in answers], indent=2)
    (target / "answers.json").write_text(text + "\n", encoding="utf-8")


def corrupt_weights(model: onnx.ModelProto) -> Answer:
    """Overwrite a run of one layer's integer weights, as a bad block of flash memory does."""
    weights = stored_weights(model, CORRUPTED_LAYER)
    values = numpy_helper.to_array(weights).copy()
    flat = values.reshape(-1)
    start, stop = flat.size // 4, flat.size // 2
    flat[start:stop] = np.random.default_rng(SEED).integers(-128, 128, stop - start)
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    return Answer(
        "planted/corrupted_weights.onnx",
        "detector.onnx",
        "weight_corrupted",
        CORRUPTED_LAYER,
        "A quarter of the layer's weight bytes is overwritten.",
    )


def dirty_channel(model: onnx.ModelProto) -> Answer:
    """Let one convolution read its last channel from memory that nobody wrote.

    The layer's input is aligned to the device's channel count by a copy, and the copy misses a channel. What
    is left there has the spread of the other channels, so ranges, means and deviations look as ever.
    """
    layer = find(model, DIRTY_LAYER)
    source = producer(model, layer.input[0])  # a DequantizeLinear
    shape = value_shape(model, source.output[0])
    zero_point = int(constant(model, source.input[2]))
    rng = np.random.default_rng(SEED)
    stale = np.clip(np.rint(rng.normal(zero_point, STALE_SPREAD, (1, 1, *shape[2:]))), 0, 255).astype(
        np.uint8
    )
    for name, value in (
        ("stale", stale),
        ("copied/starts", np.array([0], np.int64)),
        ("copied/ends", np.array([shape[1] - 1], np.int64)),
        ("copied/axes", np.array([1], np.int64)),
    ):
        model.graph.initializer.append(numpy_helper.from_array(value, f"aligned/{name}"))
    taken, aligned, floats = "aligned/taken", "aligned/copied", "aligned/dequantized"
    bounds = [f"aligned/copied/{name}" for name in ("starts", "ends", "axes")]
    nodes = [
        helper.make_node("Slice", [source.input[0], *bounds], [taken], "aligned/Slice"),
        helper.make_node("Concat", [taken, "aligned/stale"], [aligned], "aligned/Concat", axis=1),
        helper.make_node(
            "DequantizeLinear", [aligned, *source.input[1:]], [floats], "aligned/DequantizeLinear"
        ),
    ]
    position = next(index for index, node in enumerate(model.graph.node) if node.name == layer.name)
    for offset, node in enumerate(nodes):
        model.graph.node.insert(position + offset, node)
    find(model, DIRTY_LAYER).input[0] = floats
    return Answer(
        "planted/dirty_channel.onnx",
        "detector.onnx",
        "dirty_padding_channel",
        DIRTY_LAYER,
        "The last input channel of one convolution is stale memory.",
    )


def wrong_zero_point(model: onnx.ModelProto) -> Answer:
    """Let one tensor's readers subtract another zero point than its writer added."""
    layer = find(model, SHIFTED_LAYER)
    quantizer = next(node for node in model.graph.node if layer.output[0] in node.input)
    reader = next(node for node in model.graph.node if quantizer.output[0] in node.input)
    shifted = np.array(int(constant(model, reader.input[2])) + ZERO_POINT_ERROR, np.uint8)
    model.graph.initializer.append(numpy_helper.from_array(shifted, f"{reader.input[2]}/shifted"))
    reader.input[2] = f"{reader.input[2]}/shifted"
    return Answer(
        "planted/wrong_zero_point.onnx",
        "detector.onnx",
        "zero_point_mismatch",
        SHIFTED_LAYER,
        f"The layer's output is read with a zero point that is {ZERO_POINT_ERROR} too high.",
    )


def find(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    """Return the node of that name."""
    return next(node for node in model.graph.node if node.name == name)


def producer(model: onnx.ModelProto, value: str) -> onnx.NodeProto:
    """Return the node that makes a value."""
    return next(node for node in model.graph.node if value in node.output)


def constant(model: onnx.ModelProto, name: str) -> NDArray[np.generic]:
    """Return the value of an initializer."""
    return numpy_helper.to_array(next(item for item in model.graph.initializer if item.name == name))


def stored_weights(model: onnx.ModelProto, layer: str) -> onnx.TensorProto:
    """Return the integer weights of a convolution."""
    dequantizer = producer(model, find(model, layer).input[1])
    return next(item for item in model.graph.initializer if item.name == dequantizer.input[0])


def value_shape(model: onnx.ModelProto, value: str) -> tuple[int, ...]:
    """Return the static shape of a value inside the graph."""
    inferred = onnx.shape_inference.infer_shapes(model)
    info = next(item for item in inferred.graph.value_info if item.name == value)
    return tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)


if __name__ == "__main__":
    main()
