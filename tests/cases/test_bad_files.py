"""What bad input of the corpus gets."""

from __future__ import annotations

import pytest

from tests.cases.corpus import ABSENT, IS_PRESENT, Case, read_cases
from tests.cases.grading import RIGHT, ask_engine, grade_reply, run_command

pytestmark = pytest.mark.skipif(not IS_PRESENT, reason=ABSENT)
BAD = read_cases("error", "warning")


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.slug)
def test_bad_input_is_named_with_what_to_do(case: Case) -> None:
    grade = grade_reply(case, ask_engine(case))
    assert grade.result == RIGHT, grade


@pytest.mark.parametrize("case", BAD[::12], ids=lambda case: case.slug)
def test_the_command_line_says_it_too(case: Case) -> None:
    grade = grade_reply(case, run_command(case, "diagnose"))
    assert grade.result == RIGHT, grade
