import math

from analyzers.records import (
    BisectResult,
    BisectStep,
    Comparison,
    Culprit,
    LayerRecord,
    Score,
    SliceError,
    Unpaired,
)
from workbench.commands.report import bisection_lines, comparison_lines, show, table

NAN = math.nan


def layer(node, cosine, *flags, worst=None):
    return LayerRecord(
        layer=node,
        node=node,
        op_type="Conv",
        reference_tensor=f"{node}_out",
        candidate_tensor=f"{node}_q",
        evidence="name",
        cosine=cosine,
        sqnr_db=16.94,
        norm_ratio=1.0,
        rmse_scale=0.3,
        max_error=0.1,
        reference=None,
        candidate=None,
        isolated=None,
        worst_sample=None,
        p95_sqnr_db=NAN,
        worst_channel=None,
        worst_slice=worst,
        clipped_fraction=0.0,
        flags=flags,
    )


def comparison(*layers):
    return Comparison(
        coverage=0.975,
        unpaired=(Unpaired("t9", "n9", "folded away"),),
        layers=layers,
        outputs=layers[-1:],
        samples=4,
        mode="as-executed",
        threshold=0.99,
        first_divergence="conv_1",
        reference_score=Score(0.341, "ap"),
        candidate_score=None,
        warnings=(),
    )


def test_a_table_is_aligned_and_cuts_nothing():
    lines = table(("name", "value"), [("a" * 300, "1"), ("b", "10")], right=("value",))
    assert lines[1] == "a" * 300 + "      1"
    assert lines[2] == "b" + " " * 299 + "     10"


def test_a_comparison_marks_fallback_candidates_and_ends_with_its_summary():
    worst = SliceError(1, 4, 85, 0.1, 2.5, "scores")
    lines = comparison_lines(
        comparison(layer("conv_0", 0.99999), layer("conv_1", 0.5, "fallback_candidate", worst=worst))
    )
    text = "\n".join(lines)
    assert lines[1].startswith("   conv_0")
    assert lines[2].startswith("*  conv_1")
    assert "scores 2.5 dB" in lines[2]
    assert "* 1 operators below cosine 0.99" in text
    assert "97.5% of the layers paired" in text
    assert "unpaired: t9 (folded away)" in text
    assert "first divergence: conv_1" in text
    assert "reference ap: 0.3410" in text


def test_undefined_values_are_shown_as_such():
    assert "n/a" in comparison_lines(comparison(layer("conv_0", NAN)))[1]


def test_a_bisection_shows_each_hybrid_and_the_proof():
    good = BisectStep(3, "conv_2", "candidate-prefix", (), 30.0, False)
    bad = BisectStep(4, "conv_3", "candidate-prefix", (), 2.0, True)
    result = BisectResult(
        first_divergence="conv_3",
        culprits=(Culprit("conv_3", good, bad, 0.9, 0.8, 29.0, True),),
        monotone=False,
        steps=(good, bad),
        chain=("conv_2", "conv_3"),
        candidate_sqnr_db=1.5,
        threshold_db=16.9,
        verdict="culprits",
        samples=4,
        metric="slice-sqnr",
        warnings=(),
    )
    text = "\n".join(bisection_lines(result))
    assert (
        "culprit: conv_3 (confirmed by repair; 30.0 dB before it, 2.0 dB after it, 29.0 dB repaired)" in text
    )
    assert "not monotone" in text
    assert "verdict: culprits (slice-sqnr 1.5 dB, threshold 16.9 dB, 2 hybrids on 4 samples)" in text


def test_what_is_shown_cannot_steer_the_terminal(capsys):
    show(["  a\x1b[2J"])
    assert capsys.readouterr().out == "  a\\x1b[2J\n"
