"""Ask for the answer to a case and compare it with the right one."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzers import api, opening
from analyzers.errors import TearlineError
from analyzers.records import Diagnosis
from analyzers.steps import finish
from tests.cases.corpus import Case
from tests.faults.judge import judge, short
from workbench.commands.words import error_line

RIGHT, WRONG, MISSED = "right", "wrong", "missed"
_GRADES = {"right": RIGHT, "missed": MISSED}


@dataclass(frozen=True)
class Grade:
    """How an answer compares with the right one.

    Attributes:
        slug: Name of the case.
        expect: What was expected.
        result: "right", "wrong" or "missed".
        reason: What is not right.
        answer: What was said.
        seconds: How long it took.
        remark: What is no mistake but could be better: channels or samples that are not named.
    """

    slug: str
    expect: str
    result: str
    reason: str
    answer: str
    seconds: float
    remark: str = ""


@dataclass(frozen=True)
class Reply:
    """What a command said.

    Attributes:
        text: Standard output and errors.
        exit_code: Its exit code.
        report: The JSON that it wrote; None where it wrote none.
    """

    text: str
    exit_code: int
    report: dict[str, Any] | None


def grade_diagnosis(case: Case) -> Grade:
    """Diagnose and compare."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cases-") as folder:
        inputs = case.inputs(Path(folder))
        try:
            diagnosis = api.diagnose(inputs)
            pairing = finish(opening.open_pair(inputs)).pairing
        except TearlineError as error:
            return Grade(case.slug, case.expect, WRONG, error_line(error), "", time.monotonic() - start)
    layer_of = {node: layer.name for layer in pairing.layers for node in layer.nodes}
    result, reason = judge(diagnosis, case.truths(), layer_of)
    return Grade(
        case.slug,
        case.expect,
        _GRADES.get(result, WRONG),
        f"{result}: {reason}" if reason else "",
        short(diagnosis),
        time.monotonic() - start,
        _remark(case, diagnosis),
    )


def _remark(case: Case, diagnosis: Diagnosis) -> str:
    """Say which channels and samples the answer does not name though it could."""
    said = json.dumps([{"message": f.message, **f.evidence} for f in diagnosis.findings], default=str)
    channels = {c for numbers in (case.answer.get("guilty_channels") or {}).values() for c in numbers}
    unnamed = sorted(c for c in channels if str(c) not in said)
    samples = [i for i in case.answer.get("affected_samples") or [] if f"s{i:03d}" not in said]
    return "; ".join(
        f"{what} {', '.join(map(str, numbers))} not named"
        for what, numbers in (("channels", unnamed), ("samples", samples))
        if numbers
    )


def run_command(case: Case, command: str) -> Reply:
    """Run the real command in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="cases-") as folder:
        report = Path(folder) / "report.json"
        words = case.arguments(Path(folder) / "workspace", report)
        line = [sys.executable, "-m", "workbench.cli", command, *words]
        done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
        return Reply(done.stdout + done.stderr, done.returncode, _read(report))


def ask_engine(case: Case) -> Reply:
    """Ask the engine in this process: what ``tearline diagnose`` would print of an error, and its JSON."""
    with tempfile.TemporaryDirectory(prefix="cases-") as folder:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                answer = api.diagnose(case.inputs(Path(folder)))
        except TearlineError as error:
            return Reply(error_line(error), 2, None)
    warnings = [{"code": w.code, "message": w.message, "where": w.where} for w in answer.warnings]
    return Reply("", 0, {"warnings": warnings})


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text()) if path.exists() else None


def grade_reply(case: Case, reply: Reply, seconds: float = 0.0) -> Grade:
    """Compare what a command said of bad input with what it has to say."""
    required = case.answer["required_error"]
    warnings = (reply.report or {}).get("warnings") or []
    said = f"{reply.text} {json.dumps(warnings)}".lower()
    problems = [
        f"mentions none of {words}"
        for words in required["must_mention_one_of_each"]
        if not any(word.lower() in said for word in words)
    ]
    problems += [f"contains {word!r}" for word in required["must_not_contain"] if word.lower() in said]
    category = str(required["category"])
    if case.expect == "error":
        problems += _error_problems(reply, category, no_report=bool(required["no_partial_report"]))
    else:
        problems += _warning_problems(reply, category, [str(w["code"]) for w in warnings])
    lines = [line for line in reply.text.splitlines() if "error[" in line]
    answer = lines[0] if lines else "; ".join(str(w["code"]) for w in warnings)
    silent = not lines and not warnings
    result = RIGHT if not problems else MISSED if silent else WRONG
    return Grade(case.slug, case.expect, result, "; ".join(problems), answer, seconds)


def _error_problems(reply: Reply, category: str, *, no_report: bool) -> list[str]:
    problems = [] if reply.exit_code == 2 else [f"exit code {reply.exit_code}"]
    if f"error[{category}]" not in reply.text:
        problems.append(f"no error[{category}]")
    if reply.text.count("error[") > 1:
        problems.append("more than one error line")
    if no_report and reply.report is not None:
        problems.append("wrote a report")
    return problems


def _warning_problems(reply: Reply, category: str, codes: list[str]) -> list[str]:
    # 1 is the documented answer "not healthy" of a diagnosis.
    problems = [] if reply.exit_code in (0, 1) else [f"exit code {reply.exit_code}"]
    if reply.report is None:
        problems.append("wrote no report")
    elif category not in codes:
        problems.append(f"no warning {category}")
    return problems
