"""The script that an ``ort`` export brings along: plain onnxruntime, no Tearline."""

from __future__ import annotations

SCRIPT = '''\
"""Quantize a model with some nodes left in float, as Tearline exported it.

    python THIS_SCRIPT model.onnx calibration.npz model_int8.onnx

calibration.npz holds one array per input with the samples on the leading axis, or one array per sample under
"s000::<input>", "s001::<input>" ... To calibrate with anything else, change `samples`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_static,
)

SETTINGS = Path(__file__).with_name("{settings}")


def samples(path, ranks):
    """Yield input name -> array for each calibration sample."""
    arrays = dict(np.load(path, allow_pickle=False))
    if all("::" in name for name in arrays):
        found = {}
        for name, array in arrays.items():
            sample, _, input_name = name.partition("::")
            found.setdefault(sample, {})[input_name] = array
        yield from (found[sample] for sample in sorted(found))
        return
    for i in range(min(len(array) for array in arrays.values())):
        yield {name: a[i : i + 1] if a.ndim == ranks[name] else a[i] for name, a in arrays.items()}


def prepare(path, excluded):
    """Return the model in opset 13 or newer, every node with a name of its own."""
    model = onnx.load(path)
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if opset < 13:  # scales per channel need it
        model = onnx.version_converter.convert_version(model, 13)
    taken = set()
    for node in model.graph.node:
        if node.op_type == "Constant":
            continue
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}:{node.output[0]}"
        taken.add(node.name)
    unknown = [name for name in excluded if name not in taken]
    if unknown:  # quantize_static would ignore them
        sys.exit(f"{path} has no node {', '.join(unknown)}: is it the model of the export?")
    return model


class Reader(CalibrationDataReader):
    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def main(model_path, calibration_path, output_path):
    export = json.loads(SETTINGS.read_text(encoding="utf-8"))
    excluded, settings = export["nodes_to_exclude"], export["quantize_static"]
    model = prepare(model_path, excluded)
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.input}
    quantize_static(
        model,
        output_path,
        Reader(samples(calibration_path, ranks)),
        quant_format=QuantFormat[settings["quant_format"]],
        per_channel=settings["per_channel"],
        activation_type=QuantType[settings["activation_type"]],
        weight_type=QuantType[settings["weight_type"]],
        calibrate_method=CalibrationMethod[settings["calibrate_method"]],
        nodes_to_exclude=excluded,
        extra_options=settings["extra_options"],
    )


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
'''
