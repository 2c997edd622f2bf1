"""How answers are compared with the truth."""

from __future__ import annotations

import math

import pytest

from analyzers.records import Diagnosis, Finding, Notice, Severity, Verdict
from tests.faults.judge import judge
from tests.faults.registry import Truth

LAYER_OF = {"conv": "conv", "relu": "conv", "add": "add", "head": "head"}


def said(
    *findings: tuple[str, tuple[str, ...]],
    verdict: Verdict = "faulty_layers",
    severity: Severity = "error",
    warnings: tuple[str, ...] = (),
) -> Diagnosis:
    return Diagnosis(
        verdict=verdict,
        findings=tuple(Finding(cause, layers, severity, "", {}, "") for cause, layers in findings),
        checked=(),
        output_sqnr_db=3.0,
        repaired_sqnr_db=math.nan,
        threshold_db=16.9,
        samples=(),
        runs=0,
        reference_score=None,
        candidate_score=None,
        mode="as-executed",
        warnings=tuple(Notice(code, "") for code in warnings),
    )


CLIPPED = Truth("clipping", ("clipping",), (frozenset({"relu"}),))
SPOILT = Truth("corrupted", ("corrupted", "garbage"), (frozenset({"head"}),), frozenset({"add"}))
PAIR = Truth("outlier", ("outlier",), (frozenset({"conv", "add"}),))
SPREAD = Truth("spread", ("spread",), verdicts=("no_single_layer",))


@pytest.mark.parametrize(
    ("diagnosis", "truths", "result"),
    [
        (said(("clipping", ("conv",))), (CLIPPED,), "right"),
        (said(("clipping", ("relu",))), (CLIPPED,), "right"),
        (said(("rounding", ("relu",))), (CLIPPED,), "wrong label"),
        (said(("clipping", ("head",))), (CLIPPED,), "wrong layer"),
        (said(("clipping", ("conv",)), ("rounding", ("head",))), (CLIPPED,), "wrong layer"),
        (said(("clipping", ("conv",)), ("rounding", ("relu",))), (CLIPPED,), "right"),
        (said(("rounding", ("conv",)), ("clipping", ("relu",))), (CLIPPED,), "wrong label"),
        (said(verdict="healthy"), (CLIPPED,), "missed"),
        (said(("clipping", ("conv",)), severity="info"), (CLIPPED,), "missed"),
        (said(("spread", ()), verdict="no_single_layer"), (CLIPPED,), "missed"),
        (said(("garbage", ("head", "add"))), (SPOILT,), "right"),
        (said(("garbage", ("add",))), (SPOILT,), "wrong layer"),
        (said(("outlier", ("conv",))), (PAIR,), "wrong layer"),
        (said(("outlier", ("conv",)), ("outlier", ("add",))), (PAIR,), "right"),
        (said(("clipping", ("conv",)), ("corrupted", ("head",))), (CLIPPED, SPOILT), "right"),
        (said(("clipping", ("conv",))), (CLIPPED, SPOILT), "wrong layer"),
        (said(("spread", ()), verdict="no_single_layer"), (SPREAD,), "right"),
        (said(("spread", ("conv",)), verdict="no_single_layer"), (SPREAD,), "wrong layer"),
        (said(("rounding", ()), verdict="no_single_layer"), (SPREAD,), "wrong label"),
        (said(("spread", ()), verdict="inputs_differ"), (SPREAD,), "wrong label"),
        (said(verdict="healthy"), (), "right"),
        (said(("rounding", ("conv",)), severity="info", verdict="healthy"), (), "right"),
        (said(("rounding", ("conv",)), severity="warning"), (), "false alarm"),
        (said(verdict="no_single_layer"), (), "false alarm"),
    ],
)
def test_an_answer_is_right_if_it_names_the_guilty_first_and_nobody_else(
    diagnosis: Diagnosis, truths: tuple[Truth, ...], result: str
) -> None:
    assert judge(diagnosis, truths, LAYER_OF)[0] == result


def test_a_warning_is_an_answer_where_the_candidate_is_in_order() -> None:
    truth = Truth("artefact", ("artefact",), verdicts=("healthy",), may_be_notice=True)
    assert judge(said(verdict="healthy", warnings=("artefact",)), (truth,), {})[0] == "right"
    assert judge(said(verdict="healthy"), (truth,), {})[0] == "missed"
    assert judge(said(("artefact", ("conv",))), (truth,), {})[0] == "wrong layer"
