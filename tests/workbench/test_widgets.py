from __future__ import annotations

import pytest

from workbench.job_records import JobStatus
from workbench.widgets import ago, plain, progress_words, size_words


def shown(text: str) -> str:
    """Undo what Markdown undoes."""
    out, i = "", 0
    while i < len(text):
        i += text[i] == "\\"
        out += text[i]
        i += 1
    return out.replace("\u2060", "")


@pytest.mark.parametrize(
    "text", r"/model.22/Conv **b** $x$ :red[r] <script> [a](b) `c` a\b 1.x # ~s~ Conv:out".split()
)
def test_every_sign_of_markdown_is_escaped(text: str) -> None:
    escaped = plain(text)
    assert shown(escaped) == text
    bare = [c for i, c in enumerate(escaped) if c in "\\`*_[]<>#$:~" and escaped[max(0, i - 1)] != "\\"]
    assert not [c for c in bare if c != "\\"]


def test_text_is_put_on_one_line_without_control_characters() -> None:
    assert plain("a\nb\tc\x00d\u202ee") == "a b c d e"


@pytest.mark.parametrize("text", ["http://a.example", "www.b.example", "c@d.example", "HTTPS://E.EXAMPLE"])
def test_addresses_are_broken_so_that_they_do_not_become_links(text: str) -> None:
    assert "\u2060" in plain(text)
    assert shown(plain(text)) == text


def test_progress_is_put_into_words() -> None:
    status = JobStatus("a" * 32, "compare", 0.0, state="running", stage="compare", done=12, total=128)
    assert progress_words(status) == "compare, 12 of 128"
    assert progress_words(JobStatus("a" * 32, "compare", 0.0)) == "waiting to start"


def test_times_and_sizes_are_rounded_for_people() -> None:
    assert [ago(s) for s in (5, 300, 7200, 200_000)] == ["just now", "5 min ago", "2 h ago", "2 days ago"]
    assert [size_words(n) for n in (7, 2048, 5 << 20, 3 << 30)] == ["7 B", "2.0 KB", "5.0 MB", "3.0 GB"]
