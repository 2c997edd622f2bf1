from dataclasses import replace
from math import nan

from tests.workbench import answers
from workbench.commands.diagnosis_report import diagnosis_lines


def test_the_verdict_comes_first_then_the_findings_by_rank_then_what_was_fine():
    lines = diagnosis_lines(answers.diagnosis())
    assert lines[0] == "verdict: faulty_layers - One layer is at fault"
    assert "  output 3.1 dB, threshold 16.9 dB, all findings repaired 28.9 dB (34 what-if models" in (
        "\n".join(lines)
    )
    assert "  reference ap 0.5500, candidate ap 0.4140" in lines
    heads = [line for line in lines if line[:1].isdigit()]
    assert [h.split(":")[0] for h in heads] == ["1. error", "2. warning", "3. info"]
    assert heads[1].endswith("[calibration_not_representative]")
    assert lines[-2:] == [
        "suspected, not proved: clipping at Mul_7",
        "checked and fine (1): bias overflow",
    ]


def test_a_finding_says_where_what_shows_it_what_it_gives_back_and_what_to_do():
    text = "\n".join(diagnosis_lines(answers.diagnosis()))
    assert "   layers  Conv_44\n" in text
    assert "Channel 3 of the weights of Conv_44 is 412 times as large" in text
    assert "channel 3; largest to median 412.4; dead 34.6 %; weight sqnr 2.1 dB;" in text
    assert "gain    3.1 dB -> 28.9 dB, worst part of the output" in text
    assert "gain    0.4140 -> 0.5480, AP (computed in FP32, 96 samples)" in text
    assert "fix     Quantize the weights of this layer per channel" in text
    assert "outside 2 %; is worst at input yes; ratio n/a" in text


def test_lines_are_readable_and_names_are_never_broken():
    name = "/model/neck/" + "block/" * 30 + "Conv"
    finding = replace(answers.findings()[0], layers=(name,), message="very long words " * 30)
    lines = diagnosis_lines(replace(answers.diagnosis(), findings=(finding,)))
    assert any(name in line for line in lines)
    assert all(len(line) <= 100 for line in lines if name not in line)


def test_many_layers_are_counted():
    finding = replace(answers.findings()[0], layers=tuple(f"Conv_{i}" for i in range(12)))
    text = "\n".join(diagnosis_lines(replace(answers.diagnosis(), findings=(finding,))))
    assert "Conv_7 and 4 more" in text


def test_a_healthy_network_is_three_lines_and_what_was_checked():
    healthy = replace(
        answers.diagnosis(),
        verdict="healthy",
        findings=(),
        repaired_sqnr_db=nan,
        reference_score=None,
        candidate_score=None,
    )
    lines = diagnosis_lines(healthy)
    assert lines[0] == "verdict: healthy - Nothing is wrong"
    assert lines[3] == ""
    assert "repaired" not in "\n".join(lines)
