from __future__ import annotations

import pytest

from analyzers.fallback.islands import count_islands, islands_of, sides_of
from analyzers.records import Layer

# conv1 -> pool -> conv2 -> add(conv1's pool) -> reshape -> fc, and a second branch from conv1
LAYERS = [
    Layer("conv1", "Conv", ("conv1",), ("x",), ("a",), False, True),
    Layer("pool", "MaxPool", ("pool",), ("a",), ("b",), True, True),
    Layer("conv2", "Conv", ("conv2",), ("b",), ("c",), False, True),
    Layer("add", "Add", ("add",), ("c", "b"), ("d",), False, True),
    Layer("reshape", "Reshape", ("reshape",), ("d",), ("e",), True, True),
    Layer("fc", "Gemm", ("fc",), ("e",), ("f",), False, True),
    Layer("side", "Conv", ("side",), ("a",), ("g",), False, True),
]


@pytest.mark.parametrize(
    ("fallback", "islands"),
    [
        (set(), 0),
        ({"conv1"}, 1),
        ({"conv1", "conv2"}, 1),
        ({"conv2", "add"}, 1),
        ({"conv2", "fc"}, 2),
        ({"add", "fc"}, 1),
        ({"conv2", "side"}, 2),
        ({"conv2", "side", "conv1"}, 1),
        ({"side", "fc", "conv2"}, 3),
    ],
)
def test_islands_are_connected_parts_joined_through_layers_that_only_pass_on(
    fallback: set[str], islands: int
) -> None:
    assert count_islands(LAYERS, frozenset(fallback)) == islands


def test_islands_come_with_their_layers_in_topological_order() -> None:
    assert islands_of(LAYERS, frozenset({"side", "fc", "add", "conv2"})) == (
        ("conv2", "add", "fc"),
        ("side",),
    )
    assert islands_of(LAYERS, frozenset()) == ()


def test_layers_that_only_move_values_follow_their_producer() -> None:
    sides = sides_of(LAYERS, frozenset({"conv1", "fc"}))
    assert sides["pool"] == "fallback"
    assert sides["reshape"] == "int8"
    moved = [
        Layer("crop", "Slice", ("crop",), ("x",), ("a",), True, False),
        Layer("left", "Conv", ("left",), ("a",), ("b",), False, True),
        Layer("right", "Conv", ("right",), ("a",), ("c",), False, True),
    ]
    assert sides_of(moved, frozenset({"left"})) == {"crop": "input", "left": "fallback", "right": "int8"}
    # The same graph input is nothing that two layers would exchange.
    assert count_islands(moved, frozenset({"left", "right"})) == 2
