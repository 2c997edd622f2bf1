from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.cost import Price, Rates, count_price, make_price, priced, rates_of, uncounted_notice
from analyzers.records import Layer, PlanCost, Rule, Trial
from analyzers.target_profiles import Speed, Statement, TargetProfile, read_profile
from analyzers.workload import Workload

RULES: tuple[Rule, ...] = ("per-edge", "hybrid", "nodes-to-exclude")
# Seconds are picked so that terms can be told apart: one MAC is 1 s in INT8 and 3 s outside, a byte is 100 s.
RATES = Rates(1.0, 1 / 3, 0.01, 1e6)


def layer(name: str, inputs: str, outputs: str, op_type: str = "Conv", *, quantized: bool = True) -> Layer:
    is_moving = op_type in ("MaxPool", "Reshape")
    return Layer(
        name, op_type, (name,), tuple(inputs.split()), tuple(outputs.split()), is_moving, quantized, 0
    )


# image -> stem -> pool -> (left, right) -> join -> head, and head reads the image too
NET = [
    layer("stem", "image", "s"),
    layer("pool", "s", "p", "MaxPool"),
    layer("left", "p", "l"),
    layer("right", "p", "r"),
    layer("join", "l r", "j", "Concat"),
    layer("head", "j image", "h"),
]
WORK = Workload(
    macs={"stem": 10, "left": 20, "right": 30, "join": 0, "head": 40},
    weights={"stem": 1, "left": 2, "right": 3, "join": 0, "head": 4},
    elements={"image": 1000, "s": 100, "p": 50, "l": 7, "r": 11, "j": 18, "h": 5},
)
# All of it in INT8: 100 MACs, 10 weights + 2 x 191 elements of 100 s each, handed over once.
WHOLE = 100 + 100 * (10 + 2 * 191) + 1e6


def price_of(rule: Rule = "per-edge") -> Price:
    return make_price(NET, WORK, RATES, precision="fp16", rule=rule)


@pytest.mark.parametrize(
    ("fallback", "islands", "stored", "converted"),
    [
        # nothing
        ("", 0, 0, {"per-edge": 0, "hybrid": 0, "nodes-to-exclude": 0}),
        # reads a graph input, quantized only where that is also read in INT8; the pool follows its producer
        ("stem", 1, 150, {"per-edge": 50, "hybrid": 0, "nodes-to-exclude": 50 + 1000}),
        # p comes in, l goes out to join
        ("left", 1, 7, {"per-edge": 50 + 7, "hybrid": 50, "nodes-to-exclude": 50 + 7}),
        # one conversion of p serves both; each goes out
        ("left right", 2, 18, {"per-edge": 50 + 18, "hybrid": 50, "nodes-to-exclude": 50 + 18}),
        # p is read by left in FP16 and by right in INT8
        ("stem left", 1, 157, {"per-edge": 50 + 7, "hybrid": 0, "nodes-to-exclude": 2 * 50 + 7 + 1000}),
        ("left right join", 1, 36, {"per-edge": 50 + 18, "hybrid": 50, "nodes-to-exclude": 50 + 18}),
        # j comes in
        ("head", 1, 5, {"per-edge": 18, "hybrid": 18, "nodes-to-exclude": 18 + 1000}),
        ("stem head", 2, 155, {"per-edge": 50 + 18, "hybrid": 18, "nodes-to-exclude": 50 + 18}),
        ("stem left right join head", 1, 191, {"per-edge": 0, "hybrid": 0, "nodes-to-exclude": 0}),
    ],
)
def test_costs_of_small_plans_are_those_counted_by_hand(
    fallback: str, islands: int, stored: int, converted: dict[Rule, int]
) -> None:
    members = frozenset(fallback.split())
    macs = sum(WORK.macs[m] for m in members)
    weights = sum(WORK.weights[m] for m in members)
    for rule in RULES:
        found = price_of(rule)(members)
        assert found.layers == len(members)
        assert found.islands == islands
        assert found.macs_fraction == pytest.approx(macs / 100)
        assert found.weight_bytes == 2 * weights
        assert found.converted_bytes == 3 * converted[rule]  # one byte on the INT8 side, two on the other
        if rule != "nodes-to-exclude":  # there tensors with an INT8 reader are stored as INT8
            seconds = 2 * macs + 100 * (weights + 2 * stored + 3 * converted[rule]) + 1e6 * islands
            assert found.cost == pytest.approx(seconds / WHOLE)


def test_a_tensor_that_stays_quantized_is_not_stored_twice_as_wide() -> None:
    stays = price_of("nodes-to-exclude")(frozenset({"stem"}))
    seconds = 2 * 10 + 100 * (1 + 2 * 100 + 3 * 1050) + 1e6  # s is wide, p is not
    assert stays.cost == pytest.approx(seconds / WHOLE)


def test_float32_is_four_bytes_wide() -> None:
    found = make_price(NET, WORK, RATES, precision="fp32", rule="per-edge")(frozenset({"left"}))
    assert found.weight_bytes == 8
    assert found.converted_bytes == 5 * 57
    assert found.cost == pytest.approx((40 + 100 * (3 * (2 + 14) + 5 * 57) + 1e6) / WHOLE)


def test_layers_that_the_candidate_leaves_in_float_need_no_conversion_and_join_islands() -> None:
    net = [
        layer("a", "x", "ta"),
        layer("exp", "ta", "te", "Exp", quantized=False),
        layer("b", "te", "tb"),
        layer("c", "tb", "tc"),
    ]
    work = Workload({}, {}, {"x": 1, "ta": 10, "te": 100, "tb": 1000, "tc": 1})
    price = make_price(net, work, RATES, precision="fp16", rule="per-edge")
    assert price(frozenset("a")).converted_bytes == 0
    assert price(frozenset("ab")).converted_bytes == 3 * 1000
    assert price(frozenset("ab")).islands == 1
    assert price(frozenset("ac")).islands == 2
    assert price(frozenset("c")).macs_fraction == 0.0


def test_without_a_target_every_layer_costs_one() -> None:
    price = count_price(NET)
    assert price(frozenset()) == dataclasses.replace(PlanCost(), cost=0.0)
    assert price(frozenset({"left", "right"})).cost == 2.0
    assert price(frozenset({"left", "right"})).islands == 2


def test_a_priced_score_says_what_its_set_costs() -> None:
    def score(fallback: frozenset[str], *, stage: str = "") -> Trial:
        return Trial(tuple(sorted(fallback)), 0.5, 8, 1.0, stage)

    members = frozenset({"left", "head"})
    trial = priced(score, price_of())(members, stage="gallop")
    cost = price_of()(members)
    assert (trial.stage, trial.score) == ("gallop", 0.5)
    assert all(getattr(trial, f.name) == getattr(cost, f.name) for f in dataclasses.fields(PlanCost))


def test_what_a_profile_does_not_say_is_borrowed_and_reported() -> None:
    speed = Speed(int8_macs_per_second=Statement(7.0, "s"), island_seconds=Statement(0.5, "s"))
    rates, notices = rates_of(TargetProfile("mine", "Mine", speed=speed), "fp32")
    generic = read_profile("generic").speed
    assert generic.fp32_macs_per_second is not None
    assert generic.bytes_per_second is not None
    borrowed = (generic.fp32_macs_per_second.value, generic.bytes_per_second.value)
    assert (rates.int8_macs_per_second, rates.island_seconds) == (7.0, 0.5)
    assert (rates.fallback_macs_per_second, rates.bytes_per_second) == borrowed
    assert {(n.code, n.where) for n in notices} == {
        ("cost_assumed", "speed.fp32_macs_per_second"),
        ("cost_assumed", "speed.bytes_per_second"),
    }
    assert rates_of(read_profile("generic"), "fp16")[1] == ()


def test_shapes_that_are_not_static_are_reported() -> None:
    assert uncounted_notice(WORK) == ()
    (notice,) = uncounted_notice(dataclasses.replace(WORK, uncounted=("left",)))
    assert (notice.code, notice.where) == ("cost_incomplete", "left")


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[Layer], Workload]:
    """A network in which each layer reads one to three earlier tensors, or the graph's input."""
    size = draw(st.integers(1, 12))
    layers: list[Layer] = []
    for place in range(size):
        sources = draw(st.lists(st.integers(-1, place - 1), min_size=1, max_size=3, unique=True))
        kind = draw(st.sampled_from(["Conv", "Conv", "Conv", "MaxPool", "Exp"]))
        inputs = " ".join("image" if s < 0 else f"t{s}" for s in sources[: 1 if kind == "MaxPool" else 3])
        layers.append(layer(f"l{place}", inputs, f"t{place}", kind, quantized=kind != "Exp"))
    sizes = draw(st.lists(st.integers(1, 100), min_size=size, max_size=size))
    numbers = dict(zip((la.name for la in layers), sizes, strict=True))
    elements = {"image": 9} | {f"t{place}": n for place, n in enumerate(sizes)}
    return layers, Workload(numbers, numbers, elements)


def members_of(layers: Sequence[Layer]) -> list[str]:
    return [la.name for la in layers if la.is_quantized and not la.is_pass_through]


@settings(max_examples=200, deadline=None)
@given(networks(), st.sampled_from(RULES), st.data())
def test_no_set_costs_less_than_nothing_and_the_empty_one_nothing(
    network: tuple[list[Layer], Workload], rule: Rule, data: st.DataObject
) -> None:
    layers, work = network
    price = make_price(layers, work, RATES, precision="fp16", rule=rule)
    assert price(frozenset()) == PlanCost(0, 0.0, 0, 0, 0, 0.0)
    names = members_of(layers)
    members = data.draw(st.frozensets(st.sampled_from(names))) if names else frozenset[str]()
    found = price(members)
    assert (found.cost > 0) == bool(members)
    assert 0 <= found.macs_fraction <= 1
    assert found.converted_bytes >= 0
    assert (found.islands > 0) == bool(members)
    assert found.islands <= len(members)


@settings(max_examples=200, deadline=None)
@given(networks(), st.data())
def test_a_layer_beside_an_island_never_adds_one_and_any_other_adds_at_most_one(
    network: tuple[list[Layer], Workload], data: st.DataObject
) -> None:
    layers, work = network
    names = members_of(layers)
    if len(names) < 2:
        return
    price = make_price(layers, work, RATES, precision="fp16", rule="per-edge")
    added = data.draw(st.sampled_from(names))
    members = data.draw(st.frozensets(st.sampled_from([n for n in names if n != added]), min_size=1))
    by_name = {la.name: la for la in layers}
    beside = any(
        set(by_name[added].inputs) & set(by_name[m].outputs)
        or set(by_name[m].inputs) & set(by_name[added].outputs)
        for m in members
    )
    before, after = price(members).islands, price(members | {added}).islands
    assert after <= before + (0 if beside else 1)


@settings(max_examples=100, deadline=None)
@given(networks(), st.data())
def test_rules_that_keep_more_tensors_in_int8_convert_more(
    network: tuple[list[Layer], Workload], data: st.DataObject
) -> None:
    layers, work = network
    names = members_of(layers)
    if not names:
        return
    members = data.draw(st.frozensets(st.sampled_from(names), min_size=1))
    hybrid, per_edge, excluded = (
        make_price(layers, work, RATES, precision="fp16", rule=rule)(members).converted_bytes
        for rule in ("hybrid", "per-edge", "nodes-to-exclude")
    )
    assert hybrid <= per_edge <= excluded
