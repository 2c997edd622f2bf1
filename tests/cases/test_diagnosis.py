"""The diagnosis of every case of the corpus."""

from __future__ import annotations

import pytest

from tests.cases.corpus import ABSENT, IS_PRESENT, Case, read_cases
from tests.cases.grading import RIGHT, grade_diagnosis

pytestmark = pytest.mark.skipif(not IS_PRESENT, reason=ABSENT)


@pytest.mark.parametrize(
    "case",
    read_cases("diagnosis", "diagnosis_global", "diagnosis_input", "no_fault"),
    ids=lambda case: case.slug,
)
def test_the_guilty_are_named_with_their_cause_and_nobody_else(case: Case) -> None:
    grade = grade_diagnosis(case)
    assert grade.result == RIGHT, grade
