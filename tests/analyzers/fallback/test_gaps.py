from __future__ import annotations

from collections.abc import Callable

from analyzers.cost import Price
from analyzers.fallback.answer import Setting
from analyzers.fallback.search import ranked, search
from analyzers.records import Fidelity, Layer, PlanCost, SearchOptions, SearchResult, Trial
from analyzers.steps import finish

CHAIN = [
    Layer(f"l{i}", "Conv", (f"l{i}",), (f"t{i}",), (f"t{i + 1}",), False, True) for i in range(8)
]  # fmt: skip
ORDER = [layer.name for layer in CHAIN]


def with_islands(weights: dict[str, float], island: float = 10.0) -> Price:
    """A price of a chain: what each layer weighs, and what each run of neighbours costs."""

    def price(fallback: frozenset[str]) -> PlanCost:
        places = sorted(ORDER.index(name) for name in fallback)
        islands = sum(place - 1 not in places for place in places)
        cost = sum(weights.get(name, 1.0) for name in fallback) + island * islands
        return PlanCost(layers=len(fallback), islands=islands, cost=cost)

    return price


def run(
    value: Callable[[frozenset[str]], float], price: Price, *, order: list[str] = ORDER, **options: object
) -> SearchResult:
    def score(fallback: frozenset[str], *, stage: str = "") -> Trial:
        return Trial(tuple(sorted(fallback)), value(fallback), 8, 0.5, stage)

    wanted = SearchOptions(target=0.9, **options)  # type: ignore[arg-type]
    setting = Setting(1.0, 0.05, Fidelity(0.1, 0.1, 0.0), 2.0, 8, "ap", target_profile="board")
    return finish(search(CHAIN, score, ranked(order), options=wanted, setting=setting, price=price))


def needs(*names: str) -> Callable[[frozenset[str]], float]:
    return lambda fallback: 0.95 if set(names) <= fallback else 0.2


def test_a_gap_of_one_layer_is_closed_when_that_is_cheaper_and_the_answer_stays_minimal() -> None:
    result = run(needs("l2", "l4"), with_islands({}))
    assert result.fallback == ("l2", "l4")
    assert result.minimal
    assert result.islands == (("l2",), ("l4",))
    assert result.closed_gaps == ("l3",)
    assert result.cheapest is not None
    assert result.cheapest.fallback == ("l2", "l3", "l4")
    assert result.plan_cost is not None
    assert result.cheapest.cost < result.plan_cost.cost
    assert result.trials[-1].stage == "close-gap"
    assert result.target_profile == "board"


def test_a_gap_that_costs_more_than_it_saves_stays_open_without_a_trial() -> None:
    result = run(needs("l2", "l4"), with_islands({"l3": 50.0}))
    assert result.closed_gaps == ()
    assert not any(trial.stage == "close-gap" for trial in result.trials)
    assert result.cheapest is not None
    assert result.cheapest.fallback == ("l2", "l4")


def test_a_gap_whose_layer_costs_the_target_stays_open() -> None:
    def value(fallback: frozenset[str]) -> float:
        small = len(fallback) <= 4
        return 0.5 if "l3" in fallback and small else needs("l2", "l4")(fallback)

    result = run(value, with_islands({}))
    assert result.fallback == ("l2", "l4")
    assert result.closed_gaps == ()
    assert [t.stage for t in result.trials].count("close-gap") == 1


def test_gaps_of_two_layers_stay_open_and_several_of_one_are_closed() -> None:
    result = run(needs("l0", "l2", "l4", "l7"), with_islands({}))
    assert result.fallback == ("l0", "l2", "l4", "l7")
    assert result.closed_gaps == ("l1", "l3")
    assert result.islands == (("l0",), ("l2",), ("l4",), ("l7",))


def test_the_users_bounds_hold_for_gaps_too() -> None:
    assert run(needs("l2", "l4"), with_islands({}), keep_int8=("l3",)).closed_gaps == ()
    assert run(needs("l2", "l4"), with_islands({}), max_layers=2).closed_gaps == ()


def test_a_spent_budget_leaves_gaps_open_and_the_answer_as_it_is() -> None:
    whole = run(needs("l2", "l4"), with_islands({}))
    before = next(i for i, t in enumerate(whole.trials) if t.stage == "close-gap")
    result = run(needs("l2", "l4"), with_islands({}), budget=2.0 + before)
    assert result.fallback == whole.fallback
    assert result.reason == whole.reason
    assert result.minimal
    assert result.closed_gaps == ()


def test_trials_and_points_say_what_they_cost() -> None:
    price = with_islands({"l4": 3.0})
    result = run(needs("l2", "l4"), price)
    for trial in result.trials:
        expected = price(frozenset(trial.fallback))
        assert (trial.layers, trial.islands, trial.cost) == (
            expected.layers,
            expected.islands,
            expected.cost,
        )
    assert [p.cost for p in result.front] == sorted(p.cost for p in result.front)
    assert [p.score for p in result.front] == sorted(p.score for p in result.front)
    assert result.plan_cost == price(frozenset(result.fallback))


def test_where_nothing_reaches_the_target_there_is_no_cheapest_set() -> None:
    result = run(lambda fallback: 0.3, with_islands({}))
    assert not result.reached
    assert result.cheapest is None
    assert result.closed_gaps == ()
