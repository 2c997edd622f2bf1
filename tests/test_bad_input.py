"""What bad input gets, through the engine's front door; the table itself is docs/errors.md."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, numpy_helper

from analyzers import api
from analyzers.errors import InputError
from analyzers.quantizing import quantize
from analyzers.records import Inputs, QuantizeOptions
from analyzers.samples import open_samples
from analyzers.steps import finish
from workbench.cli import run

ROOT = Path(__file__).resolve().parent.parent
SIZE = (1, 3, 8, 8)


def network(text_of_body: str = "h = Conv<pads=[1,1,1,1]>(x, w)  y = Relu(h)") -> onnx.ModelProto:
    proto = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 13]>'
        f" g (float[1,3,8,8] x) => (float[1,4,8,8] y) {{ {text_of_body} }}"
    )
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return proto


def noise(count: int = 3, shape: tuple[int, ...] = SIZE) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {f"s{i:03}::x": random.normal(size=shape).astype(np.float32) for i in range(count)}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a reference, its candidate, tensors and images that all suit each other."""
    folder = tmp_path_factory.mktemp("sound")
    onnx.save_model(network(), folder / "fp32.onnx")
    np.savez(folder / "data.npz", **noise())
    model_inputs = api.opening.graph.read_model(folder / "fp32.onnx").inputs
    samples = open_samples(folder / "data.npz", model_inputs)
    finish(quantize(folder / "fp32.onnx", samples, QuantizeOptions(), folder / "int8.onnx"))
    (folder / "images").mkdir()
    pixels = np.random.default_rng(2).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    for name in ("a.png", "b.png"):
        cv2.imwrite(str(folder / "images" / name), pixels)
    (folder / "task.yaml").write_text(
        "preprocess: {resize: stretch}\n"
        "decoder: {name: in_graph_nms, output: y}\n"
        "metric: ap\ncategories: [1, 2]\n"
    )
    return folder


class Case:
    """The sound folder's paths, to spoil one of them in a folder of the test's own."""

    def __init__(self, sound: Path, folder: Path) -> None:
        self.sound, self.folder = sound, folder
        self.inputs = {
            "reference": sound / "fp32.onnx",
            "candidate": sound / "int8.onnx",
            "data": sound / "data.npz",
        }

    def write(self, role: str, name: str, content: bytes) -> None:
        path = self.folder / name
        path.write_bytes(content)
        self.inputs[role] = path

    def model(self, role: str, proto: onnx.ModelProto) -> None:
        self.write(role, f"{role}.onnx", proto.SerializeToString())

    def tensors(self, arrays: dict[str, np.ndarray], role: str = "data") -> None:
        path = self.folder / f"{role}.npz"
        np.savez(path, **arrays)
        self.inputs[role] = path

    def images(self) -> None:
        self.inputs["data"], self.inputs["task"] = self.sound / "images", self.sound / "task.yaml"

    def annotate(self, **changes: object) -> None:
        """Annotate the images, with some keys of the first image or annotation changed."""
        self.images()
        image = {"id": 1, "file_name": "a.png", "width": 8, "height": 8}
        box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 4, 4], "area": 16}
        for key, value in changes.items():
            (image if key in image else box)[key] = value
        coco = {
            "images": [image],
            "annotations": [box],
            "categories": [{"id": i, "name": str(i)} for i in (1, 2, 7)],
        }
        self.write("annotations", "coco.json", json.dumps(coco).encode())

    def ask(self) -> None:
        candidate = None if "calibration" in self.inputs else self.inputs["candidate"]
        given = {k: v for k, v in self.inputs.items() if k != "candidate"}
        api.compare(Inputs(candidate=candidate, workspace=self.folder / "ws", **given))


def custom(case: Case) -> None:
    proto = network("h = Conv<pads=[1,1,1,1]>(x, w)  y = acme.npu.TurboRelu(h)")
    proto.opset_import.add(domain="acme.npu", version=1)
    case.model("candidate", proto)


def opset(case: Case, version: int) -> None:
    proto = network()
    proto.opset_import[0].version = version
    case.model("reference", proto)


def external(case: Case, location: str) -> None:
    proto = network()
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].data_location = TensorProto.EXTERNAL
    proto.graph.initializer[0].external_data.add(key="location", value=location)
    case.model("reference", proto)


def unrelated(case: Case) -> None:
    other = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 13]> g (float[5,7] tokens) => (float[5,9] logits)'
        " <float s = {0.1}, uint8 z = {0}> { q = QuantizeLinear(tokens, s, z)  d = DequantizeLinear(q, s, z)"
        "  logits = MatMul(d, v) }"
    )
    other.graph.initializer.append(numpy_helper.from_array(np.ones((7, 9), np.float32), "v"))
    case.model("candidate", other)


def swapped(case: Case) -> None:
    reference, candidate = case.inputs["reference"], case.inputs["candidate"]
    case.inputs |= {"reference": candidate, "candidate": reference}


def dynamic(case: Case) -> None:
    proto = network()
    for axis in (2, 3):
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    case.model("reference", proto)
    case.inputs["data"] = case.sound / "images"


def damaged_image(case: Case) -> None:
    case.annotate()
    folder = case.folder / "images"
    folder.mkdir()
    (folder / "a.png").write_bytes((case.sound / "images" / "a.png").read_bytes()[:40])
    case.inputs["data"] = folder


def nan_calibration(case: Case) -> None:
    case.tensors({name: np.full_like(a, np.nan) for name, a in noise().items()}, "calibration")


Spoil = Callable[[Case], object]
GIT_LFS = b"version https://git-lfs.github.com/spec/v1\n"
ROWS: list[tuple[str, Spoil, str, tuple[str, ...]]] = [
    ("a Git-LFS pointer", lambda c: c.write("candidate", "int8.onnx", GIT_LFS),
     "not_a_model", ("LFS", "git lfs pull")),
    ("a .pt", lambda c: c.write("reference", "m.pt", b"\x80\x02}q\x00."),
     "not_a_model", ("torch.onnx.export",)),
    ("a .rknn", lambda c: c.write("candidate", "m.rknn", b"RKNN\0\0\0\0"),
     "not_a_model", ("RKNN", "built from")),
    ("an .engine", lambda c: c.write("candidate", "m.engine", b"ftrt\0\0"),
     "not_a_model", ("TensorRT", "built from")),
    ("a .tflite", lambda c: c.write("candidate", "m.tflite", b"\x1c\0\0\0TFL3"), "not_a_model", ("tf2onnx",)),
    ("no such file", lambda c: c.inputs.update(candidate=c.folder / "no.onnx"), "file_absent", ("no.onnx",)),
    ("a truncated model", lambda c: c.write("reference", "r.onnx", network().SerializeToString()[:-99]),
     "truncated_model", ("truncated", "Fetch")),
    ("random bytes", lambda c: c.write("reference", "r.onnx", b"\xd9\x83\x82" * 99),
     "malformed_model", ("damaged",)),
    ("external data missing", lambda c: external(c, "w.bin"), "external_data_missing", ("w.bin", "missing")),
    ("external data outside", lambda c: external(c, "../w.bin"), "external_data_unsafe", ("../w.bin",)),
    ("a custom operator", custom, "unsupported_operator", ("TurboRelu", "acme.npu")),
    ("an opset of the future", lambda c: opset(c, 99), "unsupported_opset", ("opset 99",)),
    ("an opset of the past", lambda c: opset(c, 5), "unsupported_opset", ("opset 5",)),
    ("a tensor that nobody makes", lambda c: c.model("reference", network("y = Conv<pads=[1,1,1,1]>(no, w)")),
     "invalid_graph", ("'no'", "undefined")),
    ("swapped models", swapped, "swapped_arguments", ("swapped", "fp32.onnx first")),
    ("a quantized reference", lambda c: c.inputs.update(reference=c.sound / "int8.onnx"),
     "already_quantized", ("already quantized", "FP32")),
    ("unrelated models", unrelated, "unrelated_models", ()),
    ("neither candidate nor calibration", lambda c: c.inputs.update(candidate=None),
     "candidate_missing", ("calibration",)),
    ("another input name", lambda c: c.tensors({"s000::img": noise()["s000::x"]}),
     "wrong_input_name", ("img", "'x'")),
    ("an array too many", lambda c: c.tensors({"s000::z": np.zeros(1), **noise()}),
     "wrong_input_name", ("'z'",)),
    ("another layout", lambda c: c.tensors(noise(shape=(1, 8, 8, 3))),
     "wrong_shape", ("(1, 8, 8, 3)", "NHWC")),
    ("another dtype", lambda c: c.tensors({k: a.astype(np.float64) for k, a in noise().items()}),
     "wrong_dtype", ("float64", "float32")),
    ("no samples", lambda c: c.tensors({}), "zero_samples", ("no sample",)),
    ("no calibration samples", lambda c: c.tensors({}, "calibration"), "calibration_empty", ("no sample",)),
    ("NaN in all calibration samples", nan_calibration, "nan_in_calibration", ("NaN", "s000")),
    ("object arrays", lambda c: c.tensors({"s000::x": np.array([{}], object)}),
     "unsafe_npz", ("object array",)),
    ("dynamic height and width without a task", dynamic, "dynamic_size", ("'x'", "task file")),
    ("images without a task", lambda c: c.inputs.update(data=c.sound / "images"),
     "task_missing", ("--task",)),
    ("annotations of other images", lambda c: c.annotate(file_name="z.png"),
     "annotations_match_no_image", ("z.png", "a.png")),
    ("a category that is not listed", lambda c: c.annotate(category_id=9), "category_unknown", ("9",)),
    ("a category outside the task's classes", lambda c: c.annotate(category_id=7),
     "category_unknown", ("7", "outside the task's classes")),
    ("annotations that are no COCO json", lambda c: (c.images(), c.write("annotations", "c.json", b"[]")),
     "malformed_annotations", ("'images'",)),
    ("an unreadable image", damaged_image, "unreadable_image", ("a.png",)),
    ("annotations of an image as it is not shown", lambda c: c.annotate(width=16),
     "image_size_differs", ("8 x 8",)),
    ("a decoder for another head", lambda c: c.annotate(), "wrong_output_shape", ("(1, 4, 8, 8)",)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "code", "mentions"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_bad_input_gets_its_code_and_says_what_to_do(
    sound: Path, tmp_path: Path, spoil: Spoil, code: str, mentions: tuple[str, ...]
) -> None:
    case = Case(sound, tmp_path)
    spoil(case)
    with pytest.raises(InputError) as caught:
        case.ask()
    assert caught.value.code == code
    for mention in mentions:
        assert mention in str(caught.value)
    assert "\n" not in str(caught.value)
    assert f"`{code}`" in (ROOT / "docs/errors.md").read_text()


WARNED: list[tuple[str, Spoil, str, tuple[str, ...]]] = [
    ("a candidate that is not quantized", lambda c: c.inputs.update(candidate=c.sound / "fp32.onnx"),
     "int8_not_quantized", ("not quantized",)),
    ("NaN in a sample", lambda c: c.tensors(noise() | {"s001::x": np.full(SIZE, np.nan, np.float32)}),
     "nan_in_inputs", ("s001", "'x'")),
    ("NaN in a calibration sample",
     lambda c: c.tensors(noise() | {"s001::x": np.full(SIZE, np.inf, np.float32)}, "calibration"),
     "nan_in_calibration", ("s001", "'x'")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "code", "mentions"), [row[1:] for row in WARNED], ids=[row[0] for row in WARNED]
)
def test_doubtful_input_is_warned_of_and_answered(
    sound: Path, tmp_path: Path, spoil: Spoil, code: str, mentions: tuple[str, ...]
) -> None:
    case = Case(sound, tmp_path)
    spoil(case)
    candidate = None if "calibration" in case.inputs else case.inputs["candidate"]
    given = {k: v for k, v in case.inputs.items() if k != "candidate"}
    inputs = Inputs(candidate=candidate, workspace=tmp_path / "ws", **given)
    found = api.compare(inputs)
    [message] = [warning.message for warning in found.warnings if warning.code == code]
    for mention in mentions:
        assert mention in message
    assert found.layers
    # A candidate that was made before is taken again, with its warnings.
    assert api.compare(inputs).warnings == found.warnings
    assert f"`{code}`" in (ROOT / "docs/errors.md").read_text()


def test_an_answer_that_cannot_be_written_is_refused_before_anything_runs(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(sound / name) for name in ("fp32.onnx", "int8.onnx")]
    target = tmp_path / "absent" / "answer.json"
    options = ["--data", str(sound / "data.npz"), "--json", str(target), "--workspace", str(tmp_path / "ws")]
    assert run(["compare", *paths, *options]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error[output_not_writable]: ")
    assert str(target) in line
    assert not (tmp_path / "ws").exists()


def codes_in_the_code() -> set[str]:
    """Collect what errors and notices are made with: the first argument that is a code."""
    found: set[str] = set()
    for path in [*(ROOT / "analyzers").rglob("*.py"), *(ROOT / "workbench").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if not re.search(r"(?i)(error|notice)$", name):
                continue
            words = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "code")]
            chosen = [e for w in words for e in ((w.body, w.orelse) if isinstance(w, ast.IfExp) else (w,))]
            found |= {w.value for w in chosen if isinstance(w, ast.Constant) and isinstance(w.value, str)}
    return {code for code in found if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", code)}


def test_every_code_is_in_the_table_and_every_row_exists() -> None:
    rows = re.findall(r"^\|[^|]*\| `([a-z0-9_]+)` \|", (ROOT / "docs/errors.md").read_text(), re.MULTILINE)
    codes = codes_in_the_code()
    assert len(codes) > 40
    assert codes - set(rows) == set()
    assert set(rows) - codes == set()
