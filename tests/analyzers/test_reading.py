"""What a bad model file gets: every row of docs/errors.md that concerns reading."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from analyzers import reading
from analyzers.backends import onnxruntime_schemas as schemas
from analyzers.errors import ModelLoadError

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
CHAIN = HEADER + "g (float[1,4] x) => (float[1,4] y) <float[4] w = {1,2,3,4}> { h = Add(x, w)  y = Relu(h) }"
QDQ = (
    HEADER
    + """g (float[1,4] x) => (float[1,4] y) <float s = {0.1}, uint8 z = {0}> {
        q = QuantizeLinear(x, s, z)
        y = DequantizeLinear(q, s, z)
    }"""
)


def model(text: str = CHAIN) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def read(path: Path) -> ir.Model:
    parsed = reading.parse_model(path)
    reading.check_graph(parsed, path)
    return parsed


def refused(path: Path) -> ModelLoadError:
    with pytest.raises(ModelLoadError) as caught:
        read(path)
    assert str(path) == caught.value.where
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return caught.value


def write(folder: Path, content: bytes, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return buffer.getvalue()


def saved_npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros(3))
    return buffer.getvalue()


def test_a_sound_model_is_read(tmp_path: Path) -> None:
    parsed = read(write(tmp_path, model().SerializeToString()))
    assert [node.op_type for node in parsed.graph] == ["Add", "Relu"]


NOISE = bytes(range(0x90, 0xF0)) * 10
NOT_MODELS = [
    ("model.onnx", b"", "empty", "file sizes"),
    (
        "model.onnx",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n",
        "LFS pointer",
        "git lfs pull",
    ),
    ("model.onnx", zipped("archive/data.pkl", "archive/version"), "PyTorch", "torch.onnx.export"),
    ("model.pt", zipped("m/data.pkl"), "PyTorch", "torch.onnx.export"),
    ("model.pth", b"\x80\x02}q\x00.", "PyTorch", "torch.onnx.export"),
    ("model.pt", NOISE, "PyTorch", "torch.onnx.export"),
    ("model.rknn", b"RKNN\x00\x00\x00\x00\x06" + NOISE, "RKNN", "ONNX file that it was built from"),
    ("model.rknn", NOISE, "RKNN", "ONNX file that it was built from"),
    ("model.engine", b"ftrt" + NOISE, "TensorRT", "ONNX file that it was built from"),
    ("model.plan", NOISE, "TensorRT", "ONNX file that it was built from"),
    ("renamed.onnx", b"\x1c\x00\x00\x00TFL3" + NOISE, "TensorFlow Lite", "tf2onnx"),
    ("model.tflite", NOISE, "TensorFlow Lite", "tf2onnx"),
    ("model.om", b"IMOD" + NOISE, "Ascend", "ONNX file that it was built from"),
    ("model.dlc", NOISE, "vendor", "ONNX file that it was built from"),
    ("model.xml", b'<?xml version="1.0"?>\n<net name="m" version="11">', "OpenVINO", "ONNX file"),
    ("model.h5", b"\x89HDF\r\n\x1a\n" + NOISE, "HDF5", "tf2onnx"),
    ("model.keras", zipped("config.json", "model.weights.h5"), "Keras", "tf2onnx"),
    ("model.ort", b"\x20\x00\x00\x00ORTM" + NOISE, "onnxruntime", ".onnx file"),
    ("inputs.npz", saved_npz(), "npz", "--data"),
    ("input.npy", b"\x93NUMPY\x01\x00" + NOISE, "numpy", "--data"),
    ("photo.onnx", b"\x89PNG\r\n\x1a\n" + NOISE, "image", "--data"),
    ("model.onnx.gz", b"\x1f\x8b\x08" + NOISE, "archive", "Unpack"),
    ("model.zip", zipped("model.onnx"), "zip", "Unpack"),
    ("model.onnx", b"<!DOCTYPE html><html><body>404</body></html>", "web page", "Download"),
    ("model.onnx", CHAIN.encode(), "text form", "binary"),
    ("model.onnx", b"hello, this is only text", "text file", ".onnx"),
    ("saved_model.pb", b"\x08\x01\x12\x02\x0a\x00", "TensorFlow", "tf2onnx"),
    ("broken.zip", b"PK\x03\x04" + NOISE, "zip", "Unpack"),
]


@pytest.mark.parametrize(("name", "content", "mention", "advice"), NOT_MODELS)
def test_another_format_is_named_with_what_to_do(
    tmp_path: Path, name: str, content: bytes, mention: str, advice: str
) -> None:
    error = refused(write(tmp_path, content, name))
    assert error.code == "not_a_model"
    assert mention in error.message
    assert advice in error.hint


def test_an_absent_file_a_folder_and_a_pipe_are_refused_without_opening_them(tmp_path: Path) -> None:
    assert refused(tmp_path / "absent.onnx").code == "file_absent"
    assert refused(write(tmp_path, b"x") / "inside.onnx").code == "file_absent"
    assert refused(tmp_path).code == "not_a_model"
    pipe = tmp_path / "pipe.onnx"
    os.mkfifo(pipe)
    assert refused(pipe).code == "not_a_model"


def test_every_cut_of_a_model_is_called_truncated(tmp_path: Path) -> None:
    whole = model().SerializeToString()
    codes = {end: refused(write(tmp_path, whole[:end])).code for end in range(2, len(whole))}
    assert set(codes.values()) == {"truncated_model"}


def test_noise_is_malformed_and_not_called_truncated(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    codes = [refused(write(tmp_path, random.bytes(500))).code for _ in range(200)]
    assert codes.count("malformed_model") >= 190
    assert "invalid_graph" not in codes


def test_damage_inside_the_graph_is_malformed(tmp_path: Path) -> None:
    content = bytearray(model().SerializeToString())
    start = content.index(b"Relu") - 2
    content[start : start + 2] = b"\xff\xff"
    assert refused(write(tmp_path, bytes(content))).code == "malformed_model"


def node_cycle() -> onnx.ModelProto:
    proto = model(HEADER + "g (float[4] x) => (float[4] y) { a = Add(x, b)  b = Relu(a)  y = Relu(b) }")
    proto.graph.node[0].name, proto.graph.node[1].name = "first", "second"
    return proto


def cycle_through_a_subgraph() -> onnx.ModelProto:
    return model(
        HEADER
        + """g (float[4] x, bool c) => (float[4] y) {
            y = If (c) <
                then_branch = t () => (float[4] t_out) { t_out = Relu(z) },
                else_branch = e () => (float[4] e_out) { e_out = Relu(x) }
            >
            z = Relu(y)
        }"""
    )


def same_name_twice() -> onnx.ModelProto:
    return model(HEADER + "g (float[4] x) => (float[4] y) { y = Relu(x)  y = Abs(x) }")


def same_input_twice() -> onnx.ModelProto:
    return model(HEADER + "g (float[4] x, float[4] x) => (float[4] y) { y = Relu(x) }")


def same_initializer_twice() -> onnx.ModelProto:
    proto = model()
    proto.graph.initializer.append(proto.graph.initializer[0])
    return proto


def constant_with(**fields: object) -> Callable[[], onnx.ModelProto]:
    def build() -> onnx.ModelProto:
        proto = model()
        proto.graph.initializer[0].CopyFrom(TensorProto(name="w", **fields))
        return proto

    return build


def sparse_constant() -> onnx.ModelProto:
    proto = model()
    del proto.graph.initializer[:]
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("w_at", TensorProto.INT64, [1], [2])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    return proto


def custom_operator() -> onnx.ModelProto:
    proto = model(
        '<ir_version: 8, opset_import: ["" : 17, "ai.acme.npu" : 1]>'
        "g (float[4] x) => (float[4] y) { y = ai.acme.npu.TurboRelu(x) }"
    )
    proto.graph.node[0].name = "act1"
    return proto


def opset(version: int, domain: str = "") -> Callable[[], onnx.ModelProto]:
    def build() -> onnx.ModelProto:
        proto = model()
        entry = next((o for o in proto.opset_import if o.domain == domain), None) or proto.opset_import.add()
        entry.domain, entry.version = domain, version
        return proto

    return build


def newer_file_format() -> onnx.ModelProto:
    proto = model()
    proto.ir_version = schemas.newest_ir_version() + 1
    return proto


BODY = "g (float[4] x) => (float[4] y) "
BAD_GRAPHS: list[tuple[str, Callable[[], onnx.ModelProto], str, tuple[str, ...]]] = [
    ("cycle", node_cycle, "invalid_graph", ("cycle", "first -> second -> first")),
    ("cycle through a subgraph", cycle_through_a_subgraph, "invalid_graph", ("cycle",)),
    (
        "dangling",
        lambda: model(HEADER + BODY + "{ y = Add(x, nobody) }"),
        "invalid_graph",
        ("nobody", "Add:y", "undefined"),
    ),
    ("dangling output", lambda: model(HEADER + BODY + "{ h = Relu(x) }"), "invalid_graph", ("'y'", "undef")),
    ("same name twice", same_name_twice, "invalid_graph", ("'y'", "same name")),
    ("same input twice", same_input_twice, "invalid_graph", ("'x'", "same name")),
    ("same initializer twice", same_initializer_twice, "invalid_graph", ("'w'", "same name")),
    ("no nodes", lambda: model(HEADER + "g (float[4] x) => (float[4] x) { }"), "invalid_graph", ("empty",)),
    ("short weights", constant_with(data_type=1, dims=[4], raw_data=b"12345678"), "invalid_graph", ("'w'",)),
    ("no weights", constant_with(data_type=1, dims=[1 << 20]), "invalid_graph", ("'w'", "stores 0")),
    ("huge weights", constant_with(data_type=1, dims=[1 << 40]), "invalid_graph", ("'w'", "absurd")),
    ("negative weights", constant_with(data_type=1, dims=[-4], raw_data=b""), "invalid_graph", ("'w'", "-4")),
    ("huge input", lambda: model(HEADER + "g (float[9999999,9999999] x) => (float[4] y) { y = Relu(x) }"),
     "invalid_graph", ("'x'", "absurd")),
    ("huge fill", lambda: model(HEADER + BODY + """<int64[2] n = {9999999, 9999999}>
        { f = ConstantOfShape(n)  s = ReduceSum<keepdims=0>(f)  y = Add(x, s) }"""),
     "invalid_graph", ("absurd",)),
    ("sparse weights", sparse_constant, "unsupported_operator", ("'w'", "sparse")),
    ("custom operator", custom_operator, "unsupported_operator",
     ("TurboRelu", "ai.acme.npu", "act1", "unsupported")),
    ("invented operator", lambda: model(HEADER + BODY + "{ y = Sqquare(x) }"),
     "unsupported_operator", ("Sqquare",)),
    ("operator newer than the opset", lambda: model(HEADER + BODY + "{ y = Gelu(x) }"),
     "unsupported_operator", ("Gelu", "opset 20")),
    ("removed operator", lambda: model(HEADER + BODY + "{ y = Upsample(x) }"),
     "unsupported_operator", ("removed",)),
    ("opset 99", opset(99), "unsupported_opset", ("99", "opset")),
    ("opset 6", opset(6), "unsupported_opset", ("opset 6", "7")),
    ("contrib opset 99", opset(99, "com.microsoft"), "unsupported_opset", ("99", "com.microsoft")),
    ("file format", newer_file_format, "unsupported_opset", ("IR version",)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "code", "mentions"), [row[1:] for row in BAD_GRAPHS], ids=[r[0] for r in BAD_GRAPHS]
)
def test_a_bad_graph_is_refused_with_its_reason(
    tmp_path: Path, build: Callable[[], onnx.ModelProto], code: str, mentions: tuple[str, ...]
) -> None:
    error = refused(write(tmp_path, build().SerializeToString()))
    assert error.code == code
    for mention in mentions:
        assert mention in error.message


def test_the_oldest_and_the_newest_opset_are_read(tmp_path: Path) -> None:
    for version in (schemas.OLDEST_OPSET, schemas.newest_opset()):
        read(write(tmp_path, opset(version)().SerializeToString()))


def test_unsorted_nodes_functions_and_contrib_operators_are_sound(tmp_path: Path) -> None:
    sound = [
        HEADER + "g (float[4] x) => (float[4] y) { y = Relu(a)  a = Abs(x) }",
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
        "g (float[4] x) => (float[4] y) { y = com.microsoft.Gelu(x) }",
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]>'
        "g (float[4] x) => (float[4] y) { y = own.Double(x) }"
        '<domain: "own", opset_import: ["" : 17]> Double (a) => (b) { b = Add(a, a) }',
    ]
    for text in sound:
        read(write(tmp_path, model(text).SerializeToString()))


def external(location: str, *, offset: int = 0, length: int = 16) -> bytes:
    proto = model()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return proto.SerializeToString()


WEIGHTS = np.arange(4, dtype="<f4").tobytes()


def test_external_data_beside_the_model_or_in_a_folder_below_is_read(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    for location in ("w.bin", "weights/w.bin"):
        (tmp_path / location).write_bytes(WEIGHTS)
        parsed = read(write(tmp_path, external(location)))
        np.testing.assert_array_equal(parsed.graph.initializers["w"].const_value.numpy(), np.arange(4))


def test_a_relative_path_does_not_switch_the_checks_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, external("absent.bin"))
    assert refused(Path("model.onnx")).code == "external_data_missing"


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    error = refused(write(tmp_path, external("weights.bin")))
    assert error.code == "external_data_missing"
    assert "weights.bin" in error.message
    assert "missing" in error.message


@pytest.mark.parametrize(
    "location",
    ["/etc/hostname", "../secret.bin", "sub/../../secret.bin", "..\\secret.bin", "C:\\secret.bin", "", ".",
     "/proc/self/environ", "*/_ORT_MEM_ADDR_/*",
     "link.bin", "linked_folder/secret.bin", "hard.bin", "pipe.bin"],
)  # fmt: skip
def test_external_data_outside_the_model_folder_is_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(WEIGHTS)
    (folder / "link.bin").symlink_to(secret)
    (folder / "linked_folder").symlink_to(tmp_path)
    (folder / "hard.bin").hardlink_to(secret)
    os.mkfifo(folder / "pipe.bin")
    assert refused(write(folder, external(location))).code == "external_data_unsafe"


@pytest.mark.parametrize(("offset", "length"), [(4, 16), (0, 1 << 40), (0, 8), (1 << 62, 16)])
def test_external_data_out_of_the_bounds_of_its_file_is_refused(
    tmp_path: Path, offset: int, length: int
) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHTS)
    error = refused(write(tmp_path, external("w.bin", offset=offset, length=length)))
    assert error.code == "external_data_unsafe"
    assert "16 bytes" in error.message


def test_a_negative_offset_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHTS)
    error = refused(write(tmp_path, external("w.bin", offset=-4)))
    assert error.code == "external_data_unsafe"
    assert "offset" in error.message


def test_external_data_in_a_subgraph_is_checked(tmp_path: Path) -> None:
    proto = model(
        HEADER
        + """g (float[4] x, bool c) => (float[4] y) {
            y = If (c) <
                then_branch = t () => (float[4] t_out) {
                    k = Constant<value = float[4] {1,2,3,4}>()
                    t_out = Relu(k)
                },
                else_branch = e () => (float[4] e_out) { e_out = Relu(x) }
            >
        }"""
    )
    tensor = proto.graph.node[0].attribute[0].g.node[0].attribute[0].t
    tensor.CopyFrom(TensorProto(data_type=1, dims=[4], data_location=TensorProto.EXTERNAL))
    tensor.external_data.add(key="location", value="../secret.bin")
    assert refused(write(tmp_path, proto.SerializeToString())).code == "external_data_unsafe"


QLINEAR = HEADER + """g (uint8[1,4] x) => (uint8[1,4] y) <float s = {0.1}, uint8 z = {0}> {
    y = QLinearMatMul(x, s, z, x, s, z, s, z) }"""  # fmt: skip
CONTRIB = (
    '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    "g (float[1,4] x, uint8[4,4] w, float s) => (float[1,4] y) {"
    " y = com.microsoft.DynamicQuantizeMatMul(x, w, s) }"
)
IN_SUBGRAPH = HEADER + """g (uint8[4] x, bool c) => (float[4] y) <float s = {0.1}, uint8 z = {0}> {
    y = If (c) <
        then_branch = t () => (float[4] t_out) { t_out = DequantizeLinear(x, s, z) },
        else_branch = e () => (float[4] e_out) { e_out = Cast<to = 1>(x) }
    > }"""  # fmt: skip
LOOKS_ALIKE = (
    '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
    "g (float[4] x) => (float[4] y) { y = com.microsoft.QuickGelu(x) }"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CHAIN, False),
        (QDQ, True),
        (QLINEAR, True),
        (CONTRIB, True),
        (IN_SUBGRAPH, True),
        (LOOKS_ALIKE, False),
    ],
)
def test_quantized_operators_are_found_wherever_they_are(text: str, expected: bool) -> None:
    assert reading.is_quantized(ir.from_proto(model(text))) is expected


def roles(reference: str, candidate: str) -> list[str]:
    notices = reading.check_roles(
        ir.from_proto(model(reference)),
        ir.from_proto(model(candidate)),
        reference_path=Path("fp32.onnx"),
        candidate_path=Path("int8.onnx"),
    )
    return [notice.code for notice in notices]


def test_an_unquantized_candidate_is_a_warning_only() -> None:
    assert roles(CHAIN, QDQ) == []
    assert roles(CHAIN, CHAIN) == ["int8_not_quantized"]


@pytest.mark.parametrize(("candidate", "code"), [(CHAIN, "swapped_arguments"), (QDQ, "already_quantized")])
def test_a_quantized_reference_is_refused(candidate: str, code: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        roles(QDQ, candidate)
    assert caught.value.code == code


def shared_cases() -> list[Path]:
    shared = Path(os.environ.get("TEARLINE_SHARED", Path(__file__).parents[2].parent / "shared"))
    return sorted((shared / "cases" / "cases").glob("*/answer.json"))


@pytest.mark.skipif(not shared_cases(), reason="the case corpus is not beside the repository")
def test_the_case_corpus_is_judged_at_load_as_its_answers_say() -> None:
    for answer_file in shared_cases():
        required = json.loads(answer_file.read_text()).get("required_error") or {}
        is_load_error = required.get("stage") == "load"
        errors = []
        for name in ("fp32.onnx", "int8.onnx"):
            path = answer_file.parent / name
            try:
                if path.exists() or required.get("category") == "file_absent":
                    read(path)
            except ModelLoadError as error:
                errors.append(error)
        assert len(errors) == (1 if is_load_error else 0), answer_file
        for error in errors:
            assert error.code == required["category"], answer_file
            text = str(error).lower()
            for words in required["must_mention_one_of_each"]:
                assert any(word.lower() in text for word in words), (answer_file, words)
