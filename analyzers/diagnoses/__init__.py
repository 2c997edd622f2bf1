"""One file per diagnosis: a detector that looks at the evidence and says what it suspects."""

from __future__ import annotations

import sys
from functools import cache

from analyzers.registry import discover
from analyzers.suspicions import Detector


@cache
def detectors() -> dict[str, Detector]:
    """Return all detectors by name, sorted."""
    return discover(sys.modules[__name__], Detector)
