from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.errors import InputError
from analyzers.exporters import ExportRequest, find_exporter, write_export
from analyzers.exporters._guards import guard_model
from analyzers.exporters._sessions import measure_agreement
from analyzers.graph import read_model, save_model
from analyzers.project import Pair, open_models
from analyzers.records import RULES, Array, Plan, Precision, Rule, Trial
from analyzers.simulate import simulate
from tests.analyzers.exporters.plans import (
    FORMS,
    NETWORKS,
    Samples,
    feed,
    make_pair,
    plan_shapes,
    searched,
)
from tests.networks import HEADER, PLAIN, PLAIN_SHAPES, build, quantized

EXPORTER = find_exporter("onnx-sim")


@pytest.fixture(scope="module", params=[(n, f) for n in NETWORKS for f in FORMS], ids=lambda p: "-".join(p))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    name, form = request.param
    return make_pair(name, tmp_path_factory.mktemp(name), form)


def trial(pair: Pair, plan: Plan, folder: Path) -> dict[str, Array]:
    return open_session(save_model(simulate(pair, plan), folder), is_simulated=True).run(feed(pair))


def exported(pair: Pair, plan: Plan, folder: Path) -> dict[str, Array]:
    result = write_export(EXPORTER, ExportRequest(pair, plan, folder / "exported.onnx"))
    return open_session(result.files[0], is_plain=True).run(feed(pair))


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("rule", RULES)
def test_the_file_under_default_options_yields_what_trials_yield(
    pair: Pair, rule: Rule, precision: Precision, tmp_path: Path
) -> None:
    for shape in plan_shapes(pair):
        plan = Plan(shape, precision, rule)
        want, got = trial(pair, plan, tmp_path), exported(pair, plan, tmp_path)
        assert list(got) == list(want)
        for name, value in want.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-5, atol=1e-6, err_msg=str(shape))


def wide_depthwise(folder: Path) -> Pair:
    """A depthwise layer whose weights only survive with a scale per channel."""
    model = build(PLAIN, PLAIN_SHAPES)
    factors = np.array([50, 1, 1, 1, 0.02, 0.02, 1, 1], np.float32).reshape(8, 1, 1, 1)
    for tensor in model.graph.initializer:
        if tensor.name == "wd":
            tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * factors, "wd"))
    return open_models(*quantized(model, folder, per_channel=False))


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_default_options_do_not_quantize_fallback_weights_again(precision: Precision, tmp_path: Path) -> None:
    pair = wide_depthwise(tmp_path)
    plan = Plan(frozenset({"dw"}), precision)
    np.testing.assert_allclose(
        exported(pair, plan, tmp_path)["scores"], trial(pair, plan, tmp_path)["scores"], rtol=1e-5, atol=1e-6
    )


def test_the_test_above_would_see_weights_that_are_quantized_again(tmp_path: Path) -> None:
    pair = wide_depthwise(tmp_path)
    plan = Plan(frozenset({"dw"}), "fp32")
    unguarded = save_model(simulate(pair, plan), tmp_path)
    harmed = open_session(unguarded, is_plain=True).run(feed(pair))["scores"]
    assert np.abs(harmed - trial(pair, plan, tmp_path)["scores"]).max() > 1e-3


EXPOSED = """
net (float[1,4,8,8] x) => (float[1,4,8,8] y)
{
    xq = QuantizeLinear(x, s, z)
    xd = DequantizeLinear(xq, s, z)
    wd = DequantizeLinear(wi, s, zi)
    [op] c = OP
    AFTER
    q = QuantizeLinear(last, s, z)
    y = DequantizeLinear(q, s, z)
}
"""
CONSTANTS = {
    "s": np.array(0.1, np.float32),
    "z": np.array(128, np.uint8),
    "w": np.ones((4, 4, 1, 1), np.float32),
    "wi": np.ones((4, 4, 1, 1), np.int8),
    "zi": np.array(0, np.int8),
    "b": np.ones(4, np.float32),
    "b4": np.ones((1, 4, 1, 1), np.float32),
    "low": np.array(0, np.float32),
}
CONV = "Conv<kernel_shape=[1,1]>(xd, w)"


def guarded(folder: Path, op: str, after: str) -> tuple[str, ...]:
    text = EXPOSED.replace("OP", op).replace("AFTER", after)
    model = onnx.parser.parse_model(HEADER.replace("{opset}", "13") + text)
    used = {name for node in model.graph.node for name in node.input}
    for name in CONSTANTS.keys() & used:
        model.graph.initializer.append(onnx.numpy_helper.from_array(CONSTANTS[name], name))
    onnx.save(model, folder / "x.onnx")
    return guard_model(read_model(folder / "x.onnx").ir)


@pytest.mark.parametrize(
    "after",
    [
        "last = Relu(c)",
        "last = Clip(c, low)",
        "k = Clip(c, low)\n    last = Relu(k)",
        "r = Relu(c)\n    last = MaxPool<kernel_shape=[1,1]>(r)",
        "t = Transpose<perm=[0,1,3,2]>(c)\n    last = Relu(t)",
        "n = BatchNormalization(c, b, b, b, b)\n    last = Relu(n)",
        "m = Mul(c, low)\n    a = Add(b4, m)\n    last = Relu(a)",
    ],
)
def test_float_weights_between_integers_are_guarded(after: str, tmp_path: Path) -> None:
    assert guarded(tmp_path, CONV, after) == ("op",)


def test_a_float_bias_beside_integer_weights_is_guarded(tmp_path: Path) -> None:
    assert guarded(tmp_path, "Conv<kernel_shape=[1,1]>(xd, wd, b)", "last = Relu(c)") == ("op",)


@pytest.mark.parametrize(
    ("op", "after"),
    [
        (CONV, "last = Sigmoid(c)"),
        (CONV, "last = Add(c, xd)"),
        (CONV, "h = Cast<to=10>(c)\n    last = Cast<to=1>(h)"),
        ("Conv<kernel_shape=[1,1]>(x, w)", "last = Relu(c)"),
        ("Conv<kernel_shape=[1,1]>(xd, wd)", "last = Relu(c)"),
        ("Add(xd, w)", "last = Relu(c)"),
    ],
)
def test_what_the_session_leaves_alone_is_not_guarded(op: str, after: str, tmp_path: Path) -> None:
    assert guarded(tmp_path, op, after) == ()


@pytest.mark.parametrize(
    "op", ["[op] last = Gemm(f, wg, b)", "[op] c = MatMul(f, wg)\n        last = Add(c, b)"]
)
def test_products_of_matrices_are_guarded(op: str, tmp_path: Path) -> None:
    text = """
    net (float[4,4] x) => (float[4,4] y)
    {
        xq = QuantizeLinear(x, s, z)
        f = DequantizeLinear(xq, s, z)
        OP
        q = QuantizeLinear(last, s, z)
        y = DequantizeLinear(q, s, z)
    }
    """
    weights = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4) * [[1], [1], [1], [100]]
    model = onnx.parser.parse_model(HEADER.replace("{opset}", "13") + text.replace("OP", op))
    for name, array in (CONSTANTS | {"wg": weights.astype(np.float32)}).items():
        if name in {"s", "z", "b", "wg"}:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "bare.onnx")
    model_read = read_model(tmp_path / "bare.onnx")
    assert guard_model(model_read.ir) == ("op",)
    feeds = {"x": np.linspace(-3, 3, 16, dtype=np.float32).reshape(4, 4)}
    want = open_session(tmp_path / "bare.onnx", is_simulated=True).run(feeds)["y"]
    got = open_session(save_model(model_read.ir, tmp_path / "guarded"), is_plain=True).run(feeds)["y"]
    harmed = open_session(tmp_path / "bare.onnx", is_plain=True).run(feeds)["y"]
    np.testing.assert_array_equal(got, want)
    assert not np.array_equal(harmed, want)


@pytest.mark.parametrize("op", ["Gemm(x, wd, b)", "MatMul(x, wd)"])
def test_float_activations_are_not_quantized_on_the_fly(op: str, tmp_path: Path) -> None:
    text = """
    net (float[4,32] x) => (float[4,16] y)
    {
        wd = DequantizeLinear<axis=1>(wi, ws, zs)
        [op] y = OP
    }
    """
    random = np.random.default_rng(0)
    model = onnx.parser.parse_model(HEADER.replace("{opset}", "13") + text.replace("OP", op))
    for name, array in {
        "wi": random.integers(-127, 128, (32, 16)).astype(np.int8),
        "ws": np.linspace(0.01, 0.02, 16, dtype=np.float32),
        "zs": np.zeros(16, np.int8),
        "b": np.ones(16, np.float32),
    }.items():
        if name in {i for node in model.graph.node for i in node.input}:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "bare.onnx")
    model_read = read_model(tmp_path / "bare.onnx")
    assert guard_model(model_read.ir) == ("op",)
    feeds = {"x": (random.normal(size=(4, 32)) * [[1] * 31 + [300]]).astype(np.float32)}
    want = open_session(tmp_path / "bare.onnx", is_simulated=True).run(feeds)["y"]
    got = open_session(save_model(model_read.ir, tmp_path / "guarded"), is_plain=True).run(feeds)["y"]
    harmed = open_session(tmp_path / "bare.onnx", is_plain=True).run(feeds)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    assert np.abs(harmed - want).max() > 0.05


def test_a_plan_that_overflowed_in_a_trial_is_refused_with_the_layer(tmp_path: Path) -> None:
    pair = make_pair("plain", tmp_path)
    plan = Plan(frozenset({"dw", "head"}))
    overflowing = Trial(("dw", "head"), 0.2, 8, 1.0, "forced", overflow=("dw",))
    search = searched(pair, plan, trials=(overflowing,))
    for name in ("onnx-sim", "onnx"):
        with pytest.raises(InputError, match="'dw' holds values beyond 65504") as caught:
            write_export(
                find_exporter(name), ExportRequest(pair, plan, tmp_path / "out" / "x.onnx", search=search)
            )
        assert (caught.value.code, caught.value.where) == ("fp16_overflow", "dw")
        assert not list((tmp_path / "out").iterdir())


def test_a_trial_of_another_set_that_overflowed_is_no_hindrance(tmp_path: Path) -> None:
    pair = make_pair("plain", tmp_path)
    plan = Plan(frozenset({"head"}))
    overflowing = Trial(("dw", "head"), 0.2, 8, 1.0, "forced", overflow=("dw",))
    search = searched(pair, plan, trials=(overflowing,))
    assert write_export(EXPORTER, ExportRequest(pair, plan, tmp_path / "x.onnx", search=search)).files


def test_constants_that_half_precision_cannot_hold_are_reported(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    for tensor in model.graph.initializer:
        if tensor.name == "six":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.float32(1e6), "six"))
    pair = open_models(*quantized(model, tmp_path))
    for plan, codes in {
        Plan(frozenset({"dw"})): ["fp16_constant_overflow"],
        Plan(frozenset({"dw"}), "fp32"): [],
        Plan(frozenset({"conv1"})): [],
    }.items():
        result = write_export(EXPORTER, ExportRequest(pair, plan, tmp_path / "x.onnx"))
        assert [n.code for n in result.warnings] == codes


def test_the_file_is_run_beside_the_trial_session_where_there_are_samples(tmp_path: Path) -> None:
    pair = make_pair("plain", tmp_path)
    plan = Plan(frozenset({"dw"}), "fp32")
    request = ExportRequest(pair, plan, tmp_path / "x.onnx", samples=Samples(pair))
    result = write_export(EXPORTER, request)
    assert result.warnings == ()
    agreement = measure_agreement(result.files[0], request, Samples(pair))
    assert agreement.is_identical
    assert agreement.file_db == agreement.trial_db > 20


def test_a_file_that_default_options_change_says_what_to_set(tmp_path: Path) -> None:
    pair = wide_depthwise(tmp_path)
    plan = Plan(frozenset({"dw"}), "fp32")
    unguarded = save_model(simulate(pair, plan), tmp_path)
    agreement = measure_agreement(unguarded, ExportRequest(pair, plan, unguarded), Samples(pair))
    assert not agreement.is_identical
    assert agreement.file_db < agreement.trial_db - 3


def test_literal_scores_say_which_option_repeats_them(tmp_path: Path) -> None:
    pair = make_pair("plain", tmp_path)
    plan = Plan(frozenset({"dw"}))
    search = searched(pair, plan, mode="literal")
    result = write_export(EXPORTER, ExportRequest(pair, plan, tmp_path / "x.onnx", search=search))
    assert [(n.code, n.where) for n in result.warnings] == [
        ("needs_session_option", "session.disable_quant_qdq")
    ]


def test_weights_outside_the_file_travel_with_it(tmp_path: Path) -> None:
    model = build(PLAIN, PLAIN_SHAPES)
    quantized(model, tmp_path)
    onnx.save(
        model,
        tmp_path / "reference.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    pair = open_models(tmp_path / "reference.onnx", tmp_path / "candidate.onnx")
    plan = Plan(frozenset({"dw"}), "fp32")
    want = trial(pair, plan, tmp_path / "trial")
    result = write_export(EXPORTER, ExportRequest(pair, plan, tmp_path / "out" / "x.onnx"))
    assert len(result.files) > 1
    feeds = feed(pair)
    (tmp_path / "weights.bin").unlink()
    got = open_session(result.files[0], is_plain=True).run(feeds)
    np.testing.assert_allclose(got["scores"], want["scores"], rtol=1e-5, atol=1e-6)
