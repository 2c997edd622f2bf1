"""Task files: what is read, and what is refused with the key's name."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from analyzers.errors import TaskError
from analyzers.tasks.decoders.ssd import Ssd
from analyzers.tasks.decoders.yolox import Yolox
from analyzers.tasks.decoders.yunet import YuNet
from analyzers.tasks.metrics.average_precision import ApOptions
from analyzers.tasks.metrics.topk import TopKOptions
from analyzers.tasks.preprocess import Preprocess
from analyzers.tasks.task import decoder_kinds, metric_kinds, read_task

SHIPPED = Path(__file__).parents[3] / "sample_models" / "tasks"


def write(folder: Path, text: str) -> Path:
    path = folder / "task.yaml"
    path.write_text(text)
    return path


def error_of(path: Path, *, allow_code: bool = False) -> TaskError:
    with pytest.raises(TaskError) as caught:
        read_task(path, allow_code=allow_code)
    return caught.value


def test_a_task_file_becomes_records(tmp_path: Path) -> None:
    task = read_task(
        write(
            tmp_path,
            """
            preprocess:
              size: [320, 416]
              resize: letterbox
              placement: top-left
              mean: [1, 2.5, 3]
              std: 2
              channels: BGR
            decoder: {name: yolox, classes: 7, strides: [8, 16], score_threshold: 0.1}
            metric: {name: topk, k: 5}
            categories: [3, 1, 2]
            """,
        )
    )
    assert task.name == "task"
    assert task.preprocess == Preprocess(
        size=(320, 416),
        resize="letterbox",
        placement="top-left",
        mean=(1.0, 2.5, 3.0),
        std=(2.0,),
        channels="BGR",
    )
    assert task.decoder == Yolox(classes=7, strides=(8, 16), score_threshold=0.1)
    assert task.metric == TopKOptions(k=5)
    assert task.categories == ((0, 3), (1, 1), (2, 2))


def test_a_name_alone_takes_all_defaults(tmp_path: Path) -> None:
    task = read_task(write(tmp_path, "decoder: yunet\nmetric: ap\ncategories: {2: 5, 0: 9}\n"))
    assert task.decoder == YuNet()
    assert task.metric == ApOptions()
    assert task.categories == ((0, 9), (2, 5))
    assert task.preprocess is None


@pytest.mark.parametrize(
    ("text", "key", "neighbour"),
    [
        ("preproces: {}", "preproces", "preprocess"),
        ("preprocess: {meen: 1}", "preprocess.meen", "mean"),
        ("decoder: {name: yolox, stride: [8]}", "decoder.stride", "strides"),
        ("decoder: {name: ultraface, strides: [8]}", "decoder.strides", "nms_iou"),
        ("decoder: yolx", "decoder.name", "yolox"),
        ("decoder: {name: [yolox]}", "decoder.name", "yolox"),
        ("metric: {name: topk, n: 1}", "metric.n", "output"),
        ("metric: mAP", "metric.name", "slice-sqnr"),
        ("preprocess: {resize: leterbox}", "preprocess.resize", "letterbox"),
    ],
)
def test_an_unknown_word_is_named_with_its_neighbours(
    tmp_path: Path, text: str, key: str, neighbour: str
) -> None:
    error = error_of(write(tmp_path, text))
    assert error.code == "malformed_task"
    assert key in error.message
    assert neighbour in error.hint


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("preprocess: {size: 320}", "2 values"),
        ("preprocess: {size: [320, 3.5]}", "whole number"),
        ("preprocess: {scale: big}", "number"),
        ("preprocess: {scale: .nan}", "finite"),
        ("preprocess: {scale: true}", "number"),
        ("preprocess: {mean: []}", "at least one"),
        ("preprocess: [1]", "mapping"),
        ("preprocess: {1: 2}", "no text"),
        ("decoder: {name: yolox, score_threshold: 2}", "score_threshold"),
        ("decoder: {name: yolox, strides: [0]}", "strides"),
        ("decoder: {name: in_graph_nms, columns: [x1, x9]}", "columns"),
        ("decoder: {name: ssd}", "priors"),
        ("decoder: {name: ssd, priors_file: absent.npy}", "absent.npy"),
        ("decoder: {name: ssd, priors_file: ../priors.npy}", "leaves the folder"),
        ("metric: {name: topk, k: 0}", "'k'"),
        ("categories: [1, 1]", "two classes"),
        ("categories: [a]", "whole number"),
        ("categories: {}", "categories"),
        ("name: 3", "'name'"),
        ("[1, 2", "cannot be read"),
        ("just text", "mapping"),
        ("", "mapping"),
        ("a: 2001-99-99", "cannot be read"),
        ("!!python/object/apply:os.getcwd []", "cannot be read"),
        ("[" * 5000, "cannot be read"),
    ],
)
def test_a_malformed_file_says_where(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "sub").mkdir()
    np.save(tmp_path / "priors.npy", np.zeros((2, 4)))
    error = error_of(write(tmp_path / "sub", text))
    assert error.code == "malformed_task"
    assert says in error.message
    assert "task.yaml" in error.where


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    assert error_of(tmp_path / "absent.yaml").code == "file_absent"
    (tmp_path / "task.yaml").write_bytes(b"\xff\xfe\x00")
    assert error_of(tmp_path / "task.yaml").code == "malformed_task"
    assert error_of(tmp_path).code == "malformed_task"


def test_code_runs_only_where_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('ran').touch()\ndef decode(outputs, image): ...\n"
    )
    for text in ("decoder: mine.py:decode", "decoder: {name: 'mine.py:decode'}", "metric: mine.py:decode"):
        path = write(tmp_path, text)
        assert error_of(path).code == "code_not_allowed"
        assert not (tmp_path / "ran").exists()
        read_task(path, allow_code=True)
        assert (tmp_path / "ran").exists()
        (tmp_path / "ran").unlink()
        os.utime(tmp_path / "mine.py")
        (tmp_path / "mine.py").write_text((tmp_path / "mine.py").read_text() + "\n")


@pytest.mark.parametrize(
    ("code", "says"),
    [("x = 1", "no function 'decode'"), ("1 / 0", "ZeroDivisionError"), ("def (", "SyntaxError")],
)
def test_code_that_does_not_run_says_why(tmp_path: Path, code: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(code)
    error = error_of(write(tmp_path, "decoder: mine.py:decode"), allow_code=True)
    assert error.code == "user_code_failed"
    assert says in error.message
    assert error_of(write(tmp_path, "decoder: other.py:decode"), allow_code=True).code == "file_absent"


def test_the_digest_follows_the_file_and_what_it_names(tmp_path: Path) -> None:
    np.save(tmp_path / "priors.npy", np.zeros((2, 4)))
    path = write(tmp_path, "decoder: {name: ssd, priors_file: priors.npy}\n")
    first = read_task(path)
    assert isinstance(first.decoder, Ssd)
    digests = {first.digest}
    np.save(tmp_path / "priors.npy", np.ones((2, 4)))
    digests.add(read_task(path).digest)
    path.write_text(path.read_text() + "name: other\n")
    digests.add(read_task(path).digest)
    (tmp_path / "mine.py").write_text("def f(outputs, image): return []\n")
    path.write_text("decoder: mine.py:f\n")
    digests.add(read_task(path, allow_code=True).digest)
    (tmp_path / "mine.py").write_text("def f(outputs, image): return [[]]\n")
    digests.add(read_task(path, allow_code=True).digest)
    assert len(digests) == 5


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda p: p.stem)
def test_the_shipped_task_files_are_read(path: Path) -> None:
    assert read_task(path).name


def test_every_decoder_and_metric_has_its_file_and_documented_options() -> None:
    assert {"yolox", "yolov8", "ssd", "ultraface", "yunet", "in_graph_nms"} <= set(decoder_kinds())
    assert {"ap", "topk", "sqnr", "slice-sqnr"} <= set(metric_kinds())
    for kind in (*decoder_kinds().values(), *metric_kinds().values()):
        for name in getattr(kind.options, "__dataclass_fields__", {}):
            assert f"{name}:" in (kind.options.__doc__ or ""), f"{kind.name}.{name} is not documented"


def test_the_guide_names_every_decoder_metric_and_option() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "task-files.md").read_text(encoding="utf-8")
    options = [Preprocess, *(k.options for k in (*decoder_kinds().values(), *metric_kinds().values()))]
    for name in (*decoder_kinds(), *metric_kinds()):
        assert f"`{name}`" in guide
    for kind in options:
        for field in getattr(kind, "__dataclass_fields__", {}):
            assert field in guide, f"{kind.__name__}.{field} is not in the guide"


def test_the_example_of_the_guide_is_a_task_file(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "task-files.md").read_text(encoding="utf-8")
    task = read_task(write(tmp_path, guide.split("```yaml\n")[1].split("```")[0]))
    assert task.decoder == Yolox(classes=80, score_threshold=0.005, nms_iou=0.65)
