from dataclasses import replace
from math import inf, nan

import pytest

from analyzers.diagnoses import detectors
from analyzers.records import Gain, Score
from tests.workbench import answers
from workbench.diagnosis_words import CAUSES, blamed_layers, cause_words, fact_rows, gain_words
from workbench.finding_card import gain_bars


def test_every_cause_that_a_detector_gives_has_words():
    given = {cause for detector in detectors().values() for cause in detector.causes}
    assert sorted(given - set(CAUSES)) == []


def test_a_label_without_words_speaks_for_itself():
    assert cause_words("something_new") == "Something new"


def test_what_is_only_worth_knowing_blames_nobody():
    assert blamed_layers(answers.findings()) == ("Conv_44",)


@pytest.mark.parametrize(
    ("name", "value", "row"),
    [
        ("channel", 7.0, ("channel", "7")),
        ("scale", 0.0001234567, ("scale", "0.0001235")),
        ("limit", 2147483647, ("limit", "2147483647")),
        ("is_signed", False, ("is signed", "no")),
        ("own_sqnr_db", 12.345, ("own sqnr", "12.3 dB")),
        ("own_sqnr_db", None, ("own sqnr", "n/a")),
        ("own_sqnr_db", inf, ("own sqnr", "exact")),
        ("clipped_fraction", 0.00123, ("clipped", "0.123 %")),
        ("clipped_fraction", nan, ("clipped", "n/a")),
        ("names", ("a", "b"), ("names", "a, b")),
        ("per_branch_db", (1.0, nan), ("per branch", "1.0 dB, n/a")),
        ("channels", tuple(range(9)), ("channels", "0, 1, 2, 3, 4, 5 and 3 more")),
        ("channels", (), ("channels", "none")),
    ],
)
def test_a_number_says_what_it_is(name, value, row):
    finding = replace(answers.findings()[0], evidence={"node": "Conv_44", name: value})
    assert fact_rows(finding) == [row], "the layer itself is named elsewhere"


def test_a_gain_in_the_score_of_a_task_has_no_decibels():
    assert gain_words(Gain(0.1, 0.2, "", "ap", 3)) == "0.1000 -> 0.2000, AP"
    assert gain_words(Gain(-3.0, 100.0, "", "sqnr", 3)) == "-3.0 dB -> exact, SQNR"


@pytest.mark.parametrize(
    ("gain", "widths"),
    [
        (Gain(8.0, 20.0, "", "slice-sqnr", 4), ("38.1%", "95.2%")),
        (Gain(-5.0, 10.0, "", "slice-sqnr", 4), ("0.0%", "56.4%")),
        (Gain(nan, 100.0, "", "slice-sqnr", 4), ("0.0%", "95.2%")),
        (Gain(0.2, 0.4, "", "ap", 4), ("47.6%", "95.2%")),
        (Gain(0.0, 0.0, "", "ap", 4), ("0.0%", "0.0%")),
    ],
)
def test_bars_begin_at_zero_and_fit(gain, widths):
    html = gain_bars(gain, threshold_db=16.9, reference=None)
    for width in widths:
        assert f"width:{width}" in html
    assert ("threshold" in html) == (gain.metric != "ap")


def test_a_score_is_seen_against_that_of_the_reference():
    html = gain_bars(Gain(0.2, 0.4, "", "ap", 4), threshold_db=16.9, reference=Score(0.8, "ap"))
    assert "reference 0.8000" in html
    assert "width:47.6%" in html
