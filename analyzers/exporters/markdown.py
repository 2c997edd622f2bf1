"""The finding in words, for people: for a pull request, an issue, a colleague."""

from __future__ import annotations

import math
import re
from pathlib import Path

from analyzers.errors import InputError
from analyzers.exporters import Exporter, ExportRequest, Written
from analyzers.exporters._report import Member, ModelFacts, Report, make_report
from analyzers.project import Pair
from analyzers.records import SearchResult

_SET_HEADING = "## Layers that leave INT8"
_FRONT_ROWS = 12
_METRICS = {"ap": "AP", "top1": "top-1 accuracy", "sqnr": "SQNR", "slice-sqnr": "slice SQNR"}


def write(request: ExportRequest) -> Written:
    """Write the report."""
    report = make_report(request)
    parts = [
        [f"# FP16 fallback for {_code(report.reference.path.name)}", "", _verdict(report.search)],
        _scores(report.search),
        _members(report),
        _method(report.search),
        _front(report.search),
        _warnings(report),
        _models(report),
        _commands(report),
    ]
    text = "\n\n".join("\n".join(lines) for lines in parts if lines)
    request.output.write_text(text + "\n", encoding="utf-8")
    return Written()


def read(path: Path, pair: Pair) -> frozenset[str]:
    """Return the layers in the table of the set."""
    text = path.read_text(encoding="utf-8")
    _, found, rest = text.partition(f"\n{_SET_HEADING}\n")
    if not found:
        raise InputError(
            "malformed_result",
            f"The report has no '{_SET_HEADING}'",
            where=str(path),
            hint="Give a report that Tearline exported",
        )
    section = rest.partition("\n## ")[0]
    names = {_code(layer.name): layer.name for layer in pair.pairing.layers}
    # A bar inside a name is escaped, so this one ends the cell.
    cells = [line[2:].partition(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return frozenset(names.get(cell, cell) for cell in cells)


def _verdict(result: SearchResult) -> str:
    metric = _metric(result)
    before, after = _number(result.candidate_score, result), _number(result.score, result)
    target, best = _number(result.target, result), _number(result.reference_score, result)
    if not result.reached:
        return (
            f"**Not reached.** The best set that was found gives {metric} {after}, the target is {target}; "
            f"the INT8 candidate has {before}, the FP32 reference {best}. {_sentence(result.reason)}"
        )
    if not result.fallback:
        return (
            f"**Nothing has to leave INT8.** The candidate has {metric} {before}, the target is {target}, "
            f"the FP32 reference has {best}."
        )
    count = _count(len(result.fallback), "layer")
    nodes = _count(len(result.fallback_nodes), "node")
    precision = result.precision.upper()
    return (
        f"**Keeping {count} ({nodes}) in {precision} brings {metric} from {before} to {after}.** "
        f"The target is {target}, the FP32 reference has {best}. {_minimality(result)}"
    )


def _minimality(result: SearchResult) -> str:
    if result.minimal:
        return "Taking any one member back to INT8 misses the target; each of these trials is listed below."
    return "It is not shown that every member is needed; see the table below."


def _scores(result: SearchResult) -> list[str]:
    rows = [
        ("FP32 reference", result.reference_score),
        ("INT8 candidate", result.candidate_score),
        (f"every layer in {result.precision.upper()} that may leave INT8", result.all_fallback_score),
        ("**this set**", result.score),
    ]
    if result.fidelity.exported_score is not None:
        rows.append(("the exported file, plain onnxruntime", result.fidelity.exported_score))
    if result.holdout_score is not None:
        rows.append(("this set, on samples that the search did not use", result.holdout_score))
    rows.append(("target", result.target))
    lines = ["## Scores", "", f"| | {_metric(result)} |", "|---|---:|"]
    lines += [f"| {name} | {_number(value, result)} |" for name, value in rows]
    tried = len({frozenset(trial.fallback) for trial in result.trials})
    return [
        *lines,
        "",
        "All scores are of a simulation with onnxruntime on a CPU, not of a device. They were measured on "
        f"{_count(result.samples, 'sample')}, on which {_count(tried, 'set')} were tried: on other samples "
        "they will differ, and among sets whose scores lie close together the order is noise.",
    ]


def _members(report: Report) -> list[str]:
    lines = [_SET_HEADING, ""]
    if not report.members:
        return [*lines, "None."]
    lines += [
        "| layer | operator | nodes | weights | score without it | |",
        "|---|---|---|---:|---:|---|",
        *(_row(member, report.search) for member in report.members),
    ]
    return lines


def _row(member: Member, result: SearchResult) -> str:
    nodes = ", ".join(_code(node) for node in member.nodes)
    without = "not tried" if member.without is None else _number(member.without.score, result)
    verdict = (
        "needed"
        if member.is_needed
        else ("not shown" if member.without is None else "not needed for the target")
    )
    return (
        f"| {_code(member.layer)} | {member.op_type} | {nodes} | {_bytes(member.weight_bytes)} | {without} | "
        f"{verdict} |"
    )


def _method(result: SearchResult) -> list[str]:
    fidelity = result.fidelity
    lines = [
        "## How it was found",
        "",
        f"- Storage rule `{result.rule}`, fallback precision {result.precision.upper()}, session mode "
        f"`{result.mode}`. The set is minimal, if at all, for this rule only.",
        f"- {_count(len(result.trials), 'trial')}, {result.evaluations:.1f} full-set equivalents, ranking "
        "included.",
        f"- {_sentence(result.reason)}",
    ]
    if not math.isnan(fidelity.gap):
        lines.append(
            f"- Fidelity: the candidate scores {_number(fidelity.given_score, result)} as it was given and "
            f"{_number(fidelity.simulated_score, result)} as it is simulated, a difference of "
            f"{_number(fidelity.gap, result)}."
        )
    return lines


def _front(result: SearchResult) -> list[str]:
    if len(result.front) < 2:
        return []
    lines = [
        "## Score against cost",
        "",
        f"| layers | islands | {_metric(result)} | set |",
        "|---:|---:|---:|---|",
    ]
    for point in result.front[:_FRONT_ROWS]:
        shown = ", ".join(_code(layer) for layer in point.fallback[:_FRONT_ROWS]) or "none"
        if len(point.fallback) > _FRONT_ROWS:
            shown += f" and {len(point.fallback) - _FRONT_ROWS} more"
        lines.append(f"| {point.layers} | {point.islands} | {_number(point.score, result)} | {shown} |")
    return lines


def _warnings(report: Report) -> list[str]:
    notices = report.search.warnings
    if not notices:
        return []
    return [
        "## Warnings",
        "",
        *(f"- `{n.code}`: {_prose(n.message)}{f' ({_code(n.where)})' if n.where else ''}" for n in notices),
    ]


def _models(report: Report) -> list[str]:
    lines = [
        "## What it was measured with",
        "",
        "| | file | sha256 | opset | made by |",
        "|---|---|---|---|---|",
    ]
    lines += [_model("reference", report.reference), _model("candidate", report.candidate), ""]
    lines.append(f"Tearline {report.versions.tearline}, onnxruntime {report.versions.onnxruntime}.")
    inputs = report.inputs
    if inputs is None:
        return lines
    named = {"data": inputs.data, "samples": inputs.samples, "task": inputs.task}
    named |= {"annotations": inputs.annotations, "calibration": inputs.calibration}
    given = [f"{name} {_code(str(value))}" for name, value in named.items() if value is not None]
    return [*lines, *(["", f"Given: {', '.join(given)}."] if given else [])]


def _model(role: str, facts: ModelFacts) -> str:
    made_by = _code(facts.producer) if facts.producer else ""
    return f"| {role} | {_code(facts.path.name)} | `{facts.digest}` | {facts.opset} | {made_by} |"


def _commands(report: Report) -> list[str]:
    if not report.commands:
        return []
    commands = [_printable(command) for command in report.commands]
    fence = "`" * max(
        3, *(len(run) + 1 for command in commands for run in re.findall(r"`+", command) or [""])
    )
    return ["## To repeat it", "", f"{fence}sh", *commands, fence]


def _metric(result: SearchResult) -> str:
    name = _METRICS.get(result.metric.lower(), _prose(result.metric))
    return f"{name} [{result.unit}]" if result.unit else name


def _number(value: float, result: SearchResult) -> str:
    if math.isnan(value):
        return "n/a"
    return f"{value:.1f}" if result.unit == "dB" else f"{value:.4f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _bytes(size: int) -> str:
    return f"{size / 1024:.1f} KiB" if size >= 1024 else f"{size} B"


def _sentence(text: str) -> str:
    text = _prose(text).strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


def _printable(text: str) -> str:
    """Return text on one line; model files choose the names of their layers."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _prose(text: str) -> str:
    """Return text without what Markdown would take for markup."""
    return re.sub(r"([\\`*\[\]<>|])", r"\\\1", _printable(text))


def _code(text: str) -> str:
    """Return a code span for a table cell, whatever the text holds."""
    text = _printable(text).replace("|", "\\|")
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


ENTRY = Exporter(
    name="markdown",
    title="Report for people",
    version="Tearline",
    tier=1,
    suffix=".md",
    write=write,
    read=read,
    needs_search=True,
)
