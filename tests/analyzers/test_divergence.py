from __future__ import annotations

from collections.abc import Collection

import pytest

from analyzers.divergence import first_divergence
from analyzers.records import Layer

OWN: dict[str, Collection[str]] = {"A": "a", "B": "b", "C": "c", "D": "d"}


def layer(name: str, inputs: str, outputs: str) -> Layer:
    return Layer(name, "Conv", (name,), tuple(inputs), tuple(outputs), False, True)


# x -> a -> b -> d, and x -> c -> d
DIAMOND = (layer("A", "x", "a"), layer("B", "a", "b"), layer("C", "x", "c"), layer("D", "bc", "d"))


@pytest.mark.parametrize(
    ("below", "wanted"),
    [
        ("", None),
        ("d", "D"),
        ("bd", "B"),
        ("abd", "A"),
        ("cd", "C"),
        ("abcd", "A"),
        ("bcd", "B"),  # two branches: the earlier one
        ("xabcd", None),  # the inputs differ already: no layer is to blame
        ("xa", None),
    ],
)
def test_the_earliest_layer_below_whose_inputs_are_all_above(below: str, wanted: str | None) -> None:
    assert first_divergence(DIAMOND, OWN, {t: t in below for t in "xabcd"}) == wanted


def test_trouble_passes_through_a_tensor_that_cannot_be_seen() -> None:
    seen = {"x": False, "a": True, "c": False, "d": True}
    assert first_divergence(DIAMOND, OWN, seen) == "A"
    assert first_divergence(DIAMOND[1:], OWN, {"a": True, "c": False, "d": True}) is None


def test_a_layer_is_not_blamed_for_an_unseen_healthy_input() -> None:
    assert first_divergence(DIAMOND, OWN, {"x": False, "a": False, "c": False, "d": True}) == "D"


def test_a_layer_counts_as_below_where_only_an_inner_tensor_is() -> None:
    seen = {"x": False, "a": False, "inner": True, "b": False, "c": False, "d": True}
    assert first_divergence(DIAMOND, OWN | {"B": ("inner", "b")}, seen) == "B"
