"""What proves a suspicion: a world that is one function, from what is lifted to the output's SQNR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.proving import Proof, prove, singles
from analyzers.suspicions import Change, Source, Suspicion


def suspicion(name: str, *, specificity: int = 50, is_fault: bool = False, cause: str = "cause") -> Suspicion:
    return Suspicion(
        cause=cause,
        layers=(name,),
        sources=(Source("store", name),),
        message="",
        evidence={},
        fix="",
        specificity=specificity,
        is_fault=is_fault,
    )


class World:
    """Noise energies that add up; some names only count together."""

    def __init__(self, noise: dict[str, float], *, rest: float = 0.001, together: Sequence[str] = ()) -> None:
        self.noise, self.rest, self.together = noise, rest, frozenset(together)
        self.runs = 0

    def __call__(self, changes: Sequence[Change]) -> float:
        self.runs += 1
        lifted = {change.source.name for change in changes}
        kept = {name: energy for name, energy in self.noise.items() if name not in lifted}
        if self.together and not self.together <= lifted:
            kept["together"] = 1.0
        return -10 * math.log10(self.rest + sum(kept.values()))


def names(proof: Proof) -> set[str]:
    return {name for blamed in proof.blamed for name in blamed.chosen.layers}


def test_only_what_moves_the_output_is_blamed() -> None:
    world = World({"guilty": 1.0, "looks_bad": 0.0005})
    found = prove([suspicion("looks_bad"), suspicion("guilty")], world, threshold_db=16.9, is_bad=True)
    assert names(found) == {"guilty"}
    assert [s.layers for s in found.dropped] == [("looks_bad",)]


def test_causes_that_only_count_together_are_found_together() -> None:
    world = World({"a": 0.0, "b": 0.0, "c": 0.0}, together=["a", "b"])
    found = prove([suspicion(n) for n in "cab"], world, threshold_db=16.9, is_bad=True)
    assert names(found) == {"a", "b"}
    assert all(blamed.before < 1 for blamed in found.blamed)


def test_a_more_specific_part_takes_the_place_of_a_wide_suspicion() -> None:
    world = World({"a": 1.0, "b": 0.5, "beside": 0.002})
    wide = replace(
        suspicion("wide", specificity=40), sources=(Source("store", "a"), Source("store", "beside"))
    )
    proof = prove(
        [wide, suspicion("a", specificity=90), suspicion("b")], world, threshold_db=16.9, is_bad=True
    )
    assert names(proof) == {"a", "b"}


def test_the_most_specific_suspicion_names_the_cause() -> None:
    both = [suspicion("x", cause="vague", specificity=30), suspicion("x", cause="exact", specificity=70)]
    found = prove(both, World({"x": 1.0}), threshold_db=16.9, is_bad=True)
    assert [b.chosen.cause for b in found.blamed] == ["exact"]
    assert [s.cause for b in found.blamed for s in b.others] == ["vague"]


@pytest.mark.parametrize(("is_fault", "blamed"), [(True, {"mistake"}), (False, set())])
def test_an_output_that_is_well_is_only_disturbed_by_mistakes(is_fault: bool, blamed: set[str]) -> None:
    world = World({"mistake": 0.009})
    found = prove([suspicion("mistake", is_fault=is_fault)], world, threshold_db=16.9, is_bad=False)
    assert names(found) == blamed


def test_a_second_mistake_is_found_behind_the_first() -> None:
    world = World({"large": 1.0, "small": 0.02}, rest=0.0005)
    suspects = [suspicion("small", is_fault=True), suspicion("large", is_fault=True)]
    assert names(prove(suspects, world, threshold_db=16.9, is_bad=True)) == {"large", "small"}


def test_ordinary_noise_behind_a_mistake_is_not_blamed() -> None:
    world = World({"large": 1.0, "ordinary": 0.004})
    suspects = [suspicion("ordinary", specificity=90), suspicion("large")]
    assert names(prove(suspects, world, threshold_db=16.9, is_bad=True)) == {"large"}


def test_what_is_explained_stays_lifted() -> None:
    world = World({"known": 1.0, "second": 0.5})
    found = prove(
        [suspicion("second")],
        world,
        threshold_db=16.9,
        is_bad=True,
        lifted=frozenset({Source("store", "known")}),
    )
    assert names(found) == {"second"}
    assert found.base == pytest.approx(-10 * math.log10(0.501))


def test_nothing_suspected_is_nothing_blamed() -> None:
    assert prove([], World({"x": 1.0}), threshold_db=16.9, is_bad=True).blamed == ()


def test_single_lifts_can_be_run_beforehand() -> None:
    suspects = [suspicion("a"), suspicion("b", specificity=90), suspicion("b")]
    assert [[c.source.name for c in changes] for changes in singles(suspects)] == [["b"], ["a"]]


@given(
    energies=st.lists(st.sampled_from([0.0, 0.0001, 0.3, 1.0, 3.0]), min_size=1, max_size=12),
    specificities=st.lists(st.integers(10, 90), min_size=12, max_size=12),
)
def test_the_blamed_set_recovers_the_output_and_each_member_is_needed(
    energies: list[float], specificities: list[int]
) -> None:
    world = World({str(i): e for i, e in enumerate(energies)})
    suspects = [suspicion(str(i), specificity=specificities[i]) for i in range(len(energies))]
    found = prove(suspects, world, threshold_db=16.9, is_bad=True)
    blamed = names(found)
    assert blamed == {str(i) for i, e in enumerate(energies) if e >= 0.3}
    assert not blamed or found.repaired >= 16.9
