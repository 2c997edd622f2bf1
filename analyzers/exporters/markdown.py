"""The finding in words, for people: for a pull request, an issue, a colleague."""

from __future__ import annotations

import math
import re
from pathlib import Path

from analyzers.errors import InputError
from analyzers.exporters import Exporter, ExportRequest, Written
from analyzers.exporters._markup import code_span, count, data_size, printable, prose, sentence
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
        [f"# FP16 fallback for {code_span(report.reference.path.name)}", "", _verdict(report.search)],
        _scores(report.search),
        _members(report),
        _costs(report.search),
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
    names = {code_span(layer.name): layer.name for layer in pair.pairing.layers}
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
            f"the INT8 candidate has {before}, the FP32 reference {best}. {sentence(result.reason)}"
        )
    if not result.fallback:
        return (
            f"**Nothing has to leave INT8.** The candidate has {metric} {before}, the target is {target}, "
            f"the FP32 reference has {best}."
        )
    layers = count(len(result.fallback), "layer")
    nodes = count(len(result.fallback_nodes), "node")
    precision = result.precision.upper()
    return (
        f"**Keeping {layers} ({nodes}) in {precision} brings {metric} from {before} to {after}.** "
        f"The target is {target}, the FP32 reference has {best}. {_minimality(result)}"
    )


def _minimality(result: SearchResult) -> str:
    if result.minimal:
        text = "Taking any one member back to INT8 misses the target; each of these trials is listed below."
        return f"{text}{_confidence(result)}"
    return "It is not shown that every member is needed; see the table below."


def _confidence(result: SearchResult) -> str:
    """Return what paired resamples of the images say of the members."""
    found = result.statistics
    if found is None:
        return ""
    text = (
        f" On {found.confidence:.0%} of {found.resamples} paired resamples of the {found.images} images the "
        f"set reaches the target."
    )
    if result.undecided:
        text += (
            f" Undecided, since the set without it misses on fewer than 95 %: {', '.join(result.undecided)}."
        )
    if found.proven_set is not None:
        alone = found.proven_set
        text += (
            f" The proven members alone ({', '.join(alone.fallback)}) give {_number(alone.score, result)}."
        )
    return text


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
        f"{count(result.samples, 'sample')}, on which {count(tried, 'set')} were tried: on other samples "
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
    nodes = ", ".join(code_span(node) for node in member.nodes)
    without = "not tried" if member.without is None else _number(member.without.score, result)
    verdict = (
        "needed"
        if member.is_needed
        else ("not shown" if member.without is None else "not needed for the target")
    )
    return (
        f"| {code_span(member.layer)} | {member.op_type} | {nodes} | {data_size(member.weight_bytes)} | "
        f"{without} | {verdict} |"
    )


def _costs(result: SearchResult) -> list[str]:
    cost = result.plan_cost
    if cost is None or not result.fallback:
        return []
    lines = [
        "## What it costs",
        "",
        f"Target profile {code_span(result.target_profile)}, a model that orders plans and forecasts no "
        f"milliseconds: **{cost.cost:+.1%} latency** against the network in INT8 throughout. "
        f"{cost.macs_fraction:.1%} of the multiply-accumulates and {data_size(cost.weight_bytes)} of weights "
        f"are in {result.precision.upper()}, {data_size(cost.converted_bytes)} are converted at precision "
        f"borders, in {count(cost.islands, 'island')}:",
        "",
    ]
    lines += [
        f"{place}. {', '.join(code_span(layer) for layer in layers)}"
        for place, layers in enumerate(result.islands, start=1)
    ]
    cheapest = result.cheapest
    if cheapest is not None and cheapest.cost < cost.cost:
        more = [layer for layer in cheapest.fallback if layer not in result.fallback]
        fewer = [layer for layer in result.fallback if layer not in cheapest.fallback]
        change = [
            f"{word} {', '.join(map(code_span, layers))}"
            for word, layers in (("with", more), ("without", fewer))
            if layers
        ]
        lines += [
            "",
            f"Cheaper, though not every layer of it is needed: the set {' and '.join(change)} costs "
            f"{cheapest.cost:+.1%} in {count(cheapest.islands, 'island')} and scores "
            f"{_number(cheapest.score, result)}.",
        ]
    return lines


def _method(result: SearchResult) -> list[str]:
    fidelity = result.fidelity
    lines = [
        "## How it was found",
        "",
        f"- Storage rule `{result.rule}`, fallback precision {result.precision.upper()}, session mode "
        f"`{result.mode}`. The set is minimal, if at all, for this rule only.",
        f"- {count(len(result.trials), 'trial')}, {result.evaluations:.1f} full-set equivalents, ranking "
        "included.",
        f"- {sentence(result.reason)}",
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
        f"| cost | layers | islands | {_metric(result)} | set |",
        "|---:|---:|---:|---:|---|",
    ]
    for point in result.front[:_FRONT_ROWS]:
        shown = ", ".join(code_span(layer) for layer in point.fallback[:_FRONT_ROWS]) or "none"
        if len(point.fallback) > _FRONT_ROWS:
            shown += f" and {len(point.fallback) - _FRONT_ROWS} more"
        cost = "n/a" if math.isnan(point.cost) else f"{point.cost:+.1%}"
        if result.knee is not None and point.fallback == result.knee.fallback:
            cost += " (knee)"
        value = ("~" if 0 < point.samples < result.samples else "") + _number(point.score, result)
        lines.append(f"| {cost} | {point.layers} | {point.islands} | {value} | {shown} |")
    return lines


def _warnings(report: Report) -> list[str]:
    notices = report.search.warnings
    if not notices:
        return []
    return [
        "## Warnings",
        "",
        *(
            f"- `{n.code}`: {prose(n.message)}{f' ({code_span(n.where)})' if n.where else ''}"
            for n in notices
        ),
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
    given = [f"{name} {code_span(str(value))}" for name, value in named.items() if value is not None]
    return [*lines, *(["", f"Given: {', '.join(given)}."] if given else [])]


def _model(role: str, facts: ModelFacts) -> str:
    made_by = code_span(facts.producer) if facts.producer else ""
    return f"| {role} | {code_span(facts.path.name)} | `{facts.digest}` | {facts.opset} | {made_by} |"


def _commands(report: Report) -> list[str]:
    if not report.commands:
        return []
    commands = [printable(command) for command in report.commands]
    fence = "`" * max(
        3, *(len(run) + 1 for command in commands for run in re.findall(r"`+", command) or [""])
    )
    return ["## To repeat it", "", f"{fence}sh", *commands, fence]


def _metric(result: SearchResult) -> str:
    name = _METRICS.get(result.metric.lower(), prose(result.metric))
    return f"{name} [{result.unit}]" if result.unit else name


def _number(value: float, result: SearchResult) -> str:
    if math.isnan(value):
        return "n/a"
    return f"{value:.1f}" if result.unit == "dB" else f"{value:.4f}"


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
