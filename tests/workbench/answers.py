"""Answers as the engine would give them, made up: for tests of what shows them."""

from __future__ import annotations

import math
from dataclasses import replace
from math import nan

from analyzers.cost import with_cost
from analyzers.fallback.front import front_of, point_of
from analyzers.records import (
    BisectResult,
    BisectStep,
    Checked,
    Comparison,
    Culprit,
    Diagnosis,
    Fidelity,
    Finding,
    Gain,
    LayerRecord,
    Notice,
    PlanCost,
    Score,
    SearchResult,
    Similarity,
    SliceError,
    Stats,
    Trial,
    Unpaired,
    WorstSample,
)

HOSTILE = "<img src=x onerror=alert(1)>"
FORMULA = '=HYPERLINK("http://x","y")'


def layer(
    index: int, *, op: str = "Conv", db: float = 30.0, own_db: float = 40.0, name: str = ""
) -> LayerRecord:
    node = name or f"{op}_{index}"
    cos = cosine_of(db)
    return LayerRecord(
        layer=node,
        node=node,
        op_type=op,
        reference_tensor=f"t{index}",
        candidate_tensor=f"t{index}_DequantizeLinear_Output",
        evidence="name",
        cosine=cos,
        sqnr_db=db,
        norm_ratio=1 - 10 ** (-db / 10) / 2,
        rmse_scale=0.3,
        max_error=10 ** (-db / 20),
        reference=Stats(-3.0, 4.0, 0.1, 1.0),
        candidate=Stats(-2.9, 3.9, 0.11, 0.98),
        isolated=Similarity(cosine_of(own_db), own_db),
        worst_sample=WorstSample(f"{index:06d}.jpg", cosine_of(db - 3), db - 3),
        p95_sqnr_db=db - 2,
        worst_channel=SliceError(1, 7, 8, cosine_of(db - 9), db - 9),
        worst_slice=SliceError(1, 4, 20, cosine_of(db - 6), db - 6, name="branch"),
        clipped_fraction=0.0012,
        flags=("fallback_candidate",) if cos < 0.99 else (),
    )


def cosine_of(db: float) -> float:
    return 1 / math.sqrt(1 + 10 ** (-db / 10))


def unpaired_layer(index: int) -> LayerRecord:
    return replace(
        layer(index, op="Sigmoid"),
        candidate_tensor=None,
        evidence="",
        cosine=nan,
        sqnr_db=nan,
        norm_ratio=nan,
        rmse_scale=nan,
        max_error=nan,
        candidate=None,
        isolated=None,
        worst_sample=None,
        worst_channel=None,
        worst_slice=None,
        flags=("unpaired",),
    )


def comparison(count: int = 60, *, tear: int = 41) -> Comparison:
    """A network that is fine, tears at one layer and never quite recovers."""
    rows: list[LayerRecord] = []
    ops = ("Conv", "Sigmoid", "Mul", "Add", "Concat")
    for i in range(count):
        wobble = 4 * math.sin(i * 1.7) + 3 * math.sin(i * 0.31)
        db = 44 - 0.12 * i + wobble - (0 if i < tear else 24 * math.exp(-(i - tear) / 60))
        own = 46 + 5 * math.sin(i * 2.3) - (34 if i == tear else 0)
        rows.append(layer(i, op=ops[i % 5], db=db, own_db=own))
    if count > 20:
        rows[7] = unpaired_layer(7)
        rows[9] = replace(rows[9], node=HOSTILE, layer=HOSTILE)
        rows[11] = replace(rows[11], node=FORMULA, layer=FORMULA)
    outputs = (layer(count, op="Concat", db=15.2, name="output"),)
    return Comparison(
        coverage=0.983,
        unpaired=(Unpaired("t7", "Sigmoid_7", "its result is inside a fused layer of the candidate"),),
        layers=tuple(rows),
        outputs=outputs,
        samples=64,
        mode="as-executed",
        threshold=0.99,
        first_divergence=rows[min(tear, count - 1)].layer,
        reference_score=Score(0.3412, "ap"),
        candidate_score=Score(0.1391, "ap"),
        warnings=(Notice("scores_fall_more", "The score falls more than the cosine says", "output"),),
    )


def bisection(length: int = 114, culprit: int = 44) -> BisectResult:
    """One culprit, found by halving."""
    chain = tuple(f"Conv_{i}" for i in range(length))
    steps: list[BisectStep] = []

    def run(cut: int, direction: str = "candidate-prefix", repaired: tuple[str, ...] = ()) -> BisectStep:
        is_bad = cut > culprit and chain[culprit] not in repaired
        if direction == "reference-prefix":
            is_bad = cut <= culprit
        db = 6.3 + (length - cut) * 0.02 if is_bad else 26.4 - 0.03 * cut
        step = BisectStep(cut, chain[cut - 1] if cut else "", direction, repaired, db, is_bad)
        steps.append(step)
        return step

    whole = run(length)
    low, high = 0, length
    while high - low > 1:
        middle = (low + high) // 2
        if run(middle).is_bad:
            high = middle
        else:
            low = middle
    good = next(s for s in steps if s.cut == low) if any(s.cut == low for s in steps) else run(low)
    bad = next(s for s in steps if s.cut == high)
    repaired = run(length, "repair", (chain[culprit],))
    run(culprit, "reference-prefix")
    found = Culprit(chain[culprit], good, bad, 0.93, 0.88, repaired.sqnr_db, is_confirmed=True)
    return BisectResult(
        first_divergence=chain[culprit],
        culprits=(found,),
        monotone=True,
        steps=tuple(steps),
        chain=chain,
        candidate_sqnr_db=whole.sqnr_db,
        threshold_db=16.9,
        verdict="culprits",
        samples=4,
        metric="slice-sqnr",
        warnings=(),
    )


def trials() -> tuple[Trial, ...]:
    """The trials of a search that ends with two layers."""
    scored = (
        ((), 0.139, "candidate"),
        (tuple(f"Conv_{i}" for i in range(114)), 0.3409, "all-fallback"),
        (("Conv_41",), 0.151, "gallop"),
        (("Conv_41", "Conv_44"), 0.3301, "gallop"),
        (("Conv_41", "Conv_44", "Conv_46", "Conv_78"), 0.3322, "gallop"),
        (("Conv_44",), 0.147, "prune"),
        (("Conv_44", "Conv_46"), 0.2101, "refine"),
        (("Conv_41", "Conv_78"), 0.1609, "refine"),
        (("Conv_41", "Conv_44", "Conv_46"), 0.3318, "search"),
    )
    return tuple(_priced(Trial(names, value, 128, 8.4, stage)) for names, value, stage in scored)


def _priced(trial: Trial) -> Trial:
    """Say what a trial costs where each layer takes 1 % of the time and each gap in the names 4 % more."""
    numbers = [int(name.rpartition("_")[2]) for name in trial.fallback]
    islands = sum(number - 3 not in numbers and number - 2 not in numbers for number in numbers)
    size = len(numbers)
    cost = PlanCost(size, size / 200, 2 * size, 3000 * islands, islands, 0.01 * size + 0.04 * islands)
    return with_cost(trial, cost)


def search_result(*, reached: bool = True) -> SearchResult:
    done = trials()
    fallback = ("Conv_41", "Conv_44")
    return SearchResult(
        reached=reached,
        target=0.3262 if reached else 0.3405,
        score=0.3301,
        reference_score=0.3412,
        candidate_score=0.139,
        all_fallback_score=0.3409,
        fallback=fallback,
        fallback_nodes=("Conv_41", "Sigmoid_42", "Mul_43", "Conv_44", "Sigmoid_45", "Mul_46"),
        minimal=reached,
        proof=(done[5], done[2]) if reached else (),
        rule="per-edge",
        precision="fp16",
        mode="as-executed",
        metric="ap",
        unit="",
        front=front_of(done),
        trials=done,
        evaluations=11.4,
        fidelity=Fidelity(0.1391, 0.139, 0.0001),
        ranking=("Conv_41", "Conv_44", "Conv_46", "Conv_78"),
        reason="Two layers reach the target"
        if reached
        else "The budget was spent before a set reached the target",
        samples=128,
        warnings=(),
        islands=(("Conv_41", "Conv_44"),),
        plan_cost=PlanCost(2, 0.146, 3808, 2_076_672, 1, 0.06),
        knee=point_of(done[3]),
        cheapest=point_of(done[3]) if reached else None,
        target_profile="generic",
    )


def findings() -> tuple[Finding, ...]:
    """An error that a fix repairs, a warning without a fix that can be simulated, and a note."""
    return (
        Finding(
            cause="per_tensor_weight_outlier_channel",
            layers=("Conv_44",),
            severity="error",
            message="Channel 3 of the weights of Conv_44 is 412 times as large as the median channel",
            evidence={
                "channel": 3,
                "largest_to_median": 412.36,
                "dead_fraction": 0.34567,
                "weight_sqnr_db": 2.13,
                "channels": (3, 5, 7, 9, 11, 13, 15, 17),
            },
            fix="Quantize the weights of this layer per channel",
            gain=Gain(3.1, 28.94, "weights of Conv_44 per channel", "slice-sqnr", 8),
            also=("resolution_underflow",),
        ),
        Finding(
            cause="calibration_not_representative",
            layers=(),
            severity="warning",
            message="One value in 50 lies outside the range that was calibrated",
            evidence={"outside_fraction": 0.02, "is_worst_at_input": True, "ratio": nan},
            fix="Calibrate with pictures like those of the evaluation",
        ),
        Finding(
            cause="fp16_overflow_risk",
            layers=(HOSTILE, "Conv_50"),
            severity="info",
            message=f"Values of {HOSTILE} reach 70000",
            evidence={},
            fix="Keep it in FP32 or INT16",
            gain=Gain(0.414, 0.548, "computed in FP32", "ap", 96),
        ),
    )


def diagnosis() -> Diagnosis:
    """One layer at fault, and what else was looked at."""
    return Diagnosis(
        verdict="faulty_layers",
        findings=findings(),
        checked=(
            Checked("bias_overflow", "bias over input scale times weight scale", "fine"),
            Checked("clipping", "values beyond the range of each store", "suspected, not proved", ("Mul_7",)),
            Checked("weight_range", "size of the channels of each weight", "found"),
        ),
        output_sqnr_db=3.1,
        repaired_sqnr_db=28.94,
        threshold_db=16.9,
        samples=("000001.jpg", "000002.jpg"),
        runs=34,
        reference_score=Score(0.55, "ap"),
        candidate_score=Score(0.414, "ap"),
        mode="as-executed",
        warnings=(),
    )
