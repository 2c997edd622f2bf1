"""Records to JSON: what becomes of numbers that JSON cannot hold."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from analyzers.records import Fidelity, FrontPoint, Gain, Score, SearchResult, Similarity, Trial
from analyzers.serialize import JsonValue, to_json

RESULT = SearchResult(
    reached=True,
    target=20.0,
    score=inf,
    reference_score=inf,
    candidate_score=-inf,
    all_fallback_score=nan,
    fallback=("a",),
    fallback_nodes=("a",),
    minimal=True,
    proof=(Trial((), -inf, 4, 1.0),),
    rule="per-edge",
    precision="fp32",
    mode="as-executed",
    metric="slice-sqnr",
    unit="dB",
    front=(FrontPoint(("a",), inf, 1, 1),),
    trials=(Trial(("a",), 250.0, 300, 400.0),),
    evaluations=300.0,
    fidelity=Fidelity(inf, 3.0, inf, exported_score=-inf),
    ranking=("a",),
    reason="",
    samples=300,
    warnings=(),
    holdout_score=inf,
)


def at(value: JsonValue, *path: str | int) -> JsonValue:
    for step in path:
        value = value[step]  # type: ignore[index,call-overload]
    return value


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (("score",), 200.0),
        (("reference_score",), 200.0),
        (("candidate_score",), -200.0),
        (("all_fallback_score",), None),
        (("holdout_score",), 200.0),
        (("target",), 20.0),
        (("proof", 0, "score"), -200.0),
        (("front", 0, "score"), 200.0),
        (("trials", 0, "score"), 200.0),
        (("trials", 0, "seconds"), 400.0),
        (("fidelity", "given_score"), 200.0),
        (("fidelity", "gap"), 200.0),
        (("fidelity", "exported_score"), -200.0),
        (("evaluations",), 300.0),
    ],
)
def test_scores_in_decibels_are_clamped_and_nothing_else_is(
    path: tuple[str | int, ...], shown: object
) -> None:
    assert at(to_json(RESULT), *path) == shown


def test_scores_of_another_unit_stay_as_they_are() -> None:
    said = to_json(replace(RESULT, metric="points", unit="", trials=(Trial(("a",), 250.0, 4, 1.0),)))
    assert at(said, "trials", 0, "score") == 250.0
    assert at(said, "score") is None


def test_a_score_and_its_details_have_one_unit() -> None:
    parts = {"out[0:4]": inf, "out[4:5]": -inf, "out": nan}
    said = to_json(Score(inf, "sqnr", "dB", parts))
    assert at(said, "value") == 200.0
    assert at(said, "details") == {"out[0:4]": 200.0, "out[4:5]": -200.0, "out": None}
    assert at(to_json(Score(0.3, "ap", "", {"APs": inf})), "details") == {"APs": None}


def test_a_gain_says_its_unit_by_its_metric() -> None:
    assert at(to_json(Gain(-inf, inf, "", "slice-sqnr", 4)), "after") == 200.0
    assert at(to_json(Gain(-inf, inf, "", "ap", 4)), "after") is None


def test_keys_in_decibels_are_clamped_in_every_record() -> None:
    assert to_json(Similarity(1.0, inf)) == {"cosine": 1.0, "sqnr_db": 200.0}
    assert to_json({"worst_db": {"a": -inf, "b": 3.0}}) == {"worst_db": {"a": -200.0, "b": 3.0}}
