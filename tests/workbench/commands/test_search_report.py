from __future__ import annotations

from dataclasses import replace

from tests.workbench import answers
from workbench.commands.report import search_lines


def test_the_front_is_listed_by_cost_with_its_knee_named() -> None:
    lines = search_lines(answers.search_result())
    heads = lines[0].split()
    assert heads == ["cost", "score", "layers", "islands", "fallback"]
    rows = lines[1 : lines.index("")]
    assert [row.split()[0] for row in rows] == ["+0.0%", "+5.0%", "+6.0%", *[r.split()[0] for r in rows[3:]]]
    assert [row for row in rows if " knee " in row] == [rows[2]]


def test_scores_of_trials_that_ended_early_are_marked() -> None:
    result = answers.search_result()
    early = replace(result.front[1], samples=32)
    rows = search_lines(replace(result, front=(result.front[0], early)))[1:3]
    assert [" ~0.1510 " in row for row in rows] == [False, True]


def test_the_answer_comes_with_its_cost_and_its_islands() -> None:
    result = replace(answers.search_result(), islands=(("Conv_41",), ("Conv_44",)))
    text = "\n".join(search_lines(result))
    assert "cost on generic: +6.0% latency, 14.6% of the MACs in fp16, 2.0 MiB converted" in text
    assert "island 1: Conv_41\nisland 2: Conv_44" in text
    assert "cheaper:" not in text


def test_a_cheaper_set_is_offered_with_the_gaps_that_it_closes() -> None:
    result = answers.search_result()
    assert result.cheapest is not None
    three = replace(
        result.cheapest, fallback=("Conv_41", "Conv_42", "Conv_44"), score=0.3318, cost=0.045, islands=1
    )
    lines = search_lines(replace(result, cheapest=three, closed_gaps=("Conv_42",)))
    (line,) = [line for line in lines if line.startswith("cheaper:")]
    assert "Conv_41, Conv_42, Conv_44" in line
    assert "+4.5%" in line
    assert "0.3318" in line
    assert "closing the gaps at Conv_42" in line


def test_an_answer_that_needs_no_layer_has_no_cost_lines() -> None:
    text = "\n".join(search_lines(replace(answers.search_result(), fallback=(), islands=())))
    assert "cost on" not in text
    assert "island 1" not in text
