"""Which samples a selection means."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.errors import SampleError
from analyzers.selection import select_names


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [(None, [0, 1, 2, 3, 4]), ("2", [0, 1]), ("99", [0, 1, 2, 3, 4]), ("1::2", [1, 3]), ("::4", [0, 4])],
)
def test_a_selection_counts_in_name_order(selection: str | None, chosen: list[int]) -> None:
    assert select_names(list("abcde"), selection) == chosen


def test_a_list_of_names_selects_in_name_order(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# the good ones\nd\n\na\n")
    assert select_names(list("abcde"), str(path)) == [0, 3]


@pytest.mark.parametrize("selection", ["1::0", "-3", "no such file", "1:2:3", ".", "a" * 9000])
def test_a_selection_that_means_nothing_is_refused(selection: str) -> None:
    with pytest.raises(SampleError) as caught:
        select_names(list("abc"), selection)
    assert caught.value.code == "bad_selection"


@pytest.mark.parametrize("selection", ["few.txt", "lists/few", "/no/such/list", "2024.names"])
def test_a_list_that_is_not_there_is_absent(selection: str) -> None:
    with pytest.raises(SampleError) as caught:
        select_names(list("abc"), selection)
    assert caught.value.code == "file_absent"
    assert caught.value.where == selection
    assert "START::STEP" in caught.value.hint


def test_a_list_with_an_unknown_name_says_which_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("imag1.jpg\n")
    with pytest.raises(SampleError, match=r"imag1\.jpg.*image1\.jpg"):
        select_names(["image1.jpg", "other.png"], str(path))
