"""Text for Markdown files that is safe whatever a model file calls its layers."""

from __future__ import annotations

import re


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def data_size(size: int) -> str:
    """Return bytes for people."""
    return f"{size / 1024:.1f} KiB" if size >= 1024 else f"{size} B"


def sentence(text: str) -> str:
    """Return text as a sentence."""
    text = prose(text).strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def printable(text: str) -> str:
    """Return text on one line; model files choose the names of their layers."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def prose(text: str) -> str:
    """Return text without what Markdown would take for markup."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", printable(text))


def code_span(text: str) -> str:
    """Return a code span for a table cell, whatever the text holds."""
    text = printable(text).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"
