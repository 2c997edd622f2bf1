from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.errors import ModelLoadError
from analyzers.graph import read_model, save_model, with_outputs
from tests.networks import PLAIN, PLAIN_SHAPES, SILU, SILU_SHAPES, build, samples


def test_an_old_opset_is_lifted_with_the_same_result(tmp_path: Path) -> None:
    network = build(SILU, SILU_SHAPES, opset=7)
    onnx.save(network, tmp_path / "old.onnx")
    model = read_model(tmp_path / "old.onnx")
    assert model.ir.graph.opset_imports[""] == 13
    feed = samples(network, 1)[0]
    lifted = open_session(save_model(model.ir, tmp_path / "new")).run(feed)["out"]
    np.testing.assert_allclose(lifted, open_session(model.path).run(feed)["out"], rtol=1e-5)


def test_external_data_travels_with_a_saved_model_and_is_never_linked(tmp_path: Path) -> None:
    network = build(PLAIN, PLAIN_SHAPES)
    path = tmp_path / "big.onnx"
    onnx.save(network, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    model = read_model(path)
    saved = save_model(with_outputs(model.ir, ["r1"]), tmp_path / "copy")
    feed = samples(build(PLAIN, PLAIN_SHAPES), 1)[0]
    assert open_session(saved).run(feed)["r1"].shape == (1, 12, 8, 8)
    assert (tmp_path / "weights.bin").stat().st_nlink == 1
    assert read_model(path).digest == model.digest


def test_the_digest_follows_external_data(tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    onnx.save(
        build(PLAIN, PLAIN_SHAPES), path, save_as_external_data=True, location="w.bin", size_threshold=0
    )
    before = read_model(path).digest
    weights = bytearray((tmp_path / "w.bin").read_bytes())
    weights[0] ^= 1
    (tmp_path / "w.bin").write_bytes(weights)
    assert read_model(path).digest != before


def test_chosen_outputs_replace_the_models_own(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    network = build(PLAIN, PLAIN_SHAPES)
    onnx.save(network, path)
    saved = save_model(with_outputs(read_model(path).ir, ["r0", "k"]), tmp_path)
    assert set(open_session(saved).run(samples(network, 1)[0])) == {"r0", "k"}


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError) as caught:
        read_model(tmp_path / "absent.onnx")
    assert caught.value.code == "file_absent"


def test_a_scale_per_channel_without_a_zero_point_runs(tmp_path: Path) -> None:
    """onnxruntime by itself fails on it while it turns int8 weights into uint8."""
    network = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 13]>
        net (float[4,6] x) => (float[4,5] y)
        {
            w = DequantizeLinear<axis=1>(q, s)
            y = MatMul(x, w)
        }""")
    integers = np.arange(-15, 15, dtype=np.int8).reshape(6, 5)
    scales = np.arange(1, 6, dtype=np.float32)
    network.graph.initializer.append(onnx.numpy_helper.from_array(integers, "q"))
    network.graph.initializer.append(onnx.numpy_helper.from_array(scales, "s"))
    onnx.save(network, tmp_path / "given.onnx")
    saved = save_model(read_model(tmp_path / "given.onnx").ir, tmp_path / "copy")
    x = np.ones((4, 6), np.float32)
    expected = x @ (integers * scales)
    for path in (saved, tmp_path / "given.onnx"):
        np.testing.assert_allclose(open_session(path).run({"x": x})["y"], expected, rtol=1e-6)
