"""The command line on a small network: every command, as a user calls it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

NETWORK = """
<ir_version: 8, opset_import: ["" : 13]>
network (float[N,3,16,16] image) => (float[N,4] scores)
<float[8,3,3,3] w0, float[8] b0, float[8,8,3,3] w1, float[8] b1, float[8,4] w2, float[4] b2>
{
  [conv0] c0 = Conv <pads = [1, 1, 1, 1]> (image, w0, b0)
  [relu0] r0 = Relu (c0)
  [conv1] c1 = Conv <pads = [1, 1, 1, 1]> (r0, w1, b1)
  [relu1] r1 = Relu (c1)
  [pool] p = GlobalAveragePool (r1)
  [flat] f = Flatten (p)
  [head] scores = Gemm (f, w2, b2)
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with ``fp32.onnx``, ``int8.onnx`` (one spoiled layer), ``data.npz`` and ``many.npz``."""
    folder = tmp_path_factory.mktemp("pair")
    rng = np.random.default_rng(7)
    shapes = {"w0": (8, 3, 3, 3), "b0": (8,), "w1": (8, 8, 3, 3), "b1": (8,), "w2": (8, 4), "b2": (4,)}
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    # One channel far louder than the others: with one weight scale for all, conv1 has no resolution left.
    weights["w1"][0] *= 400
    weights["w2"][0] = 0
    model = onnx.parser.parse_model(NETWORK)
    for name, values in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    onnx.save(model, folder / "fp32.onnx")
    samples = rng.normal(0, 1, (12, 3, 16, 16)).astype(np.float32)
    np.savez(folder / "data.npz", image=samples)
    np.savez(folder / "many.npz", image=np.tile(samples, (2000, 1, 1, 1)))
    done = tearline(
        "quantize",
        "fp32.onnx",
        "--data",
        "data.npz",
        "--per-tensor",
        "-o",
        "int8.onnx",
        "--json",
        "q.json",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return folder


def tearline(*args, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "workbench.cli", *map(str, args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )


LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
PAIR = ("fp32.onnx", "int8.onnx", "--data", "data.npz")


def test_quantize_writes_a_candidate_and_says_how(folder):
    said = json.loads((folder / "q.json").read_text())
    assert said["candidate"].endswith("int8.onnx")
    assert len(said["samples"]) == 12
    assert said["options"]["per_channel"] is False
    ops = {node.op_type for node in onnx.load(folder / "int8.onnx").graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= ops


def test_compare_writes_a_row_per_operator(folder):
    done = tearline("compare", *PAIR, "--fail-under", "-1", "--json", "compare.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    said = json.loads((folder / "compare.json").read_text())
    assert [row["node"] for row in said["layers"]] == [
        "conv0",
        "relu0",
        "conv1",
        "relu1",
        "pool",
        "flat",
        "head",
    ]
    assert said["coverage"] == 1.0
    assert said["samples"] == 12
    rows = {row["node"]: row for row in said["layers"]}
    assert "fallback_candidate" in rows["head"]["flags"]
    # The loud channel hides the dead ones in the whole tensor's numbers, not in the worst part's.
    assert rows["relu1"]["cosine"] > 0.99
    assert rows["relu1"]["worst_slice"]["sqnr_db"] < 5
    for node in ("relu0", "relu1", "head"):
        assert node in done.stdout


def test_compare_answers_no_when_an_operator_is_under_the_limit(folder):
    done = tearline(
        "compare", *PAIR, "--no-isolated", "--fail-under", "0.99", "--json", "no.json", cwd=folder
    )
    assert done.returncode == 1
    assert "below cosine 0.99" in done.stderr
    assert (folder / "no.json").exists()


def test_compare_without_a_candidate_makes_one(folder):
    done = tearline(
        "compare",
        "fp32.onnx",
        "--data",
        "data.npz",
        "--calibration",
        "data.npz",
        "--samples",
        "4",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert "4 samples" in done.stdout


def test_the_same_question_has_the_same_answer_with_one_worker_or_two(folder):
    answers = []
    for workers in (1, 2):
        done = tearline("compare", *PAIR, "--workers", workers, "--json", f"w{workers}.json", cwd=folder)
        assert done.returncode == 0, done.stderr
        answers.append((done.stdout, (folder / f"w{workers}.json").read_text()))
    assert answers[0] == answers[1]


def _spoil(folder: Path, name: str, data: bytes | None) -> str:
    if data is not None:
        (folder / name).write_bytes(data)
    return name


@pytest.mark.parametrize(
    ("command", "role", "name", "make", "code"),
    [
        ("compare", "candidate", "no.onnx", lambda good: None, "file_absent"),
        ("compare", "candidate", "lfs.onnx", lambda good: LFS_POINTER, "not_a_model"),
        ("compare", "candidate", "cut.onnx", lambda good: good[: len(good) // 2], "truncated_model"),
        ("bisect", "reference", "int8.onnx", lambda good: None, "already_quantized"),
        ("compare", "data", "nothing.npz", lambda good: None, "file_absent"),
        ("compare", "data", "text.npz", lambda good: b"hello", "malformed_inputs"),
        ("diagnose", "candidate", "no.onnx", lambda good: None, "file_absent"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_exit_2_and_no_file(folder, command, role, name, make, code):
    (folder / "bad.json").unlink(missing_ok=True)
    name = _spoil(folder, name, make((folder / "int8.onnx").read_bytes()))
    files = {"reference": "fp32.onnx", "candidate": "int8.onnx", "data": "data.npz"} | {role: name}
    done = tearline(
        command,
        files["reference"],
        files["candidate"],
        "--data",
        files["data"],
        "--json",
        "bad.json",
        cwd=folder,
    )
    assert (done.returncode, done.stdout) == (2, "")
    errors = [line for line in done.stderr.splitlines() if line.startswith("error[")]
    assert len(errors) == 1
    assert errors[0].startswith(f"error[{code}]: ")
    assert "Traceback" not in done.stderr
    assert not (folder / "bad.json").exists()


LONG_COMPARE = ("compare", "fp32.onnx", "int8.onnx", "--data", "many.npz", "--json", "answer.json")


def _start_long_compare(folder: Path) -> tuple[subprocess.Popen[str], Path]:
    workspace = folder / f"ws-{time.time_ns()}"
    workspace.mkdir()
    running = subprocess.Popen(
        [sys.executable, "-m", "workbench.cli", *LONG_COMPARE, "--workspace", str(workspace)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not any('"compare"' in p.read_text() for p in workspace.glob("runs/*/events.jsonl")):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    [run] = workspace.glob("runs/*")
    return running, run


def test_a_killed_worker_is_an_error_line(folder):
    running, run = _start_long_compare(folder)
    os.kill(json.loads((run / "worker.json").read_text())["pid"], signal.SIGKILL)
    out, err = running.communicate(timeout=30)
    assert (running.returncode, out) == (2, "")
    assert err.splitlines()[-1].startswith(
        "error[worker_crashed]: The worker was killed from outside during 'compare'"
    )
    assert not (folder / "answer.json").exists()


def test_ctrl_c_cancels_within_a_second(folder):
    running, run = _start_long_compare(folder)
    began = time.monotonic()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=30)
    # A second on a machine that has nothing else to do; the comparison itself takes far longer.
    assert time.monotonic() - began < 8
    assert (running.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert json.loads((run / "status.json").read_text())["state"] == "cancelled"
    assert not (folder / "answer.json").exists()


def test_the_demo_goes_the_whole_way(tmp_path):
    # Few pictures and a target that the candidate meets: every part runs, none of them for long.
    done = tearline("demo", "--samples", "3", "--max-drop", "0.9", "--json", "demo.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads((tmp_path / "demo.json").read_text())
    assert set(said) == {"compare", "bisect", "search", "export"}
    assert said["compare"]["coverage"] > 0.9
    assert said["bisect"]["steps"]
    assert said["search"]["reached"] is True
    [exported] = said["export"]["files"]
    assert Path(exported).is_file()
    commands = [line for line in done.stdout.splitlines() if line.startswith("$ tearline ")]
    assert [line.split()[2] for line in commands] == ["compare", "bisect", "search", "export"]


def test_a_search_is_exported_and_read_back(folder):
    done = tearline(
        "search", *PAIR, "--metric", "slice-sqnr", "--target", "15", "--json", "search.json", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    said = json.loads((folder / "search.json").read_text())
    assert said["reached"] is True
    assert "conv1" in said["fallback"]
    assert said["score"] >= 15 > said["candidate_score"]
    for name in ("onnx", "markdown"):
        done = tearline("export", "search.json", "--format", name, "-o", f"out-{name}", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert f"out of INT8, as read back: {', '.join(said['fallback'])}" in done.stdout
        assert (folder / f"out-{name}").is_file()


def test_a_target_out_of_reach_is_exit_1_with_an_answer(folder):
    done = tearline("search", *PAIR, "--metric", "sqnr", "--target", "190", "--json", "far.json", cwd=folder)
    assert done.returncode == 1, done.stderr
    assert "NOT reached" in done.stdout
    assert json.loads((folder / "far.json").read_text())["reached"] is False


def test_diagnose_blames_the_spoiled_layer_and_says_no(folder):
    done = tearline("diagnose", *PAIR, "--calibration", "data.npz", "--json", "why.json", cwd=folder)
    assert done.returncode == 1, done.stderr
    said = json.loads((folder / "why.json").read_text())
    assert said["verdict"] == "faulty_layers"
    first = said["findings"][0]
    assert first["layers"] == ["conv1"]
    assert first["gain"]["after"] > said["threshold_db"] > first["gain"]["before"]
    assert {"cause", "severity", "evidence", "fix"} <= set(first)
    assert "found" in [c["result"] for c in said["checked"]]
    assert done.stdout.startswith("verdict: faulty_layers")
    assert first["cause"] in done.stdout


def test_diagnose_of_a_healthy_candidate_is_exit_0(folder):
    model = onnx.load(folder / "fp32.onnx")
    loud = next(t for t in model.graph.initializer if t.name == "w1")
    values = onnx.numpy_helper.to_array(loud).copy()
    values[0] /= 400
    loud.CopyFrom(onnx.numpy_helper.from_array(values, "w1"))
    onnx.save(model, folder / "even.onnx")
    done = tearline("diagnose", "even.onnx", "--data", "data.npz", "--calibration", "data.npz", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("verdict: healthy")


def test_bisect_finds_the_spoiled_layer(folder):
    done = tearline("bisect", *PAIR, "--json", "bisect.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    said = json.loads((folder / "bisect.json").read_text())
    assert [c["layer"] for c in said["culprits"]][:1] == ["conv1"]
    assert "culprit: conv1" in done.stdout
