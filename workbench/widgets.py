"""Parts of pages that look the same everywhere. Text from files is always shown as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Literal

import streamlit as st

from analyzers.errors import TearlineError
from analyzers.records import Notice
from workbench.charts import WARM
from workbench.commands.words import duration
from workbench.grades import GRADES, NOT_COMPARED, Grade
from workbench.job_records import JobError, JobState, JobStatus

Color = Literal["red", "orange", "blue", "green", "gray"]
Metric = tuple[str, str, str]

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&^=@/\"'%;,?])")
_LINKS = re.compile(r":(?=//)|www(?=\.)|@(?=\w)", re.IGNORECASE)
_JOINER = "\u2060"
_STATES: dict[JobState, tuple[str, str, Color]] = {
    "queued": ("waiting", ":material/hourglass_empty:", "gray"),
    "running": ("running", ":material/autorenew:", "blue"),
    "done": ("done", ":material/check:", "green"),
    "failed": ("failed", ":material/error:", "red"),
    "crashed": ("crashed", ":material/error:", "red"),
    "cancelled": ("cancelled", ":material/block:", "orange"),
}
KIND_NAMES = {
    "compare": "Compare",
    "diagnose": "Diagnose",
    "bisect": "Bisect",
    "search": "Search",
    "export": "Export",
    "requantize": "Quantizing",
}


def plain(text: str) -> str:
    """Return text that Markdown shows as it is, on one line; models choose the names of their layers."""
    one_line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    # An invisible joiner keeps addresses from becoming links, which no escape does.
    unlinked = _LINKS.sub(lambda found: f"{found[0]}{_JOINER}", one_line)
    return _MARKDOWN.sub(r"\\\1", unlinked)


def state_badge(status: JobStatus, *, with_kind: bool = True) -> None:
    """Show the state of a job as a chip."""
    word, icon, color = _STATES[status.state]
    name = f"{KIND_NAMES.get(status.kind, 'Job')} " if with_kind else ""
    st.badge(f"{name}{word}", icon=icon, color=color)


def state_word(status: JobStatus) -> str:
    """Return the state of a job in one word."""
    return _STATES[status.state][0]


def page_head(title: str, lead: str) -> None:
    """Show the title of a page and one sentence that says what it answers."""
    st.title(title, anchor=False)
    st.caption(lead)


def verdict(headline: str, detail: str = "") -> None:
    """Show the answer in words, before any number; both are Markdown."""
    st.subheader(headline, anchor=False)
    if detail:
        st.markdown(detail)


def metrics(items: Sequence[Metric]) -> None:
    """Show a row of numbers: label, value, help."""
    with st.grid("auto", min_column_width=140):
        for label, value, help_text in items:
            st.metric(label, value, help=help_text or None, border=True)


def failure(error: JobError | TearlineError, *, title: str = "") -> None:
    """Show what went wrong, where, and what to do."""
    hint = f"\n\n**What to do:** {plain(error.hint)}." if error.hint else ""
    head = title or plain(error.message.rstrip("."))
    body = f"\n\n{plain(error.message)}" if title else ""
    st.error(f"**{head}**{body}{hint}", icon=":material/error:")
    details = [part for part in (error.code, error.where) if part]
    if details:
        st.code(" · ".join(details), language=None, wrap_lines=True)


def notices(items: Sequence[Notice]) -> None:
    """Show warnings, folded where there are many."""
    if not items:
        return
    words = "1 note" if len(items) == 1 else f"{len(items)} notes"
    with st.expander(f"{words} about this result", icon=":material/info:", expanded=len(items) <= 2):
        for item in items:
            where = f" — {plain(item.where)}" if item.where else ""
            st.markdown(f"- {plain(item.message)}{where}")


def empty_state(icon: str, headline: str, text: str) -> None:
    """Say why there is nothing here yet and what brings it; buttons follow."""
    st.markdown(f":gray[:material/{icon}:]", text_alignment="center")
    st.subheader(headline, anchor=False, text_alignment="center")
    st.caption(text, text_alignment="center")


def command(line: str) -> None:
    """Show the command that does the same, to be copied."""
    with st.expander("The same on the command line", icon=":material/terminal:"):
        st.code(line, language="bash", wrap_lines=True)


def grade_legend(*, threshold: float) -> None:
    """Show the five steps with their words, and what the marks mean."""
    chips = "".join(_swatch(g, _range_of(g)) for g in GRADES)
    marks = (
        "<span style='white-space:nowrap'>● accumulated</span>"
        "<span style='white-space:nowrap'>┃ alone, fed with the reference's values</span>"
        f"<span style='white-space:nowrap'><span style='color:{WARM}'>╌╌</span> "
        f"fallback candidates below {threshold:g}</span>"
        f"<span style='white-space:nowrap;color:{NOT_COMPARED.color}'>✕ {NOT_COMPARED.word}</span>"
    )
    st.html(
        "<div style='display:flex;flex-wrap:wrap;gap:6px 14px;font-size:0.8rem;align-items:center'>"
        f"{chips}{marks}</div>"
    )


def _swatch(grade: Grade, text: str) -> str:
    return (
        "<span style='white-space:nowrap'>"
        f"<span style='background:{grade.color};color:{grade.ink};border-radius:4px;padding:1px 7px'>"
        f"{grade.word}</span> {text}</span>"
    )


def _range_of(grade: Grade) -> str:
    return "below 0.9" if grade is GRADES[0] else f"≥ {grade.min_cosine:g}"


def progress_words(status: JobStatus) -> str:
    """Return where a job is, such as ``compare, 12 of 128, 0:41 left``."""
    if status.state == "queued":
        return "waiting to start"
    parts = [status.stage or "starting"]
    if status.total:
        parts.append(f"{status.done} of {status.total}")
    if status.eta_seconds is not None and status.done < status.total:
        parts.append(f"{duration(status.eta_seconds)} left")
    return ", ".join(parts)


def progress_bar(status: JobStatus) -> None:
    """Show how far the stage of a running job is, as far as that is known."""
    words = plain(progress_words(status))
    if status.total:
        st.progress(min(1.0, max(0.0, status.done / status.total)), text=words)
    else:
        st.caption(words)


def grid(rows: Sequence[tuple[str, str, str]], *, columns: str = "7.2rem 1fr 1fr") -> None:
    """Show rows of a name and up to two values, as text whatever is in them."""
    digits = "font-variant-numeric:tabular-nums;overflow-wrap:anywhere"
    cells = "".join(
        f"<div style='opacity:0.65'>{escape(name)}</div><div style='{digits}'>{escape(first)}</div>"
        f"<div style='{digits};opacity:0.8'>{escape(second)}</div>"
        for name, first, second in rows
    )
    st.html(
        f"<div style='display:grid;grid-template-columns:{columns};gap:3px 12px;font-size:0.86rem;"
        f"border-top:1px solid rgba(128,140,150,0.25);padding-top:8px'>{cells}</div>"
    )


def metric_name(name: str) -> str:
    """Return a metric as people write it."""
    return name.upper() if name in ("ap", "sqnr") else name


def ago(seconds: float) -> str:
    """Return how long ago something was, roughly."""
    if seconds < 90:
        return "just now"
    for size, unit in ((60.0, "min"), (3600.0, "h"), (86400.0, "days")):
        if seconds < size * (60 if unit == "min" else 24 if unit == "h" else 1e9):
            return f"{seconds / size:.0f} {unit} ago"
    return ""


def size_words(size_bytes: int) -> str:
    """Return bytes for people."""
    size = float(size_bytes)
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GB"
