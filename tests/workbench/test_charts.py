from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from analyzers.records import Trial
from tests.workbench import answers
from workbench.charts import DEPTH_SELECTION, MEASURES, Measure, bisect_chart, depth_chart
from workbench.grades import GRADES
from workbench.search_chart import Levels, search_chart

Spec = dict[str, Any]


def test_every_compared_operator_is_a_point_in_the_colour_of_its_grade() -> None:
    result = answers.comparison(60)
    spec = depth_chart(result.layers, measure="cosine", threshold=0.99).to_dict()
    points = _part(spec, "circle")
    rows = _rows(spec, points)
    assert len(rows) == 59
    assert points["encoding"]["color"]["scale"]["range"] == [g.color for g in GRADES]
    assert {r["step"] for r in rows} <= {g.word for g in GRADES}


def test_operators_that_are_not_compared_lie_on_the_floor_outside_the_scale() -> None:
    spec = depth_chart(answers.comparison(60).layers, measure="cosine", threshold=0.99).to_dict()
    crosses = _part(spec, "point")
    assert [r["node"] for r in _rows(spec, crosses)] == ["Sigmoid_7"]
    assert "color" not in crosses["encoding"]


@pytest.mark.parametrize("measure", MEASURES)
def test_a_click_selects_a_node_by_its_name(measure: Measure) -> None:
    spec = depth_chart(answers.comparison(60).layers, measure=measure, threshold=0.99).to_dict()
    params = [p for p in spec["params"] if p["name"] == DEPTH_SELECTION]
    assert params[0]["select"]["fields"] == ["node"]


def test_the_selected_operator_is_marked_and_an_unknown_one_is_not() -> None:
    layers = answers.comparison(60).layers
    marked = depth_chart(layers, measure="cosine", threshold=0.99, selected="Mul_2").to_dict()
    plain = depth_chart(layers, measure="cosine", threshold=0.99, selected="nowhere").to_dict()
    assert len(marked["layer"]) == len(plain["layer"]) + 1


def test_infinite_and_undefined_numbers_can_be_drawn() -> None:
    exact = replace(answers.layer(0), cosine=1.0, sqnr_db=math.inf, isolated=None)
    for measure in MEASURES:
        spec = depth_chart([exact, answers.unpaired_layer(1)], measure=measure, threshold=1.0).to_dict()
        assert all(math.isfinite(r["value"]) for r in _rows(spec, _part(spec, "circle")))
    assert depth_chart([], measure="cosine", threshold=0.99).to_dict()


def test_names_stay_data_whatever_they_are() -> None:
    spec = depth_chart(answers.comparison(60).layers, measure="cosine", threshold=0.99).to_dict()
    names = {r["node"] for r in _rows(spec, _part(spec, "circle"))}
    assert answers.HOSTILE in names
    assert answers.HOSTILE not in str({k: v for k, v in spec.items() if k != "datasets"})


def test_the_strip_has_a_row_per_halving_run() -> None:
    result = answers.bisection(114, culprit=44)
    spec = bisect_chart(result.steps, length=114, threshold_db=16.9).to_dict()
    rows = _rows(spec, _part(spec, "point"))
    assert len(rows) == sum(s.direction == "candidate-prefix" for s in result.steps)
    assert all(r["right"] > r["start"] for r in rows)
    assert len({r["row"] for r in rows}) == len(rows)


def test_a_strip_without_runs_can_be_drawn() -> None:
    assert bisect_chart((), length=0, threshold_db=16.9).to_dict()


def test_the_line_is_the_best_score_so_far_and_never_falls() -> None:
    spec = search_chart(answers.trials(), _levels()).to_dict()
    stairs = _rows(spec, _part(spec, "line"))
    assert [r["score"] for r in stairs] == sorted(r["score"] for r in stairs)
    assert [(r["layers"], r["score"]) for r in stairs][:3] == [(0, 0.139), (1, 0.151), (2, 0.3301)]


def test_overflowing_trials_do_not_lift_the_line() -> None:
    trials = (Trial((), 0.1, 4, 1.0, "candidate"), Trial(("a",), 0.9, 4, 1.0, "gallop", ("a",)))
    spec = search_chart(trials, Levels(target=0.5)).to_dict()
    assert max(r["score"] for r in _rows(spec, _part(spec, "line"))) == 0.1
    assert [r["outcome"] for r in _rows(spec, _part(spec, "point"))] == ["misses", "overflows"]


def test_the_plan_of_all_layers_is_a_level_and_not_a_point() -> None:
    spec = search_chart(answers.trials(), _levels()).to_dict()
    assert max(r["layers"] for r in _rows(spec, _part(spec, "point"))) == 4
    labels = [r["label"] for rows in spec["datasets"].values() for r in rows if "label" in r]
    assert {"reference 0.3412", "target 0.3262", "all in fallback 0.3409", "candidate 0.139"} <= set(labels)


def test_unknown_levels_are_left_out() -> None:
    spec = search_chart(answers.trials()[:1], Levels()).to_dict()
    assert not [r for rows in spec["datasets"].values() for r in rows if "label" in r]
    assert [r["outcome"] for r in _rows(spec, _part(spec, "point"))] == ["scored"]


def test_an_exact_reference_does_not_stretch_the_scale() -> None:
    spec = search_chart(answers.trials()[:1], Levels(reference=200.0, target=20.0), unit="dB").to_dict()
    labels = [r["label"] for rows in spec["datasets"].values() for r in rows if "label" in r]
    assert labels == ["target 20"]


def test_the_answer_is_ringed() -> None:
    with_ring = search_chart(answers.trials(), _levels(), chosen=("Conv_44", "Conv_41")).to_dict()
    assert len(with_ring["layer"]) == len(search_chart(answers.trials(), _levels()).to_dict()["layer"]) + 1
    ring = with_ring["layer"][-1]
    assert _rows(with_ring, ring) == [{"layers": 2, "score": 0.3301}]


def test_latency_can_be_the_cost_and_sets_without_one_have_no_place() -> None:
    unpriced = Trial(("odd",), 0.9, 128, 1.0, "gallop")
    spec = search_chart((*answers.trials(), unpriced), _levels(), by="cost").to_dict()
    stairs = _rows(spec, _part(spec, "line"))
    assert [r["cost"] for r in stairs] == sorted(r["cost"] for r in stairs)
    assert [r["score"] for r in stairs] == sorted(r["score"] for r in stairs)
    assert max(r["score"] for r in stairs) < 0.9
    assert _part(spec, "point")["encoding"]["x"]["field"] == "cost"


def test_the_knee_is_marked() -> None:
    spec = search_chart(answers.trials(), _levels(), knee=("Conv_41", "Conv_44"), by="cost").to_dict()
    mark = spec["layer"][-1]
    (row,) = _rows(spec, mark)
    assert (row["cost"], row["score"], row["word"]) == (pytest.approx(6.0), 0.3301, "knee")


def _levels() -> Levels:
    return Levels(0.3412, 0.139, 0.3409, 0.3262)


def _part(spec: Spec, mark: str) -> Spec:
    """Return the first layer with this mark."""
    found = [p for p in _parts(spec) if isinstance(p.get("mark"), dict) and p["mark"]["type"] == mark]
    return found[0]


def _parts(spec: Spec) -> list[Spec]:
    return [q for p in spec.get("layer", []) for q in (p, *_parts(p))]


def _rows(spec: Spec, part: Spec) -> list[Spec]:
    data = part.get("data", spec.get("data", {}))
    rows: list[Spec] = spec["datasets"][data["name"]]
    return rows
