from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from analyzers.errors import SampleError
from workbench.safezip import Limits, safe_path, unzip

Fill = Callable[[zipfile.ZipFile], object]


def test_wanted_files_are_unpacked_under_their_names_and_noise_is_left_out(tmp_path: Path) -> None:
    def fill(archive: zipfile.ZipFile) -> None:
        archive.writestr("val/a.png", b"1")
        archive.writestr("val/b.JPG", b"2")
        archive.writestr("coco.json", b"{}")
        archive.writestr("__MACOSX/val/._a.png", b"3")
        archive.writestr("val/.hidden.png", b"4")
        archive.writestr("run.exe", b"5")

    files = unzip(_archive(tmp_path, fill), tmp_path / "out")
    assert sorted(map(str, files)) == ["coco.json", "val/a.png", "val/b.JPG"]
    assert sorted(p.name for p in (tmp_path / "out").rglob("*") if p.is_file()) == [
        "a.png",
        "b.JPG",
        "coco.json",
    ]


def _link(archive: zipfile.ZipFile) -> None:
    entry = zipfile.ZipInfo("l.png")
    entry.external_attr = 0o120777 << 16
    archive.writestr(entry, "/etc/passwd")


def _twice(archive: zipfile.ZipFile) -> None:
    archive.writestr("a.png", b"1")
    with pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("a.png", b"2")


HOSTILE: dict[str, tuple[str, Fill]] = {
    "a bomb": ("unsafe_archive", lambda z: z.writestr("a.png", b"\0" * (20 << 20))),
    "a way up": ("unsafe_archive", lambda z: z.writestr("../a.png", b"1")),
    "a way up in the middle": ("unsafe_archive", lambda z: z.writestr("x/../../a.png", b"1")),
    "an absolute path": ("unsafe_archive", lambda z: z.writestr("/a.png", b"1")),
    "a drive": ("unsafe_archive", lambda z: z.writestr("C:\\a.png", b"1")),
    "backslashes that go up": ("unsafe_archive", lambda z: z.writestr("..\\a.png", b"1")),
    "a symbolic link": ("unsafe_archive", _link),
    "two files of one name": ("unsafe_archive", _twice),
    "a name that is too long": ("unsafe_archive", lambda z: z.writestr("a" * 250 + ".png", b"1")),
    "a control character": ("unsafe_archive", lambda z: z.writestr("a\n.png", b"1")),
    "nothing that is wanted": ("zero_samples", lambda z: z.writestr("a.exe", b"1")),
    "nothing at all": ("zero_samples", lambda z: None),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused(case: str, tmp_path: Path) -> None:
    code, fill = HOSTILE[case]
    with pytest.raises(SampleError) as caught:
        unzip(_archive(tmp_path, fill), tmp_path / "out")
    assert caught.value.code == code
    assert caught.value.hint
    outside = {p.name for p in tmp_path.iterdir()} - {"set.zip", "out"}
    assert not outside


def test_garbage_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "set.zip"
    path.write_bytes(b"not a zip file")
    with pytest.raises(SampleError) as caught:
        unzip(path, tmp_path / "out")
    assert caught.value.code == "malformed_inputs"


def test_a_header_that_lies_about_the_size_gains_nothing(tmp_path: Path) -> None:
    path = _archive(tmp_path, lambda z: z.writestr("a.png", os.urandom(64) + b"\0" * (1 << 20)))
    raw = bytearray(path.read_bytes())
    central = raw.find(b"PK\x01\x02")
    raw[central + 24 : central + 28] = struct.pack("<I", 100)
    raw[22:26] = struct.pack("<I", 100)
    path.write_bytes(raw)
    with pytest.raises(SampleError):
        unzip(path, tmp_path / "out", limits=Limits(file_bytes=1000))
    sizes = [p.stat().st_size for p in (tmp_path / "out").rglob("*") if p.is_file()]
    assert all(size <= 1000 for size in sizes)


@pytest.mark.parametrize(
    "limits",
    [Limits(files=2), Limits(total_bytes=250), Limits(file_bytes=50)],
    ids=["files", "total", "file"],
)
def test_each_bound_holds(limits: Limits, tmp_path: Path) -> None:
    path = _archive(tmp_path, lambda z: [z.writestr(f"{i}.png", os.urandom(100)) for i in range(3)])
    with pytest.raises(SampleError, match="refused"):
        unzip(path, tmp_path / "out", limits=limits)


def test_unicode_names_are_kept() -> None:
    assert str(safe_path("bilder/猫 ü.png")) == "bilder/猫 ü.png"


def _archive(folder: Path, fill: Fill) -> Path:
    (folder / "out").mkdir()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        fill(archive)
    path = folder / "set.zip"
    path.write_bytes(data.getvalue())
    return path
