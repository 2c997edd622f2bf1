"""Grade every case of the corpus and print the table: ``python -m tests.cases [NAME ...]``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from tests.cases.corpus import ABSENT, IS_PRESENT, Case, read_cases
from tests.cases.grading import RIGHT, Grade, grade_diagnosis, grade_reply, run_command


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cases", description=__doc__)
    parser.add_argument("names", nargs="*", help="names of cases, or parts of them; all by default")
    parser.add_argument("--expect", action="append", default=[], help="only cases that expect this")
    parser.add_argument("--command", default="diagnose", help="command that bad input is given to")
    parser.add_argument("--json", type=Path, help="write the grades there")
    options = parser.parse_args()
    if not IS_PRESENT:
        print(ABSENT)
        return 0
    cases = [
        case
        for case in read_cases(*options.expect)
        if not options.names or any(name in case.slug for name in options.names)
    ]
    grades = []
    for case in cases:
        grade = _grade(case, options.command)
        grades.append(grade)
        print(
            f"{grade.result:7s}{grade.slug:36s}{grade.expect:17s}{grade.seconds:5.1f} s  {_words(grade)}",
            flush=True,
        )
    _print_summary(grades)
    if options.json:
        options.json.write_text(json.dumps([asdict(grade) for grade in grades], indent=1))
    return 0 if all(grade.result == RIGHT for grade in grades) else 1


def _grade(case: Case, command: str) -> Grade:
    if case.expect not in ("error", "warning"):
        return grade_diagnosis(case)
    start = time.monotonic()
    reply = run_command(case, command)
    return grade_reply(case, reply, time.monotonic() - start)


def _words(grade: Grade) -> str:
    words = [grade.answer] if grade.result == RIGHT else [grade.reason, f"[{grade.answer}]"]
    return " ".join([*words, f"({grade.remark})" if grade.remark else ""]).strip()


def _print_summary(grades: list[Grade]) -> None:
    print(f"\n{'expected':20s}{'cases':>6s}{'right':>7s}{'wrong':>7s}{'missed':>7s}")
    groups: dict[str, list[Grade]] = {}
    for grade in grades:
        groups.setdefault(grade.expect, []).append(grade)
    for name, group in [*sorted(groups.items()), ("all", grades)]:
        counts = Counter(grade.result for grade in group)
        print(f"{name:20s}{len(group):6d}" + "".join(f"{counts[r]:7d}" for r in ("right", "wrong", "missed")))
    print(f"{sum(grade.seconds for grade in grades):.0f} s")


if __name__ == "__main__":
    sys.exit(main())
