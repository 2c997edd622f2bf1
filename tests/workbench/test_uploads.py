from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from analyzers.errors import InputError
from workbench.store import Workspace, open_workspace
from workbench.uploads import (
    DATA_ROOT_VARIABLE,
    Staged,
    data_root,
    list_local,
    local_file,
    stage_file,
    stage_model,
    stage_set,
)


class Sent(io.BytesIO):
    """What a browser sent."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(data)
        self.name = name
        self.size = len(data)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return open_workspace(tmp_path / "ws")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("yolox_nano.onnx", "yolox_nano.onnx"),
        ("../../etc/my model.onnx", "my_model.onnx"),
        ("C:\\nets\\a.ONNX", "a.onnx"),
        ("/etc/passwd/.onnx", "onnx.onnx"),
        ("-o x;$(rm).onnx", "o_x_rm.onnx"),
        ("猫\n.onnx", "model.onnx"),
        (f"{'x' * 300}.onnx", f"{'x' * 80}.onnx"),
    ],
)
def test_a_model_lies_in_a_folder_of_its_own_under_a_harmless_name(
    sent: str, kept: str, workspace: Workspace
) -> None:
    staged = stage_model(workspace, [Sent(sent, b"onnx")])
    assert staged.path.name == kept
    assert staged.path.parent.parent == workspace.uploads
    assert staged.path.read_bytes() == b"onnx"
    assert staged.label == sent
    assert [p.name for p in staged.path.parent.iterdir()] == [kept]


def test_the_same_files_are_kept_once(workspace: Workspace) -> None:
    one = stage_model(workspace, [Sent("a.onnx", b"onnx")])
    two = stage_model(workspace, [Sent("a.onnx", b"onnx")])
    other = stage_model(workspace, [Sent("a.onnx", b"other")])
    assert one.path == two.path
    assert other.path != one.path


def test_external_data_lies_beside_the_model_under_its_own_name(workspace: Workspace) -> None:
    staged = stage_model(workspace, [Sent("m.onnx.data", b"w"), Sent("m.onnx", b"onnx")])
    assert (staged.path.parent / "m.onnx.data").read_bytes() == b"w"
    assert staged.size_bytes == 5


def test_external_data_may_come_later(workspace: Workspace) -> None:
    known = stage_model(workspace, [Sent("m.onnx", b"onnx")])
    whole = stage_model(workspace, [Sent("w.bin", b"w")], known=known)
    assert whole.label == "m.onnx"
    assert {p.name for p in whole.path.parent.iterdir()} == {"m.onnx", "w.bin"}
    more = stage_model(workspace, [Sent("v.bin", b"v")], known=whole)
    assert {p.name for p in more.path.parent.iterdir()} == {"m.onnx", "w.bin", "v.bin"}
    assert {p.name for p in known.path.parent.iterdir()} == {"m.onnx"}


@pytest.mark.parametrize(
    "names", [["a.onnx", "b.onnx"], ["weights.bin"], ["a.onnx", "../.bashrc"], ["a.onnx", "x\0y"]]
)
def test_anything_else_than_one_model_and_plain_names_is_refused(
    names: list[str], workspace: Workspace
) -> None:
    with pytest.raises(InputError):
        stage_model(workspace, [Sent(n, b"x") for n in names])
    assert list(workspace.uploads.iterdir()) == []


def test_an_empty_file_is_refused(workspace: Workspace) -> None:
    with pytest.raises(InputError, match="empty"):
        stage_model(workspace, [Sent("a.onnx", b"")])
    assert list(workspace.uploads.iterdir()) == []


def test_weights_cannot_take_the_place_of_the_model(workspace: Workspace) -> None:
    known = stage_model(workspace, [Sent("m.onnx", b"onnx")])
    staged = stage_model(workspace, [Sent("model.onnx", b"new")], known=known)
    assert staged.path.read_bytes() == b"new"
    assert known.path.read_bytes() == b"onnx"


def test_images_become_a_folder(workspace: Workspace) -> None:
    staged = stage_set(workspace, [Sent("val/a.png", b"1"), Sent("val/b.jpg", b"2"), Sent("notes.txt", b"3")])
    assert sorted(str(p.relative_to(staged.path)) for p in staged.path.rglob("*.*")) == [
        "val/a.png",
        "val/b.jpg",
    ]
    assert staged.label == "2 files"


def test_one_npz_stays_a_file_and_several_are_a_folder(workspace: Workspace) -> None:
    assert stage_set(workspace, [Sent("in.npz", b"1")]).path.name == "in.npz"
    assert stage_set(workspace, [Sent("a.npz", b"1"), Sent("b.npz", b"2")]).path.is_dir()


def test_a_zip_brings_its_images_and_its_annotations(workspace: Workspace) -> None:
    staged = stage_set(workspace, [_zip({"val/a.png": b"1", "val/b.png": b"2", "coco.json": b"{}"})])
    assert staged.label == "val.zip"
    assert sorted(p.name for p in staged.path.rglob("*.*")) == ["a.png", "b.png"]
    assert staged.annotations is not None
    assert staged.annotations.read_bytes() == b"{}"
    again = stage_set(workspace, [_zip({"val/a.png": b"1", "val/b.png": b"2", "coco.json": b"{}"})])
    assert again == staged


def test_of_two_json_files_neither_is_guessed_to_be_the_annotations(workspace: Workspace) -> None:
    staged = stage_set(workspace, [_zip({"a.png": b"1", "x.json": b"{}", "y.json": b"{}"})])
    assert staged.annotations is None


@pytest.mark.parametrize(
    "files",
    [{"only.json": b"{}"}, {"../a.png": b"1"}, {"readme.txt": b"1"}],
    ids=["no samples", "escape", "no images"],
)
def test_a_bad_zip_leaves_nothing_behind(files: dict[str, bytes], workspace: Workspace) -> None:
    with pytest.raises(InputError):
        stage_set(workspace, [_zip(files)])
    assert not list(workspace.uploads.rglob("*.png"))
    assert not [p for p in workspace.uploads.iterdir() if p.name.startswith(".incoming")]


@pytest.mark.parametrize("name", ["../a.png", "/etc/a.png", "C:\\a.png", "a\n.png"])
def test_an_image_whose_name_is_a_path_elsewhere_is_refused(name: str, workspace: Workspace) -> None:
    with pytest.raises(InputError):
        stage_set(workspace, [Sent(name, b"1")])


def test_files_that_are_no_samples_are_refused(workspace: Workspace) -> None:
    with pytest.raises(InputError) as caught:
        stage_set(workspace, [Sent("a.exe", b"1")])
    assert caught.value.code == "zero_samples"


def test_a_task_keeps_the_files_that_it_names_beside_it(workspace: Workspace) -> None:
    staged = stage_file(workspace, [Sent("my.yaml", b"name: x"), Sent("priors.npy", b"1")], "task")
    assert staged.path.name == "task.yaml"
    assert staged.label == "my.yaml"
    assert (staged.path.parent / "priors.npy").exists()


def test_a_task_needs_its_yaml(workspace: Workspace) -> None:
    with pytest.raises(InputError):
        stage_file(workspace, [Sent("priors.npy", b"1")], "task")


def test_nothing_is_staged_without_files(workspace: Workspace) -> None:
    with pytest.raises(InputError):
        stage_set(workspace, [])


def test_paths_below_the_permitted_folder_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "sub" / "m.onnx").write_bytes(b"onnx")
    root = (tmp_path / "root").resolve()
    assert local_file("sub/m.onnx", root) == Staged(root / "sub" / "m.onnx", "sub/m.onnx", 4)
    assert local_file(str(root / "sub" / "m.onnx"), root).label == "sub/m.onnx"


@pytest.mark.parametrize("text", ["../secret", "/etc/passwd", "sub/../../secret", "link"])
def test_paths_that_lead_out_of_it_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (tmp_path / "root" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError) as caught:
        local_file(text, (tmp_path / "root").resolve())
    assert caught.value.code == "path_outside"


def test_an_absent_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        local_file("no.onnx", tmp_path.resolve())
    assert caught.value.code == "file_absent"


def test_what_may_be_meant_is_listed(tmp_path: Path) -> None:
    for name in (
        "a/m.onnx",
        "a/b/n.onnx",
        "pics/1.jpg",
        "t/task.yaml",
        "x.npz",
        "ann/coco.json",
        ".git/h.onnx",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"1")
    assert list_local(tmp_path, "model") == ("a/b/n.onnx", "a/m.onnx")
    assert list_local(tmp_path, "set") == ("pics", "x.npz")
    assert list_local(tmp_path, "task") == ("t/task.yaml",)
    assert list_local(tmp_path, "annotations") == ("ann/coco.json",)


def test_without_a_permitted_folder_there_are_no_paths(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(DATA_ROOT_VARIABLE, raising=False)
    assert data_root() is None
    monkeypatch.setenv(DATA_ROOT_VARIABLE, str(tmp_path / "absent"))
    assert data_root() is None
    monkeypatch.setenv(DATA_ROOT_VARIABLE, str(tmp_path))
    assert data_root() == tmp_path.resolve()


def _zip(files: dict[str, bytes]) -> Sent:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return Sent("val.zip", data.getvalue())
