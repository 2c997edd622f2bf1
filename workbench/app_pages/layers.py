"""Layers: where candidate and reference part, along the depth of the network and layer by layer."""

from __future__ import annotations

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from analyzers.records import Comparison
from workbench import context, state, widgets
from workbench.charts import DEPTH_SELECTION, MEASURES, Measure, depth_chart
from workbench.commands.words import cosine, score
from workbench.grades import GRADES, NINES_LIMIT
from workbench.job_records import JobStatus
from workbench.layer_sheet import layer_sheet
from workbench.projects import Project
from workbench.run_page import run_page
from workbench.tables import filter_layers, layer_table, painted, row_of, to_csv, unpaired_table, worst_first

_CHART, _TABLE = "layers.chart", "layers.table"
_MEASURE_NAMES: dict[Measure, str] = {"cosine": "Cosine", "sqnr": "SQNR"}
_COLUMNS = (
    "name op grade cosine sqnr_db nines is_candidate isolated_cosine isolated_sqnr_db norm_ratio worst_part "
    "worst_part_db flags"
).split()


def page() -> None:
    """Draw the page."""
    run_page(
        "compare",
        title="Layers",
        lead="Where candidate and reference part: every operator with the error that has piled up to it, and "
        "with its own.",
        show=_show,
    )


def _show(_: Project, status: JobStatus) -> None:
    result = context.answer_of(status, Comparison)
    selected = row_of(result.layers, state.session().layer)
    if selected != state.session().layer:
        state.select_layer(selected)
    _summary(result)
    widgets.notices(result.warnings)
    measure = _measure()
    _depth(result, measure)
    left, right = st.columns([8, 5], gap="medium")
    with left:
        _table(result, measure)
    with right:
        layer_sheet(result, state.session().layer)
    _coverage(result)


def _summary(result: Comparison) -> None:
    marked = [r for r in result.layers if "fallback_candidate" in r.flags]
    paired = [r for r in result.layers if r.candidate_tensor is not None and r.cosine == r.cosine]
    if not paired:
        widgets.verdict(
            "Nothing could be compared", "No operator of the reference has a twin in the candidate."
        )
    elif not marked:
        widgets.verdict(f"No operator falls below cosine {result.threshold:g}")
    else:
        first = result.first_divergence
        where = f" The first layer to leave the path is **{widgets.plain(first)}**." if first else ""
        widgets.verdict(
            f"{len(marked)} of {len(paired)} operators fall below cosine {result.threshold:g}",
            f"They are the first fallback candidates.{where}",
        )
    items: list[widgets.Metric] = []
    for name, given in (("reference", result.reference_score), ("candidate", result.candidate_score)):
        if given is not None:
            items.append(
                (f"{widgets.metric_name(given.metric)} of the {name}", score(given.value, given.unit), "")
            )
    if result.outputs:
        worst = min(result.outputs, key=lambda o: o.sqnr_db if o.sqnr_db == o.sqnr_db else 1e9)
        items.append(("Worst output", f"{worst.sqnr_db:.1f} dB", f"SQNR of {worst.reference_tensor}"))
        if worst.worst_slice is not None:
            items.append(
                (
                    "Its worst part",
                    f"{worst.worst_slice.sqnr_db:.1f} dB",
                    worst.worst_slice.name or "a channel",
                )
            )
    if paired:
        low = min(paired, key=lambda r: r.cosine)
        items.append(("Lowest cosine", cosine(low.cosine), f"At {low.node}"))
    items.append(
        ("Layers paired", f"{result.coverage:.0%}", f"Over {result.samples} samples, mode {result.mode}")
    )
    widgets.metrics([(label, value, widgets.plain(text)) for label, value, text in items])


def _measure() -> Measure:
    chosen = st.segmented_control(
        "Measure",
        MEASURES,
        default="cosine",
        required=True,
        format_func=lambda m: _MEASURE_NAMES[m],
        key="layers.measure",
        bind="query-params",
        label_visibility="collapsed",
    )
    return "sqnr" if chosen == "sqnr" else "cosine"


def _depth(result: Comparison, measure: Measure) -> None:
    chart = depth_chart(
        result.layers, measure=measure, threshold=result.threshold, selected=state.session().layer
    )
    st.altair_chart(
        chart,
        key=_CHART,
        on_select=_from_chart,
        selection_mode=DEPTH_SELECTION,
        alt=f"{_MEASURE_NAMES[measure]} of every operator along the depth of the network",
    )
    widgets.grade_legend(threshold=result.threshold)


def _table(result: Comparison, measure: Measure) -> None:
    everything = layer_table(result.layers)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input("Name", placeholder="Find by name", key="layers.text", width=130)
        ops = st.multiselect(
            "Operator type",
            sorted(set(everything["op"])),
            key="layers.ops",
            placeholder="All types",
            width=150,
        )
        grades = st.multiselect(
            "Grade", [g.word for g in GRADES], key="layers.grades", placeholder="All grades", width=150
        )
        only = st.toggle("Candidates only", key="layers.only")
    shown = filter_layers(everything, text=text, ops=ops, grades=grades, only_candidates=only)
    shown = worst_first(shown, "cosine" if measure == "cosine" else "sqnr_db")
    if shown.empty:
        st.caption("No operator fits these conditions.")
        return
    nodes = tuple(str(n) for n in shown["node"])
    selected = state.session().layer
    wanted = (nodes.index(selected),) if selected in nodes else ()
    if state.selected_rows(_TABLE) != wanted:
        state.select_rows(_TABLE, wanted)
    st.dataframe(
        painted(shown),
        key=_TABLE,
        on_select=lambda: _from_table(nodes),
        selection_mode="single-row",
        hide_index=True,
        height=520,
        column_order=_COLUMNS,
        column_config=_column_config(),
        alt="Operators, worst first",
    )
    st.download_button(
        "Download as CSV",
        data=lambda: to_csv(everything),
        file_name="layers.csv",
        mime="text/csv",
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
    )


def _column_config() -> dict[str, ColumnConfig]:
    number = st.column_config.NumberColumn
    return {
        "is_candidate": st.column_config.CheckboxColumn(
            "FP16?", help="First fallback candidate: its cosine is below the threshold", width=60
        ),
        "name": st.column_config.TextColumn("Operator", pinned=True, width=210),
        "op": st.column_config.TextColumn("Type", width=90),
        "grade": st.column_config.TextColumn("Grade", width=80),
        "nines": st.column_config.ProgressColumn(
            "Nines",
            width=100,
            min_value=0,
            max_value=NINES_LIMIT,
            format="%.1f",
            help="How many nines the cosine begins with",
        ),
        "cosine": number("Cosine", format="%.5f"),
        "sqnr_db": number("SQNR dB", format="%.1f", help="Signal to quantization noise; higher is better"),
        "isolated_cosine": number("Alone: cosine", format="%.5f", help="Fed with the reference's values"),
        "isolated_sqnr_db": number("Alone: dB", format="%.1f"),
        "norm_ratio": number("Norm", format="%.3f", help="Norm of the candidate over that of the reference"),
        "worst_part": st.column_config.TextColumn("Worst part", help="Branch of a Concat, or channel"),
        "worst_part_db": number("Its dB", format="%.1f"),
        "flags": st.column_config.TextColumn("Flags"),
    }


def _coverage(result: Comparison) -> None:
    if not result.unpaired:
        st.caption(f"All operators of the reference have a twin; {result.coverage:.0%} of the layers pair.")
        return
    count = len(result.unpaired)
    words = f"{count} tensor{'s' if count > 1 else ''} of the reference without a twin"
    with st.expander(words, icon=":material/link_off:"):
        st.caption(
            f"{result.coverage:.0%} of the layers pair. What is not paired is not compared, never guessed."
        )
        st.dataframe(unpaired_table(result.unpaired), hide_index=True, alt="Tensors without a twin")


def _from_chart() -> None:
    node = state.selected_point(_CHART, DEPTH_SELECTION, "node")
    if node:
        state.select_layer(node)


def _from_table(nodes: tuple[str, ...]) -> None:
    rows = state.selected_rows(_TABLE)
    state.select_layer(nodes[rows[0]] if rows and rows[0] < len(nodes) else "")


if __name__ == "__main__":
    page()
