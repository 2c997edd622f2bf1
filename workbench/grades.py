"""Five named steps from "broken" to "match": the only colours in which agreement is ever shown.

Cosine is not mapped linearly, since 0.99 and 0.999 would look equal; each step is one more nine. The colours
keep at least 22 CIE76 units between any two steps for normal, protan, deutan and tritan vision, and a word
always stands beside them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NINES_LIMIT = 6.0


@dataclass(frozen=True, slots=True)
class Grade:
    """One step of the scale.

    Attributes:
        word: What it is called.
        color: Fill.
        ink: Text on the fill.
        min_cosine: Lowest cosine of the step.
        min_sqnr_db: The SQNR that belongs to that cosine where only noise was added.
    """

    word: str
    color: str
    ink: str
    min_cosine: float
    min_sqnr_db: float


def sqnr_of_cosine(cosine: float) -> float:
    """Return the SQNR in dB at which noise alone, orthogonal to the signal, gives this cosine."""
    return 10 * math.log10(cosine**2 / (1 - cosine**2))


def _step(word: str, color: str, ink: str, min_cosine: float) -> Grade:
    return Grade(word, color, ink, min_cosine, sqnr_of_cosine(min_cosine))


BROKEN = Grade("broken", "#a63603", "#ffffff", -math.inf, -math.inf)
GRADES = (
    BROKEN,
    _step("bad", "#e6761c", "#000000", 0.9),
    _step("watch", "#fdc38d", "#000000", 0.99),
    _step("good", "#9ecae1", "#000000", 0.999),
    _step("match", "#2171b5", "#ffffff", 0.9999),
)
NOT_COMPARED = Grade("not compared", "#8b929a", "#000000", math.nan, math.nan)


def grade_of_cosine(cosine: float) -> Grade:
    """Return the step of a cosine; undefined values have a state of their own."""
    if math.isnan(cosine):
        return NOT_COMPARED
    return next(g for g in reversed(GRADES) if cosine >= g.min_cosine)


def grade_of_sqnr(sqnr_db: float) -> Grade:
    """Return the step of an SQNR in dB."""
    if math.isnan(sqnr_db):
        return NOT_COMPARED
    return next(g for g in reversed(GRADES) if sqnr_db >= g.min_sqnr_db)


def nines(cosine: float) -> float:
    """Return ``-log10(1 - cosine)`` within 0..6: how many nines the cosine begins with; nan stays nan."""
    if math.isnan(cosine):
        return math.nan
    return min(NINES_LIMIT, max(0.0, -math.log10(max(10**-NINES_LIMIT, 1 - cosine))))
