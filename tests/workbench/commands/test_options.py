import pytest

from analyzers.errors import InputError
from workbench.commands.options import memory_bytes, one_of, sample_choice


@pytest.mark.parametrize(
    ("text", "size"),
    [("512M", 512 << 20), ("6G", 6 << 30), ("1.5g", 3 << 29), ("2 GiB", 2 << 30), ("100", 100)],
)
def test_sizes_have_units(text, size):
    assert memory_bytes(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "6X", "6G6"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError) as raised:
        memory_bytes(text)
    assert raised.value.code == "bad_option"


def test_a_choice_that_is_none_names_the_choices():
    assert one_of("a", ("a", "b"), "--letter") == "a"
    with pytest.raises(InputError) as raised:
        one_of("c", ("a", "b"), "--letter")
    assert str(raised.value) == "--letter is 'c', Choose one of: a, b"


def test_a_sample_file_is_found_from_where_the_user_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [sample_choice(s) for s in (None, "32", "0::4", "::2")] == [None, "32", "0::4", "::2"]
    assert sample_choice("names.txt") == str(tmp_path / "names.txt")
    (tmp_path / "names").write_text("a.jpg")
    assert sample_choice("names") == str(tmp_path / "names")


def test_a_number_stays_a_number_where_a_file_has_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "32").mkdir()
    assert sample_choice("32") == "32"


def test_what_is_no_sample_choice_is_said_as_it_was_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [sample_choice(s) for s in ("all", "-3", "1:2:3")] == ["all", "-3", "1:2:3"]
