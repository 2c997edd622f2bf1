from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest
import yaml

from analyzers.errors import InputError
from analyzers.exporters import ExportRequest, ExportResult, find_exporter, write_export
from analyzers.exporters._names import tensors_of
from analyzers.project import Pair, open_models
from analyzers.records import Plan
from tests.conftest import CheckGolden
from tests.networks import build, quantized

EXPORTER = find_exporter("rknn")

# Names with slashes and colons, a Mul that the toolkit folds into its Conv, a Transpose at the output.
HEAD = """
net (float[1,3,8,8] images) => (float[1,8,8,8] output0)
{
    [/stem/Conv] "/stem/Conv_output_0" = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(images, w0, b0)
    [/stem/Relu] "/stem/Relu_output_0" = Relu("/stem/Conv_output_0")
    [/box/Conv] "/box/Conv:0" = Conv<kernel_shape=[1,1]>("/stem/Relu_output_0", w1, b1)
    [/box/Mul] "370" = Mul("/box/Conv:0", six)
    [/cls/Conv] "null" = Conv<kernel_shape=[1,1]>("/stem/Relu_output_0", w2, b2)
    [/cls/Sigmoid] "cls: 1" = Sigmoid("null")
    [/Concat] joined = Concat<axis=1>("370", "cls: 1")
    [/Transpose] output0 = Transpose<perm=[0,1,3,2]>(joined)
}
"""
SHAPES = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (4, 8, 1, 1), "b1": (4,), "w2": (4, 8, 1, 1), "b2": (4,)}
BASE = """\
# written by step 1
custom_quantize_layers: {}                                  # 0.99983
# the rest is the toolkit's
quantize_parameters:
    images:
        qtype: asym
        min:
        -   3.2575368095422164e-05
    /stem/Conv_output_0:
        qtype: asym
    /stem/Relu_output_0:
        qtype: asym
    '370':
        qtype: asym
    'null':
        qtype: asym
    'cls: 1':
        qtype: asym
    joined:
        qtype: asym
    output0:
        qtype: asym
"""


def named_head() -> onnx.ModelProto:
    """The network with its real tensor names: ONNX text has identifiers only."""
    text, real = HEAD, {}
    for part in HEAD.split('"')[1::2]:
        alias = (
            f"t{len(real)}" if part not in real.values() else next(a for a, n in real.items() if n == part)
        )
        real[alias] = part
        text = text.replace(f'"{part}"', alias)
    for part in [p.split("]")[0] for p in HEAD.split("[/")[1:]]:
        alias = f"n{len(real)}"
        real[alias] = f"/{part}"
        text = text.replace(f"[/{part}]", f"[{alias}]")
    model = build(text, SHAPES)
    for node in model.graph.node:
        node.name = real.get(node.name, node.name)
        node.input[:] = [real.get(name, name) for name in node.input]
        node.output[:] = [real.get(name, name) for name in node.output]
    return model


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("head")
    return open_models(*quantized(named_head(), folder))


def export(pair: Pair, layers: set[str], folder: Path, base: str | None = None) -> tuple[str, ExportResult]:
    path = None
    if base is not None:
        path = folder / "base.cfg"
        path.write_bytes(base.encode())
    request = ExportRequest(pair, Plan(frozenset(layers)), folder / "out.cfg", base=path)
    result = write_export(EXPORTER, request)
    return result.files[0].read_bytes().decode(), result


def test_a_fresh_file(pair: Pair, tmp_path: Path, golden: CheckGolden) -> None:
    text, _ = export(
        pair, {layer.name for layer in pair.pairing.layers if not layer.is_pass_through}, tmp_path
    )
    golden("exporters/rknn_fresh.cfg", text)


def test_a_merged_file(pair: Pair, tmp_path: Path, golden: CheckGolden) -> None:
    text, _ = export(pair, {"/cls/Conv", "/Concat"}, tmp_path, BASE)
    golden("exporters/rknn_merged.cfg", text)


def test_every_tensor_of_a_fused_layer_is_named_and_every_name_read_back_as_it_is(
    pair: Pair, tmp_path: Path
) -> None:
    text, _ = export(pair, {"/stem/Conv", "/box/Mul", "/cls/Conv", "/cls/Sigmoid"}, tmp_path)
    block = yaml.safe_load(text)["custom_quantize_layers"]
    assert block == dict.fromkeys(
        ["/stem/Conv_output_0", "/stem/Relu_output_0", "370", "null", "cls: 1"], "float16"
    )


def test_a_node_that_only_moves_values_goes_with_its_producer(pair: Pair) -> None:
    assert tensors_of(pair, {"/Concat"}) == {"/Concat": ("joined", "output0")}


def test_an_empty_plan_empties_the_block(pair: Pair, tmp_path: Path) -> None:
    text, _ = export(pair, set(), tmp_path, BASE)
    assert yaml.safe_load(text)["custom_quantize_layers"] == {}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "block",
    [
        "custom_quantize_layers: {}                                  # 0.99983",
        "custom_quantize_layers:\n    old: float16\n    # a note on it\n    older: int16",
        "custom_quantize_layers:",
        "custom_quantize_layers: {old: float16,\n  older: int16}",
    ],
)
def test_merging_keeps_every_other_byte(block: str, newline: str, pair: Pair, tmp_path: Path) -> None:
    before, _, after = BASE.partition("custom_quantize_layers: {}                                  # 0.99983")
    base = (before + block + after).replace("\n", newline)
    text, _ = export(pair, {"/cls/Conv"}, tmp_path, base)
    assert text.startswith(before.replace("\n", newline) + "custom_quantize_layers:" + newline)
    assert text.endswith(after[1:].replace("\n", newline))
    added = len("custom_quantize_layers:" + newline + '    "null": float16' + newline)
    assert len(text) == len((before + after[1:]).replace("\n", newline)) + added


def test_merging_into_a_file_whose_block_comes_last(pair: Pair, tmp_path: Path) -> None:
    first, _, rest = BASE.partition("custom_quantize_layers: {}                                  # 0.99983\n")
    text, _ = export(pair, {"/cls/Conv"}, tmp_path, first + rest + "custom_quantize_layers: {}\n\n# end\n")
    assert text == first + rest + 'custom_quantize_layers:\n    "null": float16\n\n# end\n'


def test_what_was_there_before_is_reported(pair: Pair, tmp_path: Path) -> None:
    base = BASE.replace("{}", "{old: float16}")
    codes = {n.code: n.message for n in export(pair, {"/cls/Conv"}, tmp_path, base)[1].warnings}
    assert "old" in codes["entries_replaced"]


def test_a_tensor_that_the_toolkit_folded_is_left_out_and_reported(pair: Pair, tmp_path: Path) -> None:
    base = BASE.replace("    /stem/Conv_output_0:\n        qtype: asym\n", "")
    text, result = export(pair, {"/stem/Conv"}, tmp_path, base)
    assert list(yaml.safe_load(text)["custom_quantize_layers"]) == ["/stem/Relu_output_0"]
    assert [(n.code, n.where) for n in result.warnings] == [("folded_tensors", "/stem/Conv_output_0")]
    assert result.unmapped == ()


def test_a_layer_that_the_toolkit_folded_is_unmapped(pair: Pair, tmp_path: Path) -> None:
    text, result = export(pair, {"/box/Conv", "/cls/Conv"}, tmp_path, BASE)
    assert result.unmapped == ("/box/Conv",)
    assert result.fallback == ("/cls/Conv",)
    assert list(yaml.safe_load(text)["custom_quantize_layers"]) == ["null"]
    assert [n.code for n in result.warnings] == ["unmapped_layers"]


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("", "holds no keys"),
        ("[1, 2]", "holds no keys"),
        ("a: [", "not YAML"),
        ("customized_quantize_layers: {}\n", "has no 'custom_quantize_layers'"),
        ("custom_quantize_layers: 3\nquantize_parameters: {}\n", "is no table"),
        ("x: !!python/object/apply:os.getcwd []\ncustom_quantize_layers: {}\n", "not YAML"),
        ("outer:\n  custom_quantize_layers: {}\n", "has no 'custom_quantize_layers'"),
    ],
)
def test_a_file_that_is_not_the_toolkits_is_refused(base: str, said: str, pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said) as caught:
        export(pair, {"/cls/Conv"}, tmp_path, base)
    assert caught.value.code == "malformed_result"
    assert not (tmp_path / "out.cfg").exists()


def test_a_binary_file_is_refused(pair: Pair, tmp_path: Path) -> None:
    request = ExportRequest(
        pair, Plan(frozenset({"/cls/Conv"})), tmp_path / "out.cfg", base=pair.candidate.path
    )
    with pytest.raises(InputError, match="not text"):
        write_export(EXPORTER, request)


def test_an_absent_file_is_refused(pair: Pair, tmp_path: Path) -> None:
    request = ExportRequest(pair, Plan(frozenset()), tmp_path / "out.cfg", base=tmp_path / "none.cfg")
    with pytest.raises(InputError) as caught:
        write_export(EXPORTER, request)
    assert caught.value.code == "file_absent"


def test_the_toolkit_has_no_float32(pair: Pair, tmp_path: Path) -> None:
    request = ExportRequest(pair, Plan(frozenset({"/cls/Conv"}), "fp32"), tmp_path / "out.cfg")
    with pytest.raises(InputError) as caught:
        write_export(EXPORTER, request)
    assert caught.value.code == "precision_not_supported"


@pytest.mark.parametrize(
    ("block", "code"),
    [
        ("/stem/Conv_output_0: float16", "partial_layer"),
        ("no_such_tensor: float16", "unknown_tensor"),
        ('"null": int16', "precision_not_supported"),
    ],
)
def test_reading_finds_names_that_are_wrong(block: str, code: str, pair: Pair, tmp_path: Path) -> None:
    (tmp_path / "x.cfg").write_text(f"custom_quantize_layers:\n    {block}\n")
    with pytest.raises(InputError) as caught:
        EXPORTER.read(tmp_path / "x.cfg", pair)
    assert caught.value.code == code


def shared(*parts: str) -> Path:
    root = Path(os.environ.get("TEARLINE_SHARED", Path(__file__).parents[4] / "shared"))
    path = root.joinpath("toolchains", "rknn-toolkit2", *parts)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


@pytest.mark.parametrize("run", ["step1_plain", "step1_prop"])
def test_a_real_file_merged_is_what_the_toolkit_itself_writes(run: str, tmp_path: Path) -> None:
    """The toolkit filled in the second file for the same tensors, asked by its own means."""
    reference = shared("tiny", "tiny.onnx")
    pair = open_models(*quantized(onnx.load(reference), tmp_path))
    base = shared("tiny", run, "tiny.quantization.cfg").read_bytes().decode()
    text, result = export(pair, {"/dw/Conv"}, tmp_path, base)
    assert text == shared("tiny", "step1_ch", "tiny.quantization.cfg").read_bytes().decode()
    assert result.warnings == ()


def test_a_real_detection_head_merged_is_what_the_toolkit_ran(tmp_path: Path) -> None:
    """Step 2 of rknn-toolkit2 2.5.0 took the second file and brought the scores back."""
    pair = open_models(*quantized(onnx.load(shared("hard", "hard.onnx")), tmp_path))
    base = shared("hard", "f16one.cfg").read_bytes().decode()
    text, _ = export(pair, {"/head/cls/Conv", "/head/cls/Sigmoid", "/head/Concat"}, tmp_path, base)
    ran = shared("hard", "f16a.cfg").read_bytes().decode()
    assert text == ran
