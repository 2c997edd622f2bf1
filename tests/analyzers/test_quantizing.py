from __future__ import annotations

import dataclasses
import gc
import logging
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper
from onnxruntime import quantization as stock

from analyzers.backends.onnxruntime import open_session
from analyzers.errors import InputError, ModelLoadError, SampleError
from analyzers.quantizing import quantize
from analyzers.records import Array, QuantizeOptions, QuantizeResult, Sample
from analyzers.steps import Step, finish

QDQ, QOPERATOR = QuantizeOptions(), QuantizeOptions(format="qoperator")
EVERY_OPTION = [
    QuantizeOptions(method, per_channel, symmetric, form)
    for method in ("minmax", "entropy", "percentile")
    for per_channel in (True, False)
    for symmetric in (False, True)
    for form in ("qdq", "qoperator")
]


class Samples:
    """A set in memory."""

    def __init__(self, arrays: Sequence[Array], *, name: str = "x") -> None:
        self._arrays, self._input = tuple(arrays), name
        self.names = tuple(f"s{i:03}" for i in range(len(arrays)))
        self.digest = ""

    def __len__(self) -> int:
        return len(self._arrays)

    def __getitem__(self, index: int) -> Sample:
        return Sample(self.names[index], {self._input: self._arrays[index]})


def noise(count: int = 4, shape: tuple[int, ...] = (1, 3, 8, 8), seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype(np.float32) for _ in range(count)]


def weights(proto: onnx.ModelProto, **shapes: tuple[int, ...]) -> onnx.ModelProto:
    random = np.random.default_rng(7)
    for name, shape in shapes.items():
        array = random.normal(size=shape).astype(np.float32) * 0.2
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    return proto


def network(opset: int = 17) -> onnx.ModelProto:
    """Conv, Relu, a residual branch and a head; nodes have no names."""
    text = f"""<ir_version: 8, opset_import: ["" : {opset}]>
    g (float[1,3,8,8] x) => (float[1,4,8,8] y) {{
        c = Conv <pads = [1,1,1,1]> (x, w1, b1)
        r = Relu(c)
        d = Conv <pads = [1,1,1,1]> (r, w2, b2)
        s = Sigmoid(d)
        m = Mul(d, s)
        y = Add(m, r)
    }}"""
    proto = onnx.parser.parse_model(text)
    return weights(proto, w1=(4, 3, 3, 3), b1=(4,), w2=(4, 4, 3, 3), b2=(4,))


def save(proto: onnx.ModelProto, folder: Path, name: str = "fp32.onnx") -> Path:
    path = folder / name
    onnx.save_model(proto, path)
    return path


def run(
    proto: onnx.ModelProto, folder: Path, samples: Sequence[Array], options: QuantizeOptions = QDQ
) -> tuple[QuantizeResult, onnx.ModelProto]:
    result = finish(quantize(save(proto, folder), Samples(samples), options, folder / "int8.onnx"))
    return result, onnx.load(result.candidate)


def outputs(path: Path, feed: Array) -> Array:
    return next(iter(open_session(path).run({"x": feed}).values()))


def sqnr_db(reference: Array, candidate: Array) -> float:
    return float(10 * np.log10(np.sum(reference**2) / np.sum((reference - candidate) ** 2)))


def initializers(proto: onnx.ModelProto) -> dict[str, Array]:
    return {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}


def wiring(proto: onnx.ModelProto) -> list[tuple[str, ...]]:
    return [(n.op_type, n.name, *n.input, "->", *n.output) for n in proto.graph.node]


@pytest.mark.parametrize("options", EVERY_OPTION, ids=str)
def test_every_option_makes_a_candidate_that_runs_and_is_close(
    tmp_path: Path, options: QuantizeOptions
) -> None:
    result, candidate = run(network(), tmp_path, noise(), options)
    expected = outputs(tmp_path / "fp32.onnx", noise()[0])
    assert sqnr_db(expected, outputs(result.candidate, noise()[0])) > 20
    kinds = {node.op_type for node in candidate.graph.node}
    assert ("QLinearConv" in kinds) is (options.format == "qoperator")
    assert result.samples == ("s000", "s001", "s002", "s003")
    assert [w.code for w in result.warnings] == (["same_as_minmax"] if options.method == "entropy" else [])


class _Reader(stock.CalibrationDataReader):
    def __init__(self, samples: Sequence[Array]) -> None:
        self._rest = iter(samples)

    def get_next(self) -> dict[str, Array] | None:
        feed = next(self._rest, None)
        return None if feed is None else {"x": feed}


def stock_quantize(folder: Path, samples: Sequence[Array], options: QuantizeOptions) -> onnx.ModelProto:
    handlers = list(logging.root.handlers)
    methods = {
        "minmax": stock.CalibrationMethod.MinMax,
        "entropy": stock.CalibrationMethod.Entropy,
        "percentile": stock.CalibrationMethod.Percentile,
    }
    stock.quantize_static(
        folder / "fp32.onnx",
        folder / "stock.onnx",
        _Reader(samples),
        quant_format=stock.QuantFormat.QDQ if options.format == "qdq" else stock.QuantFormat.QOperator,
        per_channel=options.per_channel,
        activation_type=stock.QuantType.QInt8 if options.symmetric else stock.QuantType.QUInt8,
        weight_type=stock.QuantType.QInt8,
        calibrate_method=methods[options.method],
        extra_options={
            "ActivationSymmetric": options.symmetric,
            "CalibTensorRangeSymmetric": options.symmetric and options.method == "percentile",
            "CalibPercentile": options.percentile,
        },
    )
    logging.root.handlers[:] = handlers
    return onnx.load(folder / "stock.onnx")


def named_network() -> onnx.ModelProto:
    proto = network()
    for i, node in enumerate(proto.graph.node):
        node.name = f"n{i}"
    return proto


@pytest.mark.parametrize("options", EVERY_OPTION, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_candidates_equal_those_of_the_stock_quantizer(tmp_path: Path, options: QuantizeOptions) -> None:
    options = dataclasses.replace(options, percentile=99.0)
    _, ours = run(named_network(), tmp_path, noise(), options)
    theirs = stock_quantize(tmp_path, noise(), options)
    assert wiring(ours) == wiring(theirs)
    expected, found = initializers(theirs), initializers(ours)
    assert found.keys() == expected.keys()
    tolerance = 0.0
    if options.method == "percentile":
        # Bin edges may differ in the last bit; the symmetric one starts its bins at the smallest magnitude.
        tolerance = 2e-3 if options.symmetric else 1e-6
    for name, array in expected.items():
        if name.endswith("_scale"):
            np.testing.assert_allclose(found[name], array, rtol=tolerance, err_msg=name)
        elif tolerance < 1e-3:
            np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("opset", [7, 9, 11, 12])
@pytest.mark.parametrize("options", [QDQ, QOPERATOR], ids=str)
def test_old_opsets_are_lifted_so_that_per_channel_loads(
    tmp_path: Path, opset: int, options: QuantizeOptions
) -> None:
    result, candidate = run(network(opset), tmp_path, noise(), options)
    assert {o.domain: o.version for o in candidate.opset_import}[""] == 13
    assert initializers(candidate)["w1_scale"].shape == (4,)
    expected = outputs(tmp_path / "fp32.onnx", noise()[0])
    assert sqnr_db(expected, outputs(result.candidate, noise()[0])) > 20


def test_tensors_keep_their_names(tmp_path: Path) -> None:
    _, candidate = run(network(), tmp_path, noise())
    names = {name for node in candidate.graph.node for name in (*node.input, *node.output)}
    # c is gone: its Relu became the quantizer's saturation.
    assert {"x", "r", "d", "s", "m", "y"} <= names
    assert [v.name for v in candidate.graph.output] == ["y"]


def test_more_bins_let_entropy_choose(tmp_path: Path) -> None:
    result, _ = run(network(), tmp_path, noise(), QuantizeOptions("entropy", bins=512))
    assert result.warnings == ()


def test_samples_with_nan_are_skipped_with_a_warning(tmp_path: Path) -> None:
    clean = noise()
    dirty = [
        clean[0],
        np.full((1, 3, 8, 8), np.nan, np.float32),
        *clean[1:],
        -np.inf * np.ones_like(clean[0]),
    ]
    result, candidate = run(network(), tmp_path, dirty)
    (warning,) = result.warnings
    assert warning.code == "nan_in_calibration"
    assert "s001" in warning.message
    assert "s005" in warning.message
    assert result.samples == ("s000", "s002", "s003", "s004")
    _, expected = run(network(), tmp_path, clean)
    assert candidate == expected


@pytest.mark.parametrize(
    ("samples", "code"),
    [([], "calibration_empty"), ([np.full((1, 3, 8, 8), np.nan, np.float32)] * 2, "nan_in_calibration")],
)
def test_a_set_without_usable_samples_is_refused(tmp_path: Path, samples: list[Array], code: str) -> None:
    with pytest.raises(SampleError) as caught:
        run(network(), tmp_path, samples)
    assert caught.value.code == code
    assert not (tmp_path / "int8.onnx").exists()


def test_a_quantized_reference_is_refused(tmp_path: Path) -> None:
    result, _ = run(network(), tmp_path, noise())
    with pytest.raises(ModelLoadError) as caught:
        finish(quantize(result.candidate, Samples(noise()), QDQ, tmp_path / "again.onnx"))
    assert caught.value.code == "already_quantized"


def test_a_dead_branch_gets_a_usable_scale_and_a_warning(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 13]>
    g (float[1,3,8,8] x) => (float[1,4,8,8] y) <float low = {-100}> {
        a = Conv <pads = [1,1,1,1]> (x, w1, b1)
        shifted = Add(a, low)
        dead = Relu(shifted)
        y = Add(a, dead)
    }"""
    proto = weights(onnx.parser.parse_model(text), w1=(4, 3, 3, 3), b1=(4,))
    for options in EVERY_OPTION:
        result, candidate = run(proto, tmp_path, noise(), options)
        scales = [a for name, a in initializers(candidate).items() if name.endswith("_scale")]
        assert all(np.all(np.isfinite(s)) and np.all(s > 0) for s in scales)
        (message,) = (w.message for w in result.warnings if w.code == "zero_range_in_calibration")
        assert "dead" in message


@pytest.mark.parametrize("options", [QDQ, QOPERATOR], ids=str)
def test_operators_around_infinite_tensors_stay_in_float(tmp_path: Path, options: QuantizeOptions) -> None:
    text = """<ir_version: 8, opset_import: ["" : 13]>
    g (float[1,3,8,8] x) => (float[1,4,8,8] y) <float zero = {0}, float endless = {-inf}> {
        a = Conv <pads = [1,1,1,1]> (x, w1, b1)
        small = Less(a, zero)
        masked = Where(small, endless, a)
        p = Softmax(masked)
        y = Conv <pads = [1,1,1,1]> (p, w2, b2)
    }"""
    text = text.replace("{-inf}", "{0}")
    proto = weights(onnx.parser.parse_model(text), w1=(4, 3, 3, 3), b1=(4,), w2=(4, 4, 3, 3), b2=(4,))
    for tensor in proto.graph.initializer:
        if tensor.name == "endless":
            tensor.CopyFrom(numpy_helper.from_array(np.float32(-np.inf), "endless"))
    result, candidate = run(proto, tmp_path, noise(), options)
    assert [w.code for w in result.warnings] == ["infinite_range_in_calibration"]
    assert "masked" in result.warnings[0].message
    assert "Where:masked" in result.float_operators
    assert all(np.all(np.isfinite(a)) for n, a in initializers(candidate).items() if n.endswith("_scale"))
    assert np.isfinite(outputs(result.candidate, noise()[0])).any()


def test_where_and_subgraphs_survive_the_qoperator_form(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 13]>
    g (float[1,3,8,8] x) => (float[1,4,8,8] y) <float zero = {0}> {
        a = Conv <pads = [1,1,1,1]> (x, w1, b1)
        small = Less(a, zero)
        chosen = Where(small, zero, a)
        total = ReduceSum <keepdims = 0> (x)
        c = Less(total, zero)
        z = If (c) <
            then_branch = t () => (float[1,4,8,8] t_out) { t_out = Neg(chosen) },
            else_branch = e () => (float[1,4,8,8] e_out) { e_out = Identity(a) }
        >
        y = Conv <pads = [1,1,1,1]> (z, w2, b2)
    }"""
    proto = weights(onnx.parser.parse_model(text), w1=(4, 3, 3, 3), b1=(4,), w2=(4, 4, 3, 3), b2=(4,))
    result, candidate = run(proto, tmp_path, noise(8), QOPERATOR)
    kinds = [node.op_type for node in candidate.graph.node]
    assert "Where" in kinds
    assert [len(node.input) for node in candidate.graph.node if node.op_type == "If"] == [1]
    assert kinds.count("QLinearConv") == 2
    for feed in noise(8):
        assert sqnr_db(outputs(tmp_path / "fp32.onnx", feed), outputs(result.candidate, feed)) > 15


def test_operators_that_the_quantizer_does_not_know_are_listed(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 13]>
    g (float[1,3,8,8] x) => (float[1,4,8,8] y) {
        a = Conv <pads = [1,1,1,1]> (x, w1, b1)
        b = Erf(a)
        y = Neg(b)
    }"""
    proto = weights(onnx.parser.parse_model(text), w1=(4, 3, 3, 3), b1=(4,))
    proto.graph.node[1].name = "my_erf"
    for options in (QDQ, QOPERATOR):
        result, _ = run(proto, tmp_path, noise(), options)
        assert result.float_operators == ("my_erf", "Neg:y")


def test_samples_may_differ_in_shape(tmp_path: Path) -> None:
    proto = network()
    for value in (proto.graph.input[0], proto.graph.output[0]):
        for axis in (0, 2, 3):
            value.type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    sizes = [noise(1, (n, 3, h, h), seed=n)[0] for n, h in ((1, 8), (2, 5), (3, 16))]
    for options in (QDQ, QuantizeOptions("percentile")):
        result, _ = run(proto, tmp_path, sizes, options)
        assert outputs(result.candidate, sizes[1]).shape == (2, 4, 5, 5)


def test_external_data_gives_the_same_candidate(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    run(network(), inside, noise())
    onnx.save_model(
        network(), outside / "fp32.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    finish(quantize(outside / "fp32.onnx", Samples(noise()), QDQ, outside / "int8.onnx"))
    assert (inside / "int8.onnx").read_bytes() == (outside / "int8.onnx").read_bytes()
    assert sorted(p.name for p in outside.iterdir()) == ["fp32.onnx", "int8.onnx", "w.bin"]


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_quantizing as t
from analyzers.quantizing import quantize
from analyzers.steps import finish
out = Path(sys.argv[2])
finish(quantize(out / "fp32.onnx", t.Samples(t.noise()), t.QDQ, out / "other.onnx"))
"""


def test_the_same_inputs_give_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    run(network(), tmp_path, noise())
    subprocess.run(
        [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(tmp_path)],
        env=os.environ | {"PYTHONHASHSEED": "4711"},
        check=True,
        timeout=120,
    )
    assert (tmp_path / "int8.onnx").read_bytes() == (tmp_path / "other.onnx").read_bytes()


def test_nothing_is_printed_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", None)
    handlers = list(logging.root.handlers)
    for options in EVERY_OPTION[::3]:
        run(network(), tmp_path, noise(), options)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fp32.onnx", "int8.onnx", "temporary"]
    assert list(temporary.iterdir()) == []
    assert logging.root.handlers == handlers
    assert logging.root.manager.disable == 0
    assert capfd.readouterr() == ("", "")


class _Watched(Samples):
    """Makes arrays when asked and knows how many are alive."""

    def __init__(self, count: int) -> None:
        super().__init__([np.zeros(1)] * count)
        self.alive: weakref.WeakSet[_Array] = weakref.WeakSet()
        self.most = 0

    def __getitem__(self, index: int) -> Sample:
        array = noise(1, seed=index)[0].view(_Array)
        self.alive.add(array)
        gc.collect()
        self.most = max(self.most, len(self.alive))
        return Sample(self.names[index], {"x": array})


class _Array(np.ndarray):
    __hash__ = object.__hash__  # type: ignore[assignment]


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_samples_are_made_one_at_a_time_and_every_one_is_a_step(tmp_path: Path, method: str) -> None:
    samples = _Watched(6)
    steps: list[Step] = []
    options = QuantizeOptions("minmax" if method == "minmax" else "percentile")
    work = quantize(save(network(), tmp_path), samples, options, tmp_path / "int8.onnx")
    finish(work, steps.append)
    assert samples.most <= 2
    named = [step.text for step in steps if step.stage == "calibrate"]
    assert named == list(samples.names) * (1 if method == "minmax" else 2)


def test_stopping_half_way_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    work = quantize(save(network(), tmp_path), Samples(noise()), QDQ, tmp_path / "int8.onnx")
    next(work)
    next(work)
    work.close()
    assert not (tmp_path / "int8.onnx").exists()
    assert list(temporary.iterdir()) == []


def test_an_output_that_cannot_be_written_is_the_users_error(tmp_path: Path) -> None:
    work = quantize(save(network(), tmp_path), Samples(noise()), QDQ, tmp_path / "absent" / "int8.onnx")
    with pytest.raises(InputError) as caught:
        finish(work)
    assert caught.value.code == "output_not_writable"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fp32.onnx"]


def test_half_precision_references_are_quantized(tmp_path: Path) -> None:
    proto = network()
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(
            numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name)
        )
    for value in (proto.graph.input[0], proto.graph.output[0]):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    halves = [a.astype(np.float16) for a in noise()]
    result, _ = run(proto, tmp_path, halves)
    expected = outputs(tmp_path / "fp32.onnx", halves[0]).astype(np.float32)
    assert sqnr_db(expected, outputs(result.candidate, halves[0]).astype(np.float32)) > 20


def test_the_default_is_what_users_of_onnxruntime_get(tmp_path: Path) -> None:
    _, candidate = run(network(), tmp_path, noise())
    found = initializers(candidate)
    assert found["x_zero_point"].dtype == np.uint8
    assert found["w1_quantized"].dtype == np.int8
    assert not found["w1_zero_point"].any()
    assert ort.InferenceSession(tmp_path / "int8.onnx", providers=["CPUExecutionProvider"]) is not None
