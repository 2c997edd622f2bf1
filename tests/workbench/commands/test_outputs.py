import os
import stat

import pytest

from analyzers.errors import InputError
from workbench.commands.outputs import check_writable, write_output


def test_a_check_leaves_nothing_and_changes_nothing(tmp_path):
    (tmp_path / "old.json").write_text("old")
    check_writable(tmp_path / "old.json")
    check_writable(tmp_path / "new.json")
    assert [p.name for p in tmp_path.iterdir()] == ["old.json"]
    assert (tmp_path / "old.json").read_text() == "old"


def test_an_absent_folder_and_a_folder_as_file_are_refused(tmp_path):
    for path in (tmp_path / "no" / "x.json", tmp_path):
        with pytest.raises(InputError) as raised:
            check_writable(path)
        assert raised.value.code == "output_not_writable"
        assert raised.value.where == str(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError):
        check_writable(tmp_path / "x.json")


def test_a_file_is_replaced_whole(tmp_path):
    write_output(tmp_path / "x.json", b"one")
    write_output(tmp_path / "x.json", b"two")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x.json", b"two")]


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(path)
    write_output(path, b"text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_full_disk_is_an_error_with_its_reason():
    with pytest.raises(InputError) as raised:
        write_output(__import__("pathlib").Path("/dev/full"), b"text")
    assert "No space left" in raised.value.message
