"""The Diagnosis page on every verdict; what it shares with other pages is tested in ``test_pages``."""

from __future__ import annotations

from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from analyzers.records import Diagnosis, Verdict
from tests.workbench import answers
from tests.workbench.app_pages.opened import open_app, words
from tests.workbench.workspaces import add_run, full_project
from workbench.store import Workspace

PAGE = "app_pages/diagnosis.py"


def opened(workspace: Workspace, result: Diagnosis) -> AppTest:
    project, _ = add_run(workspace, full_project(workspace), "diagnose", "done", result=result)
    return open_app(PAGE, project=project.id)


def test_the_verdict_names_the_layers_that_are_blamed(workspace: Workspace) -> None:
    app = opened(workspace, answers.diagnosis())
    [banner] = app.error
    assert "One layer is at fault: Conv_44" in banner.value.replace("\\", "")
    shown = {m.label: m.value for m in app.metric}
    assert shown["Worst output"] == "3.1 dB"
    assert shown["All repaired"] == "28.9 dB"
    assert (shown["AP of the reference"], shown["AP of the candidate"]) == ("0.5500", "0.4140")


def test_a_finding_shows_cause_numbers_gain_and_fix(workspace: Workspace) -> None:
    app = opened(workspace, answers.diagnosis())
    shown = words(app)
    assert "One weight scale serves channels of very different size" in shown
    assert "per_tensor_weight_outlier_channel" in shown
    assert "Quantize the weights of this layer per channel" in shown
    assert "weights of Conv_44 per channel, 8 samples" in shown
    html = "".join(str(h.body) for h in app.get("html"))
    assert "3.1 dB before, 28.9 dB after" in html
    assert "0.4140 before, 0.5480 after" in html
    assert "34.6 %" in html
    assert "3, 5, 7, 9, 11, 13 and 2 more" in html


def test_severity_is_a_word(workspace: Workspace) -> None:
    shown = words(opened(workspace, answers.diagnosis()))
    for word in ("error", "warning", "info"):
        assert f" {word}]" in shown


def test_a_layer_leads_to_its_row(workspace: Workspace) -> None:
    project, _ = add_run(workspace, full_project(workspace), "compare", "done", result=answers.comparison(60))
    result = replace(answers.diagnosis(), findings=(replace(answers.findings()[0], layers=("Concat_44",)),))
    project, _ = add_run(workspace, project, "diagnose", "done", result=result)
    app = open_app(PAGE, project=project.id)
    app.button(key="diagnosis.go.1.Concat_44").click().run()
    assert not app.exception
    assert app.title[0].value == "Layers"
    assert any(c.value == "Concat_44" for c in app.code)


def test_notes_blame_nobody(workspace: Workspace) -> None:
    app = opened(workspace, replace(answers.diagnosis(), findings=answers.findings()[2:], verdict="healthy"))
    assert "Nothing is wrong" in app.success[0].value
    assert not app.error
    assert [e.label for e in app.expander if "worth knowing" in e.label] == [
        "1 thing worth knowing that no layer is blamed for"
    ]


def test_what_was_checked_is_listed_with_what_was_found_first(workspace: Workspace) -> None:
    table = opened(workspace, answers.diagnosis()).dataframe[0].value
    assert table["result"].tolist() == ["found", "suspected, not proved", "fine"]
    assert table["suspected"].tolist() == ["", "Mul_7", ""]


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("no_single_layer", "No single layer is to blame"),
        ("inputs_differ", "The two sides were fed differently"),
        ("reference_wrong", "The reference is already wrong"),
        ("candidate_not_comparable", "cannot be compared with this reference"),
    ],
)
def test_every_other_verdict_has_words_and_no_numbers_are_made_up(
    verdict: Verdict, said: str, workspace: Workspace
) -> None:
    nothing = replace(
        answers.diagnosis(),
        verdict=verdict,
        findings=(),
        checked=(),
        samples=(),
        output_sqnr_db=float("nan"),
        repaired_sqnr_db=float("nan"),
        reference_score=None,
        candidate_score=None,
    )
    app = opened(workspace, nothing)
    assert any(said in e.value for e in (*app.warning, *app.error))
    assert {m.label: m.value for m in app.metric}["Worst output"] == "n/a"


def test_html_in_names_is_shown_as_text(workspace: Workspace) -> None:
    result = answers.diagnosis()
    hostile = replace(
        answers.findings()[0],
        layers=(answers.HOSTILE,),
        evidence={answers.HOSTILE: answers.HOSTILE},
        gain=None,
    )
    app = opened(workspace, replace(result, findings=(hostile,)))
    assert not any("<img" in str(h.body) for h in app.get("html"))
    assert not any("<img" in str(m.value) for m in app.markdown if m.allow_html)


def test_the_page_shows_the_command_that_does_the_same(workspace: Workspace) -> None:
    app = opened(workspace, answers.diagnosis())
    assert any(c.value.startswith("tearline diagnose ") for c in app.code)
