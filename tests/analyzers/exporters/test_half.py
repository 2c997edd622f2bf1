"""Real float16 nodes out of Cast pairs, on graphs written by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from analyzers.backends.onnxruntime import open_session
from analyzers.exporters import ExportRequest, find_exporter, write_export
from analyzers.exporters._half import to_half
from analyzers.graph import save_model
from analyzers.project import Pair
from analyzers.records import RULES, Array, Plan, Rule
from tests.analyzers.exporters.plans import NETWORKS, Samples, feed, make_pair, plan_shapes
from tests.conftest import CheckGolden

HEADER = '<ir_version: 8, opset_import: ["" : 13, "com.microsoft" : 1]>'

# Conv and Relu are one layer, Add the next one; Mul is INT8.
ISLAND = """
net (float[1,2,4,4] x) => (float[1,2,4,4] y, float[1,2,4,4] z)
<float[2,2,1,1] w = {1,2,3,4,5,6,7,8}, float[1] b = {0.5}, float s = {0.25}, uint8 o = {128}>
{
    xh = Cast<to=10>(x)
    xf = Cast<to=1>(xh)
    c = Conv<kernel_shape=[1,1]>(xf, w)
    r = Relu(c)
    rh = Cast<to=10>(r)
    rf = Cast<to=1>(rh)
    a = Add(rf, b)
    ah = Cast<to=10>(a)
    z = Cast<to=1>(ah)
    q = QuantizeLinear(rf, s, o)
    d = DequantizeLinear(q, s, o)
    y = Mul(d, b)
}
"""
ISLAND_WEIGHTS = np.array([1, 2, 3, 4], np.float32).reshape(2, 2, 1, 1) / 3


def parsed(text: str, **constants: Array) -> ir.Model:
    proto = onnx.parser.parse_model(HEADER + text)
    for name, array in constants.items():
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return ir.from_proto(proto)


def island() -> ir.Model:
    text = ISLAND.replace("float[2,2,1,1] w = {1,2,3,4,5,6,7,8}, ", "")
    return parsed(text, w=ISLAND_WEIGHTS)


def kinds(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def listing(model: ir.Model) -> str:
    """One line per constant and node, with the types of what they hold."""
    lines = [f"{name}: {value.dtype}" for name, value in model.graph.initializers.items()]
    for node in model.graph:
        inputs = ", ".join(value.name or "" for value in node.inputs if value is not None)
        lines += [f"{value.name}: {value.dtype} = {node.op_type}({inputs})" for value in node.outputs]
    return "\n".join(lines) + "\n"


def run(model: ir.Model, feeds: dict[str, Array], folder: Path) -> dict[str, Array]:
    path = save_model(model, folder)
    if not any(node.domain for node in model.graph):
        onnx.checker.check_model(str(path), full_check=True)
    return open_session(path, is_plain=True).run(feeds)


def test_an_island(golden: CheckGolden) -> None:
    model = island()
    assert to_half(model, {"rf", "z"}) == ()
    golden("exporters/island.txt", listing(model))


def test_layers_of_an_island_hand_on_float16(tmp_path: Path) -> None:
    model = island()
    feeds = {"x": np.linspace(-3, 3, 32, dtype=np.float32).reshape(1, 2, 4, 4)}
    want = run(model, feeds, tmp_path / "sim")
    to_half(model, {"rf", "z"})
    # One at the input, one for the integer reader, one at the output.
    assert kinds(model)["Cast"] == 3
    assert {v.dtype for n in model.graph if n.op_type in {"Conv", "Relu", "Add"} for v in n.outputs} == {
        ir.DataType.FLOAT16
    }
    got = run(model, feeds, tmp_path / "real")
    assert list(got) == list(want)
    for name, value in want.items():
        assert got[name].dtype == np.float32
        np.testing.assert_allclose(got[name], value, rtol=2e-3, atol=2e-3)


def test_a_constant_with_readers_on_both_sides_is_stored_twice() -> None:
    model = island()
    to_half(model, {"rf", "z"})
    types = {name: value.dtype for name, value in model.graph.initializers.items()}
    assert types["b"] == ir.DataType.FLOAT
    assert types["b_float16"] == types["w_float16"] == ir.DataType.FLOAT16
    assert "w" not in types


def test_nodes_that_only_move_values_stay_float16_up_to_the_output(tmp_path: Path) -> None:
    model = parsed(
        """
        net (float[1,4] x) => (float[2,2] y)
        <int64[2] shape = {2, 2}>
        {
            r = Relu(x)
            rh = Cast<to=10>(r)
            rf = Cast<to=1>(rh)
            p = Reshape(rf, shape)
            y = Transpose<perm=[1,0]>(p)
        }
        """
    )
    feeds = {"x": np.array([[1, 2, 3, 4]], np.float32)}
    to_half(model, {"rf"})
    assert [node.op_type for node in model.graph] == ["Cast", "Relu", "Reshape", "Transpose", "Cast"]
    assert run(model, feeds, tmp_path)["y"].tolist() == [[1, 3], [2, 4]]


def test_a_tensor_that_is_read_and_leaves_the_graph_keeps_its_name_and_type(tmp_path: Path) -> None:
    model = parsed(
        """
        net (float[4] x) => (float[4] y, float[4] z)
        {
            a = Relu(x)
            ah = Cast<to=10>(a)
            y = Cast<to=1>(ah)
            b = Sqrt(y)
            bh = Cast<to=10>(b)
            z = Cast<to=1>(bh)
        }
        """
    )
    to_half(model, {"y", "z"})
    assert kinds(model) == {"Cast": 3, "Relu": 1, "Sqrt": 1}
    result = run(model, {"x": np.array([-1, 0, 4, 9], np.float32)}, tmp_path)
    assert {name: value.tolist() for name, value in result.items()} == {"y": [0, 0, 4, 9], "z": [0, 0, 2, 3]}


def test_what_steers_an_operator_stays_float32(tmp_path: Path) -> None:
    model = parsed(
        """
        net (float[1,1,2,2] x) => (float[1,1,4,4] y)
        <float[0] roi = {}, float[4] scales = {1, 1, 2, 2}>
        {
            r = Resize<mode="linear">(x, roi, scales)
            h = Cast<to=10>(r)
            y = Cast<to=1>(h)
        }
        """
    )
    assert to_half(model, {"y"}) == ()
    assert model.graph.initializers["scales"].dtype == ir.DataType.FLOAT
    assert (
        run(model, {"x": np.ones((1, 1, 2, 2), np.float32)}, tmp_path)["y"].tolist()
        == np.ones((1, 1, 4, 4)).tolist()
    )


RELU, SQRT = "{o = Relu(r)}", "{p = Sqrt(r)}"


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("Gelu", "[op] a = com.microsoft.Gelu(r)"),
        ("If", f"[op] a = If(yes) <then_branch = t () => (o) {RELU}, else_branch = e () => (p) {SQRT}>"),
        ("ConstantOfShape", "[op] a = ConstantOfShape<value: tensor = float[1] {2}>(shape)"),
    ],
)
def test_an_operator_without_a_float16_form_computes_in_float32(name: str, node: str, tmp_path: Path) -> None:
    model = parsed(
        f"""
        net (float[4] x) => (float[4] y)
        <bool yes = {{1}}, int64[1] shape = {{4}}>
        {{
            n = Neg(x)
            nh = Cast<to=10>(n)
            r = Cast<to=1>(nh)
            {node}
            ah = Cast<to=10>(a)
            af = Cast<to=1>(ah)
            b = Abs(af)
            bh = Cast<to=10>(b)
            y = Cast<to=1>(bh)
        }}
        """
    )
    feeds = {"x": np.array([-1, -0.5, 0.25, 2], np.float32)}
    want = run(model, feeds, tmp_path / "sim")["y"]
    assert to_half(model, {"r", "af", "y"}) == ("op",)
    types = {n.op_type: n.outputs[0].dtype for n in model.graph}
    assert types[name] != ir.DataType.FLOAT16
    assert types["Abs"] == ir.DataType.FLOAT16
    np.testing.assert_allclose(run(model, feeds, tmp_path / "real")["y"], want, rtol=2e-3)


def test_a_node_that_reads_one_tensor_twice_reads_it_twice(tmp_path: Path) -> None:
    model = parsed(
        """
        net (float[3] x) => (float[3] y)
        {
            m = Mul(x, x)
            h = Cast<to=10>(m)
            y = Cast<to=1>(h)
        }
        """
    )
    to_half(model, {"y"})
    assert kinds(model) == {"Cast": 2, "Mul": 1}
    assert run(model, {"x": np.array([1, 2, 3], np.float32)}, tmp_path)["y"].tolist() == [1, 4, 9]


def test_integer_layers_are_left_alone() -> None:
    model = island()
    nodes = [(node, tuple(node.inputs)) for node in model.graph]
    to_half(model, set())
    assert [(node, tuple(node.inputs)) for node in model.graph] == nodes


@pytest.fixture(scope="module", params=NETWORKS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("rule", RULES)
def test_an_exported_plan_is_near_to_its_simulation(pair: Pair, rule: Rule, tmp_path: Path) -> None:
    exporter, simulation = find_exporter("onnx"), find_exporter("onnx-sim")
    for shape in plan_shapes(pair):
        plan = Plan(shape, "fp16", rule)
        real = write_export(exporter, ExportRequest(pair, plan, tmp_path / "real.onnx")).files[0]
        simulated = write_export(simulation, ExportRequest(pair, plan, tmp_path / "sim.onnx")).files[0]
        onnx.checker.check_model(str(real), full_check=True)
        want = open_session(simulated, is_plain=True).run(feed(pair))
        got = open_session(real, is_plain=True).run(feed(pair))
        assert list(got) == list(want)
        for name, value in want.items():
            # A rounding that falls the other way moves an integer by one step, and few do.
            noise = np.square(got[name] - value).sum()
            assert noise <= np.square(value).sum() * 1e-4, shape


def test_a_plan_in_float32_has_no_float16(pair: Pair, tmp_path: Path) -> None:
    plan = Plan(plan_shapes(pair)[-1], "fp32")
    path = write_export(find_exporter("onnx"), ExportRequest(pair, plan, tmp_path / "x.onnx")).files[0]
    assert onnx.TensorProto.FLOAT16 not in {t.data_type for t in onnx.load(path).graph.initializer}


def test_an_export_that_is_nearer_to_the_reference_than_its_trials_is_no_finding(tmp_path: Path) -> None:
    pair = make_pair("plain", tmp_path)
    plan = Plan(plan_shapes(pair)[-1])
    request = ExportRequest(pair, plan, tmp_path / "x.onnx", samples=Samples(pair))
    codes = [notice.code for notice in write_export(find_exporter("onnx"), request).warnings]
    assert codes == ["rounds_elsewhere"]
