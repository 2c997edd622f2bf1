from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pandas as pd
import pytest

from analyzers.records import BisectStep, SliceError, Trial
from tests.workbench import answers
from workbench.tables import (
    bisect_table,
    db_words,
    filter_layers,
    interval_table,
    island_table,
    layer_table,
    painted,
    part_name,
    proof_table,
    row_of,
    short_name,
    sides_table,
    summary_of,
    to_csv,
    trial_table,
    unpaired_table,
    worst_first,
)


def test_there_is_a_row_per_operator_in_topological_order() -> None:
    result = answers.comparison(60)
    table = layer_table(result.layers)
    assert list(table["index"]) == list(range(60))
    assert list(table["node"]) == [r.node for r in result.layers]
    assert table["name"][9].endswith("=x onerror=alert(1)>")
    assert table["is_candidate"].sum() == sum("fallback_candidate" in r.flags for r in result.layers)


def test_an_operator_that_is_not_compared_has_no_number_and_no_grade_of_the_scale() -> None:
    row = layer_table(answers.comparison(60).layers).iloc[7]
    assert row["grade"] == "not compared"
    assert math.isnan(row["cosine"])
    assert math.isnan(row["nines"])


def test_the_worst_comes_first_and_the_undefined_last() -> None:
    table = worst_first(layer_table(answers.comparison(60).layers), "cosine")
    cosines = table["cosine"].tolist()
    assert cosines[:-1] == sorted(cosines[:-1])
    assert math.isnan(cosines[-1])


def test_filters_combine_and_take_names_literally() -> None:
    table = layer_table(answers.comparison(60).layers)
    assert set(filter_layers(table, ops=["Concat"])["op"]) == {"Concat"}
    assert set(filter_layers(table, grades=["bad"], ops=["Mul"])["grade"]) <= {"bad"}
    assert list(filter_layers(table, text="<IMG src")["node"]) == [answers.HOSTILE]
    assert filter_layers(table, text=".*").empty
    assert filter_layers(table, only_candidates=True)["is_candidate"].all()
    assert len(filter_layers(table)) == 60


def test_an_empty_comparison_gives_an_empty_table_with_all_columns() -> None:
    table = layer_table(())
    assert table.empty
    assert {"node", "cosine", "is_candidate"} <= set(table.columns)
    assert filter_layers(table, text="x").empty


def test_cells_that_a_spreadsheet_would_run_are_quoted() -> None:
    names = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "conv", answers.FORMULA]
    text = to_csv(pd.DataFrame({"name": names, "x": range(8)})).decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    cells = [row[0] for row in rows[1:]]
    assert cells == [f"'{n}" if n != "conv" else n for n in names]


def test_negative_numbers_stay_numbers_in_csv() -> None:
    assert to_csv(pd.DataFrame({"x": [-1.5]})).decode().splitlines() == ['"x"', "-1.5"]


def test_a_part_is_called_by_its_branch_or_its_indices() -> None:
    assert part_name(SliceError(1, 0, 4, 1.0, 30.0, "boxes")) == "boxes"
    assert part_name(SliceError(1, 7, 8, 1.0, 30.0)) == "axis 1 [7]"
    assert part_name(SliceError(2, 4, 85, 1.0, 30.0)) == "axis 2 [4:85]"


def test_grades_are_painted_in_their_colours() -> None:
    html = painted(layer_table(answers.comparison(60).layers)).to_html()
    assert "#e6761c" in html


def test_both_sides_are_listed_and_a_missing_one_is_empty() -> None:
    table = sides_table(answers.layer(3))
    assert table["reference"].tolist() == [-3.0, 4.0, 0.1, 1.0]
    assert sides_table(answers.unpaired_layer(3))["candidate"].isna().all()


def test_unpaired_tensors_say_why() -> None:
    assert unpaired_table(answers.comparison().unpaired)["reason"][0].startswith("its result is inside")


def test_the_interval_shrinks_to_the_culprit() -> None:
    result = answers.bisection(114, culprit=44)
    table = interval_table(result.steps, 114, result.threshold_db)
    widths = (table["stop"] - table["start"]).tolist()
    assert widths == sorted(widths, reverse=True)
    assert (table["start"].iloc[-1], table["stop"].iloc[-1]) == (44, 45)
    assert set(table["round"]) == {1}


def test_the_interval_opens_again_for_the_next_culprit() -> None:
    first = [BisectStep(c, "", "candidate-prefix", (), 5.0, is_bad=True) for c in (10, 5)]
    second = [BisectStep(c, "", "candidate-prefix", ("a",), 5.0, is_bad=True) for c in (10, 7)]
    table = interval_table([*first, *second], 10, 16.9)
    assert table["round"].tolist() == [1, 1, 2, 2]
    assert table["stop"].tolist() == [10, 5, 10, 7]


def test_the_interval_opens_again_where_half_of_the_loss_is_looked_for() -> None:
    """On a slope the threshold is crossed early; the second search looks between there and the end."""
    runs = [(10, 2.0), (5, 12.0), (2, 20.0), (3, 15.0), (7, 8.0), (9, 4.0)]
    steps = [BisectStep(c, "", "candidate-prefix", (), db, is_bad=db < 16.9) for c, db in runs]
    table = interval_table(steps, 10, 16.9)
    assert table["round"].tolist() == [1, 1, 1, 1, 2, 2]
    assert (table["start"].iloc[-1], table["stop"].iloc[-1]) == (7, 9)


def test_looking_at_the_ends_does_not_open_the_interval_again() -> None:
    """With nothing of the candidate the output must be good; that is looked at last."""
    runs = [(10, 2.0), (5, 12.0), (2, 20.0), (3, 19.0), (4, 18.0), (0, 200.0)]
    steps = [BisectStep(c, "", "candidate-prefix", (), db, is_bad=db < 16.9) for c, db in runs]
    table = interval_table(steps, 10, 16.9)
    assert set(table["round"]) == {1}
    assert (table["start"].iloc[-1], table["stop"].iloc[-1]) == (4, 5)


def test_the_level_of_a_later_round_is_taken_from_the_repair() -> None:
    steps = [
        BisectStep(10, "", "repair", ("a",), 2.0, is_bad=True),
        BisectStep(5, "", "candidate-prefix", ("a",), 12.0, is_bad=True),
        BisectStep(7, "", "candidate-prefix", ("a",), 8.0, is_bad=True),
        BisectStep(9, "", "candidate-prefix", ("a",), 4.0, is_bad=True),
    ]
    table = interval_table(steps, 10, 16.9)
    assert table["round"].tolist() == [1, 2, 2]
    assert (table["start"].iloc[-1], table["stop"].iloc[-1]) == (7, 9)


def test_decibels_are_put_into_words() -> None:
    assert [db_words(v) for v in (16.94, 200.0, math.inf, math.nan)] == ["16.9 dB", "exact", "exact", "n/a"]


def test_repairs_are_in_the_table_of_steps_but_not_in_the_strip() -> None:
    result = answers.bisection()
    assert len(bisect_table(result.steps)) == len(result.steps)
    assert "repair" not in set(interval_table(result.steps, 114, 16.9)["verdict"])
    assert len(interval_table(result.steps, 114, 16.9)) < len(result.steps)


def test_trials_say_whether_they_reach_the_target() -> None:
    table = trial_table(answers.trials(), 0.3262)
    assert table["verdict"].tolist()[:4] == ["misses", "reaches", "misses", "reaches"]
    assert set(trial_table(answers.trials(), None)["verdict"]) == {""}
    overflow = Trial(("a",), 0.9, 4, 1.0, "gallop", ("a",))
    assert trial_table([overflow], 0.5)["verdict"].tolist() == ["overflows"]


def test_trials_say_what_they_cost_in_percent() -> None:
    table = trial_table(answers.trials(), None)
    assert table["islands"].tolist()[:4] == [0, answers.trials()[1].islands, 1, 1]
    assert table["cost"].tolist()[3] == pytest.approx(6.0)


def test_each_island_is_a_row() -> None:
    result = replace(answers.search_result(), islands=(("a", "b"), ("c",)))
    table = island_table(result)
    assert table["names"].tolist() == ["a, b", "c"]
    assert table["layers"].tolist() == [2, 1]


def test_each_member_is_shown_with_its_proof() -> None:
    table = proof_table(answers.search_result())
    assert table["layer"].tolist() == ["Conv_41", "Conv_44"]
    assert table["score_without"].tolist() == [0.147, 0.151]
    assert (table["misses_by"] < 0).all()
    unproven = proof_table(answers.search_result(reached=False))
    assert unproven["verdict"].tolist() == ["not tried", "not tried"]


def test_long_lists_of_names_are_summed_up() -> None:
    assert summary_of(["a", "b"]) == "a, b"
    assert summary_of(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_a_fused_layer_is_shown_by_its_operator_that_has_a_twin() -> None:
    conv = replace(answers.unpaired_layer(0), node="conv", layer="conv", flags=("inner",))
    relu = replace(answers.layer(1), node="relu", layer="conv")
    other = answers.layer(2)
    assert row_of((conv, relu, other), "conv") == "relu"
    assert row_of((conv, relu, other), "relu") == "relu"
    assert row_of((conv, relu, other), other.node) == other.node
    assert row_of((conv, relu, other), "unknown") == "unknown"


def test_long_names_keep_their_end() -> None:
    assert short_name("/a/Conv") == "/a/Conv"
    assert short_name("/backbone" * 9 + "/Conv").endswith("/Conv")
    assert len(short_name("x" * 200)) == 36
