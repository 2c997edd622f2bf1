"""Everything that goes to the terminal passes here: one-line errors, harmless text, plain numbers."""

from __future__ import annotations

import math
import re
import sys

from analyzers.errors import InputError, TearlineError

_PRECISE_FROM = 0.99
# Decibels end there in results that were read back.
_EXACT_DB = 200.0


def harmless(text: str) -> str:
    """Return text without characters that steer a terminal; model files choose their layers' names."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable(text: str) -> str:
    """Return harmless text on one line."""
    return harmless(re.sub(r"\s+", " ", text).strip())


def say(text: str) -> None:
    """Write a line to stderr."""
    print(printable(text), file=sys.stderr, flush=True)


def error_line(error: TearlineError) -> str:
    """Return ``error[code]: what, where, what to do``."""
    return printable(f"error[{error.code}]: {error}")


def bad_option(message: str, hint: str = "") -> InputError:
    """Return the error for options that are wrong or do not go together."""
    return InputError("bad_option", message, hint=hint or "See --help")


def number(value: float, digits: int = 4) -> str:
    """Return a number for a table; "n/a" where it is undefined."""
    if math.isnan(value):
        return "n/a"
    return f"{value:.{digits}f}"


def decibels(value: float) -> str:
    """Return decibels for a table."""
    return number(value, 1)


def cosine(value: float) -> str:
    """Return a cosine with enough digits to tell 0.99990 from 0.99999."""
    return number(value, 5 if value >= _PRECISE_FROM else 4)


def score(value: float, unit: str) -> str:
    """Return a score with its unit."""
    if not unit or math.isnan(value):
        return number(value)
    return "exact" if unit == "dB" and value >= _EXACT_DB else f"{decibels(value)} {unit}"


def extra(cost: float) -> str:
    """Return what a plan costs as extra latency in percent of the network in INT8."""
    return "n/a" if math.isnan(cost) else f"{cost:+.1%}"


def data_size(size: int) -> str:
    """Return bytes for people."""
    return f"{size / 1024:.1f} KiB" if size < 1 << 20 else f"{size / (1 << 20):.1f} MiB"


def duration(seconds: float) -> str:
    """Return seconds as ``m:ss`` or ``h:mm:ss``."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
