"""Answers as text on stdout: tables that keep their shape in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from analyzers.records import (
    BisectResult,
    BisectStep,
    Comparison,
    FrontPoint,
    LayerRecord,
    Notice,
    QuantizeResult,
    SearchResult,
)
from workbench.commands.words import (
    cosine,
    data_size,
    decibels,
    extra,
    harmless,
    number,
    printable,
    say,
    score,
)

_GAP = "  "
_SHOWN_UNPAIRED = 10
_SHOWN_NAMES = 8


def show(lines: Sequence[str]) -> None:
    """Write lines to stdout."""
    sys.stdout.write("".join(f"{harmless(line)}\n" for line in lines))
    sys.stdout.flush()


def warn(notices: Sequence[Notice]) -> None:
    """Write warnings to stderr."""
    for notice in notices:
        where = f", {notice.where}" if notice.where else ""
        say(f"warning[{notice.code}]: {notice.message}{where}")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = ()) -> list[str]:
    """Return aligned lines, columns named in ``right`` to the right; nothing is cut off."""
    cells = [[printable(c) for c in row] for row in (heads, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    return [
        _GAP.join(
            c.rjust(w) if head in right else c.ljust(w) for c, w, head in zip(row, widths, heads, strict=True)
        ).rstrip()
        for row in cells
    ]


def quantization_lines(result: QuantizeResult) -> list[str]:
    """Return what a user wants to know of a new candidate."""
    lines = [f"candidate: {result.candidate} ({len(result.samples)} calibration samples)"]
    if result.float_operators:
        lines.append(f"operators kept in float: {', '.join(result.float_operators)}")
    return lines


def comparison_lines(result: Comparison) -> list[str]:
    """Return a row per operator, then the summary, which a terminal shows last."""
    return [*layer_table(result.layers), "", *comparison_summary(result)]


def layer_table(layers: Sequence[LayerRecord]) -> list[str]:
    """Return a row per operator."""
    heads = (
        "",
        "node",
        "type",
        "cosine",
        "SQNR dB",
        "norm",
        "alone: cosine",
        "SQNR dB",
        "worst part",
        "flags",
    )
    return table(heads, [_layer_row(layer) for layer in layers], right=heads[3:8])


def comparison_summary(result: Comparison) -> list[str]:
    """Return what a comparison found, without the rows."""
    lines: list[str] = []
    marked = sum("fallback_candidate" in layer.flags for layer in result.layers)
    lines.append(f"* {marked} operators below cosine {result.threshold:g}: first fallback candidates")
    lines.append(f"{result.coverage:.1%} of the layers paired, {result.samples} samples, mode {result.mode}")
    unpaired = [f"unpaired: {u.tensor} ({u.reason})" for u in result.unpaired]
    lines.extend(unpaired[:_SHOWN_UNPAIRED])
    if len(unpaired) > _SHOWN_UNPAIRED:
        lines.append(f"... and {len(unpaired) - _SHOWN_UNPAIRED} more unpaired tensors, see --json")
    lines.append(f"first divergence: {result.first_divergence or 'none'}")
    lines.extend(
        f"output {o.reference_tensor}: cosine {cosine(o.cosine)}, SQNR {decibels(o.sqnr_db)} dB, "
        f"worst part {_worst_part(o)}"
        for o in result.outputs
    )
    for name, given in (("reference", result.reference_score), ("candidate", result.candidate_score)):
        if given is not None:
            lines.append(f"{name} {given.metric}: {score(given.value, given.unit)}")
    return lines


def bisection_lines(result: BisectResult) -> list[str]:
    """Return every hybrid that was run, then the culprits."""
    heads = ("cut", "after layer", "direction", "SQNR dB", "", "repaired")
    lines = [*table(heads, [_bisect_row(s) for s in result.steps], right=("cut", "SQNR dB")), ""]
    lines.append(f"first divergence: {result.first_divergence or 'none'}")
    for culprit in result.culprits:
        proof = "confirmed by repair" if culprit.is_confirmed else "not confirmed"
        lines.append(
            f"culprit: {culprit.layer} ({proof}; {decibels(culprit.good.sqnr_db)} dB before it, "
            f"{decibels(culprit.bad.sqnr_db)} dB after it, {decibels(culprit.repaired_sqnr_db)} dB repaired)"
        )
    if not result.monotone:
        lines.append("not monotone: errors of some layers cancel each other")
    lines.append(
        f"verdict: {result.verdict} ({result.metric} {decibels(result.candidate_sqnr_db)} dB, "
        f"threshold {decibels(result.threshold_db)} dB, "
        f"{len(result.steps)} hybrids on {result.samples} samples)"
    )
    return lines


def search_lines(result: SearchResult) -> list[str]:
    """Return the front, then the answer."""
    heads = ("cost", "score", "layers", "islands", "", "fallback")
    rows = [_front_row(point, result) for point in result.front]
    shown = {
        "reference": result.reference_score,
        "candidate": result.candidate_score,
        "all in fallback": result.all_fallback_score,
        "target": result.target,
        "this set": result.score,
    }
    lines = [*table(heads, rows, right=heads[:4]), ""]
    lines.append(f"{result.metric}: " + ", ".join(f"{k} {score(v, result.unit)}" for k, v in shown.items()))
    if result.holdout_score is not None:
        lines.append(f"on samples that the search did not use: {score(result.holdout_score, result.unit)}")
    if result.fidelity.gap > 0:
        lines.append(f"simulated and given candidate differ by {number(result.fidelity.gap)}")
    minimal = ", 1-minimal" if result.minimal and result.fallback else ""
    lines.append(
        f"{len(result.trials)} trials, {result.evaluations:.1f} full-set evaluations, "
        f"rule {result.rule}{minimal}"
    )
    lines += _cost_lines(result)
    lines += _statistics_lines(result)
    lines.append(f"fallback in {result.precision}: {', '.join(result.fallback) or 'none needed'}")
    lines.append(f"{'reached' if result.reached else 'NOT reached'}: {result.reason}")
    return lines


def _statistics_lines(result: SearchResult) -> list[str]:
    """Return what paired resamples of the images say; the cheap set of proven members comes first."""
    found = result.statistics
    if found is None:
        return []
    lines = []
    first = found.proven_set
    if first is not None:
        lines.append(
            f"proven alone: {', '.join(first.fallback)}: {score(first.score, result.unit)}, reaches the "
            f"target on {first.confidence:.0%} of resamples"
        )
    lines.append(
        f"this set reaches the target on {found.confidence:.0%} of {found.resamples} paired resamples of "
        f"{found.images} images; {found.sets_tried} sets were tried on them"
    )
    lines += [
        f"{'proven' if member.is_proven else 'undecided'}: {member.layer}: without it "
        f"{score(member.score, result.unit)}, misses on {member.missing_fraction:.0%}"
        for member in found.members
    ]
    return lines


def _front_row(point: FrontPoint, result: SearchResult) -> tuple[str, ...]:
    is_knee = result.knee is not None and point.fallback == result.knee.fallback
    return (
        extra(point.cost),
        f"{'~' if 0 < point.samples < result.samples else ''}{score(point.score, result.unit)}",
        str(point.layers),
        str(point.islands),
        "knee" if is_knee else "",
        _some(point.fallback),
    )


def _cost_lines(result: SearchResult) -> list[str]:
    """Return what the answer costs on the target, its islands, and what would cost less."""
    cost = result.plan_cost
    if cost is None or not result.fallback:
        return []
    lines = [
        f"cost on {result.target_profile or 'any target'}: {extra(cost.cost)} latency, "
        f"{number(cost.macs_fraction * 100, 1)}% of the MACs in {result.precision}, "
        f"{data_size(cost.converted_bytes)} converted at its borders"
    ]
    lines += [f"island {place}: {', '.join(layers)}" for place, layers in enumerate(result.islands, start=1)]
    cheapest = result.cheapest
    if cheapest is not None and cheapest.cost < cost.cost:
        closing = f", closing the gaps at {', '.join(result.closed_gaps)}" if result.closed_gaps else ""
        lines.append(
            f"cheaper: {_some(cheapest.fallback)} ({extra(cheapest.cost)}, "
            f"{score(cheapest.score, result.unit)}, islands: {cheapest.islands}){closing}"
        )
    return lines


def _layer_row(layer: LayerRecord) -> tuple[str, ...]:
    alone = layer.isolated
    return (
        "*" if "fallback_candidate" in layer.flags else "",
        layer.node,
        layer.op_type,
        cosine(layer.cosine),
        decibels(layer.sqnr_db),
        number(layer.norm_ratio, 3),
        "" if alone is None else cosine(alone.cosine),
        "" if alone is None else decibels(alone.sqnr_db),
        " ".join(f for f in layer.flags if f != "fallback_candidate"),
        _worst_part(layer),
    )


def _worst_part(layer: LayerRecord) -> str:
    part = layer.worst_slice
    if part is None:
        return ""
    # As numpy would index it.
    span = f"{part.start}" if part.stop == part.start + 1 else f"{part.start}:{part.stop}"
    index = f"[{':,' * part.axis}{span}]"
    return f"{part.name or index} {decibels(part.sqnr_db)} dB"


def _some(names: Sequence[str]) -> str:
    """Return names for a row; whole layers of a network would fill the screen."""
    if len(names) <= _SHOWN_NAMES:
        return ", ".join(names)
    shown = ", ".join(names[: _SHOWN_NAMES // 2])
    return f"{shown} and {len(names) - _SHOWN_NAMES // 2} more"


def _bisect_row(step: BisectStep) -> tuple[str, ...]:
    return (
        str(step.cut),
        step.layer or "-",
        step.direction,
        decibels(step.sqnr_db),
        "bad" if step.is_bad else "good",
        ", ".join(step.repaired),
    )
