"""Write the shipped ONNX files from checkpoints: ``python -m sample_models.export --detector A.pt ...``.

Needs the extra ``train``. BatchNorm is folded into the convolutions by PyTorch's exporter, as usual; node
names follow the modules.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import onnx
import torch
from torch import nn

from calib_data import make_scenes, scenes
from sample_models import network, priors

OPSET = 13
FOLDER = Path(__file__).parent


def main() -> None:
    """Write the files whose checkpoints are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--detector", type=Path)
    parser.add_argument("--classifier", type=Path)
    parser.add_argument("--output", type=Path, default=FOLDER)
    options = parser.parse_args()
    if options.detector:
        export_detector(options.detector, options.output)
    if options.classifier:
        export_classifier(options.classifier, options.output)


def export_detector(checkpoint: Path, folder: Path) -> None:
    """Write ``detector.onnx`` (coded boxes and logits) and ``detector_decoded.onnx`` (one output)."""
    net = network.Detector(len(scenes.CLASS_NAMES))
    net.load_state_dict(torch.load(checkpoint, weights_only=True))
    write(net, priors.INPUT_SIZE, ["loc", "conf"], folder / "detector.onnx")
    write(network.DecodedExport(net), priors.INPUT_SIZE, ["detections"], folder / "detector_decoded.onnx")


def export_classifier(checkpoint: Path, folder: Path) -> None:
    """Write ``classifier.onnx``."""
    net = network.Classifier(len(scenes.CLASS_NAMES))
    net.load_state_dict(torch.load(checkpoint, weights_only=True))
    write(net, make_scenes.CROP_SIZE, ["logits"], folder / "classifier.onnx")


def write(net: nn.Module, size: int, outputs: list[str], path: Path) -> None:
    """Export one network for a batch of one square picture."""
    with warnings.catch_warnings():
        # The exporter through TorchScript keeps readable node names and writes opset 13 directly.
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            net.eval(),
            (torch.zeros(1, 3, size, size),),
            str(path),
            dynamo=False,
            opset_version=OPSET,
            input_names=["images"],
            output_names=outputs,
        )
    model = onnx.load(path)
    del model.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)


if __name__ == "__main__":
    main()
