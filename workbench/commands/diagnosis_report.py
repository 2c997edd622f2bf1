"""A diagnosis as text on stdout: the verdict first, then each finding, then what was fine."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from analyzers.records import Checked, Diagnosis, Finding, Gain
from workbench.commands.words import decibels, printable, score
from workbench.diagnosis_words import cause_words, fact_rows, gain_words, verdict_words

_WIDTH = 100
_SHOWN_LAYERS = 8
_SHOWN_FACTS = 6


def diagnosis_lines(result: Diagnosis) -> list[str]:
    """Return what is wrong, why, what to do about it, and what was looked at."""
    lines = _verdict(result)
    for place, finding in enumerate(result.findings, start=1):
        lines.extend(["", *_finding(place, finding)])
    if result.checked:
        lines.extend(["", *_checked(result.checked)])
    return lines


def _verdict(result: Diagnosis) -> list[str]:
    headline, detail = verdict_words(result)
    lines = [f"verdict: {result.verdict} - {headline}", *_wrapped(detail, "  ")]
    output = f"  output {decibels(result.output_sqnr_db)} dB, threshold {decibels(result.threshold_db)} dB"
    if not math.isnan(result.repaired_sqnr_db):
        output += f", all findings repaired {decibels(result.repaired_sqnr_db)} dB"
    lines.append(f"{output} ({result.runs} what-if models on {len(result.samples)} samples)")
    scores = [
        f"{name} {given.metric} {score(given.value, given.unit)}"
        for name, given in (("reference", result.reference_score), ("candidate", result.candidate_score))
        if given is not None
    ]
    if scores:
        lines.append(f"  {', '.join(scores)}")
    return lines


def _finding(place: int, finding: Finding) -> list[str]:
    facts = fact_rows(finding)[:_SHOWN_FACTS]
    rows = (
        ("layers", _some(finding.layers, _SHOWN_LAYERS)),
        ("found", finding.message),
        ("numbers", "; ".join(f"{name} {value}" for name, value in facts)),
        ("gain", "" if finding.gain is None else _gain(finding.gain)),
        ("fix", finding.fix),
    )
    head = f"{place}. {finding.severity}: {cause_words(finding.cause)} [{finding.cause}]"
    return [*_wrapped(head, "", "   "), *(line for name, text in rows if text for line in _row(name, text))]


def _gain(gain: Gain) -> str:
    return f"{gain_words(gain)} ({gain.how}, {gain.samples} samples)"


def _checked(checked: Sequence[Checked]) -> list[str]:
    fine = [_name(c) for c in checked if not c.suspected and c.result == "fine"]
    suspected = [
        f"suspected, not proved: {_name(c)} at {_some(c.suspected, 3)}" for c in checked if c.suspected
    ]
    lines = [line for text in suspected for line in _wrapped(text, "", "  ")]
    if fine:
        lines.extend(_wrapped(f"checked and fine ({len(fine)}): {', '.join(fine)}", "", "  "))
    return lines


def _name(checked: Checked) -> str:
    return checked.name.replace("_", " ")


def _some(names: Sequence[str], most: int) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _row(name: str, text: str) -> list[str]:
    return _wrapped(text, f"   {name:8s}", " " * 11)


def _wrapped(text: str, first: str, other: str | None = None) -> list[str]:
    """Return text in lines of a readable width; names are never broken."""
    return textwrap.wrap(
        printable(text),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=first if other is None else other,
        break_long_words=False,
        break_on_hyphens=False,
    )
