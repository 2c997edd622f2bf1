"""Fallback: the smallest set of layers to keep in FP16 so that the score reaches the target."""

from __future__ import annotations

import math

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from analyzers.records import Score, SearchOptions, SearchResult, Trial
from workbench import context, state, widgets
from workbench.commands.words import data_size, extra, number, score
from workbench.job_records import Event, JobStatus
from workbench.projects import Project
from workbench.run_page import run_page
from workbench.runs import partial_records, read_search_options
from workbench.search_chart import CostAxis, Levels, search_chart
from workbench.tables import island_table, proof_table, summary_of, to_csv, trial_table
from workbench.widgets import plain

_PRECISIONS = {"fp16": "FP16", "fp32": "FP32"}
_COST_AXES: dict[CostAxis, str] = {"cost": "Latency", "layers": "Layers"}


def page() -> None:
    """Draw the page."""
    run_page(
        "search",
        title="Fallback",
        lead="The smallest set of layers that has to leave INT8 so that the score reaches the target.",
        show=_show,
        show_partial=_show_partial,
    )


def _show(_: Project, status: JobStatus) -> None:
    result = context.answer_of(status, SearchResult)
    _headline(result)
    _levels(result)
    widgets.notices(result.warnings)
    if result.fallback:
        _members(result)
        _costs(result)
    st.subheader("Score against cost", anchor=False)
    levels = Levels(result.reference_score, result.candidate_score, result.all_fallback_score, result.target)
    knee = None if result.knee is None else result.knee.fallback
    _chart(result.trials, levels, result.metric, result.unit, chosen=result.fallback, knee=knee)
    _trials(result.trials, result.target)


def _headline(result: SearchResult) -> None:
    precision = _PRECISIONS[result.precision]
    shown = score(result.score, result.unit)
    if not result.reached:
        widgets.verdict("The target is not reached", plain(result.reason))
    elif not result.fallback:
        widgets.verdict(
            "The candidate passes as it is",
            f"It scores {shown}; the target is {score(result.target, result.unit)}.",
        )
    else:
        count = len(result.fallback)
        words = "1 layer" if count == 1 else f"{count} layers"
        widgets.verdict(f"Keep {words} in {precision} and the score is {shown}", f"{plain(result.reason)}.")


def _levels(result: SearchResult) -> None:
    def shown(value: float) -> str:
        return score(value, result.unit)

    items: list[widgets.Metric] = [
        ("Reference", shown(result.reference_score), f"{result.metric} of the FP32 model"),
        ("Candidate", shown(result.candidate_score), "The INT8 model as it is"),
        ("This set", shown(result.score), "Scored on the whole set"),
        ("Target", shown(result.target), "Lowest acceptable score"),
        ("All in fallback", shown(result.all_fallback_score), "Every layer out of INT8"),
        ("Search", f"{result.evaluations:.1f} sets", f"Runs of the whole set; {len(result.trials)} trials"),
    ]
    cost = result.plan_cost
    if cost is not None and result.fallback:
        on = f"latency on target {plain(result.target_profile)}, estimated; against all in INT8"
        items.append(("Cost", extra(cost.cost), f"Extra {on}"))
        items.append(("Islands", str(cost.islands), "Connected parts; each is one more synchronisation"))
    if result.holdout_score is not None:
        items.append(("Held-out samples", shown(result.holdout_score), "Samples that the search did not use"))
    widgets.metrics(items)


def _members(result: SearchResult) -> None:
    table = proof_table(result)
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            color: widgets.Color = "green" if result.minimal else "orange"
            icon = ":material/verified:" if result.minimal else ":material/help:"
            st.badge("minimal" if result.minimal else "not shown to be minimal", icon=icon, color=color)
            st.caption(
                f"{_PRECISIONS[result.precision]}, storage rule {result.rule}, {result.samples} samples"
                f"{_fidelity(result)}",
                width="stretch",
            )
        st.dataframe(
            table,
            key="fallback.members",
            on_select=lambda: _go_to_layer(tuple(str(v) for v in table["layer"])),
            selection_mode="single-row",
            hide_index=True,
            column_config={
                "layer": st.column_config.TextColumn("Layer", width="large"),
                "score_without": st.column_config.NumberColumn("Score without it", format="%.4f"),
                "misses_by": st.column_config.NumberColumn("Against the target", format="%+.4f"),
                "verdict": st.column_config.TextColumn("Proof"),
            },
            alt="Members of the set, each with the score of the set without it",
        )
        st.caption(
            "Each row is a trial: the set without that layer. Select a row to see the layer on page Layers."
        )


def _costs(result: SearchResult) -> None:
    """Show what the set costs on the target, its islands, and what would cost less."""
    cost = result.plan_cost
    if cost is None:
        return
    st.subheader("Islands and cost", anchor=False)
    st.caption(
        f"{number(cost.macs_fraction * 100, 1)} % of the multiply-accumulates leave INT8, with "
        f"{data_size(cost.weight_bytes)} of weights; {data_size(cost.converted_bytes)} are converted at "
        f"their borders. Costs are a model of target {plain(result.target_profile)}: they order plans."
    )
    st.dataframe(
        island_table(result),
        hide_index=True,
        column_config={
            "island": st.column_config.NumberColumn("Island", width=60),
            "layers": st.column_config.NumberColumn("Layers", width=70),
            "names": st.column_config.TextColumn("Names", width="large"),
        },
        alt="Islands of the set, each with its layers",
    )
    cheapest = result.cheapest
    if cheapest is not None and cheapest.cost < cost.cost:
        gaps = (
            f", which closes the gaps at {plain(', '.join(result.closed_gaps))}" if result.closed_gaps else ""
        )
        st.info(
            f"Cheaper by the cost model, though with more layers than are needed{gaps}: "
            f"{plain(summary_of(cheapest.fallback, shown=12))}. Extra latency {extra(cheapest.cost)} "
            f"instead of {extra(cost.cost)}, score {score(cheapest.score, result.unit)}.",
            icon=":material/savings:",
        )


def _fidelity(result: SearchResult) -> str:
    gap = result.fidelity.gap
    return f", simulated and given candidate differ by {number(gap)}" if gap > 0 else ""


def _go_to_layer(layers: tuple[str, ...]) -> None:
    rows = state.selected_rows("fallback.members")
    if rows:
        state.select_layer(layers[rows[0]])


def _show_partial(_: Project, status: JobStatus, events: tuple[Event, ...]) -> None:
    trials = partial_records(events, Trial)
    if not trials:
        return
    reference = next(iter(partial_records(events, Score)), Score(math.nan, "score"))
    levels = _levels_so_far(trials, reference.value, read_search_options(context.jobs(), status.id))
    st.subheader("Score against cost", anchor=False)
    _chart(trials, levels, reference.metric, reference.unit)
    target = None if math.isnan(levels.target) else levels.target
    st.dataframe(
        trial_table(trials, target).iloc[::-1],
        hide_index=True,
        column_config=_trial_columns(),
        alt="Trials so far, newest first",
    )


def _levels_so_far(trials: tuple[Trial, ...], reference: float, options: SearchOptions) -> Levels:
    by_stage = {t.stage: t.score for t in trials}
    target = options.target if options.target is not None else reference - (options.max_drop or 0.0)
    return Levels(
        reference=reference,
        candidate=by_stage.get("candidate", math.nan),
        all_fallback=by_stage.get("all-fallback", math.nan),
        target=target,
    )


def _chart(
    trials: tuple[Trial, ...],
    levels: Levels,
    metric: str,
    unit: str,
    *,
    chosen: tuple[str, ...] | None = None,
    knee: tuple[str, ...] | None = None,
) -> None:
    by: CostAxis = "layers"
    if any(not math.isnan(trial.cost) for trial in trials):
        by = st.segmented_control(
            "Cost as",
            list(_COST_AXES),
            default="cost",
            required=True,
            format_func=lambda axis: _COST_AXES[axis],
            key="fallback.axis",
        )
    st.altair_chart(
        search_chart(trials, levels, chosen=chosen, knee=knee, metric=metric, unit=unit, by=by),
        key="fallback.curve",
        alt="Score of every tried set against its cost",
    )
    st.caption(
        "● reaches the target, ◆ misses it, ▲ overflows in half precision; the line is the best so far."
    )


def _trials(trials: tuple[Trial, ...], target: float) -> None:
    table = trial_table(trials, target)
    with st.expander(f"All {len(table)} trials", icon=":material/table_rows:"):
        st.dataframe(table, hide_index=True, column_config=_trial_columns(), alt="Trials in order")
        st.download_button(
            "Download as CSV",
            data=lambda: to_csv(table),
            file_name="trials.csv",
            mime="text/csv",
            on_click="ignore",
            icon=":material/download:",
            type="tertiary",
        )


def _trial_columns() -> dict[str, ColumnConfig]:
    return {
        "trial": st.column_config.NumberColumn("Trial", width=60),
        "layers": st.column_config.NumberColumn("Layers", width=70),
        "fallback": st.column_config.TextColumn("Set", width="large"),
        "score": st.column_config.NumberColumn("Score", format="%.4f"),
        "verdict": st.column_config.TextColumn("Outcome"),
        "stage": st.column_config.TextColumn("Stage"),
        "cost": st.column_config.NumberColumn(
            "Latency", format="%+.1f %%", help="By the target's cost model"
        ),
        "islands": st.column_config.NumberColumn("Islands", width=70),
        "samples": st.column_config.NumberColumn("Samples"),
        "seconds": st.column_config.NumberColumn("Seconds", format="%.1f", help="0: known from before"),
    }


if __name__ == "__main__":
    page()
