import inspect
from typing import TYPE_CHECKING, Annotated

import pytest

from workbench.commands.compose import takes

if TYPE_CHECKING:
    from elsewhere import Unknown


def read_size(*, width: Annotated[int, "wide"] = 2, height: int = 3) -> "Unknown":
    return (width, height)


@takes(size=read_size)
def read_box(*, name: str, size: "Unknown", depth: int = 1) -> "Unknown":
    return (name, size, depth)


def test_the_options_of_a_group_take_its_place():
    parameters = inspect.signature(read_box).parameters
    assert list(parameters) == ["name", "width", "height", "depth"]
    assert parameters["width"].annotation == Annotated[int, "wide"]
    assert (parameters["height"].default, parameters["name"].default) == (3, inspect.Parameter.empty)


def test_a_group_is_read_from_its_options():
    assert read_box(name="a", width=5, height=3, depth=1) == ("a", (5, 3), 1)


def test_groups_are_composed_of_groups():
    @takes(box=read_box)
    def command(*, box: "Unknown", count: int = 1):
        return (box, count)

    assert list(inspect.signature(command).parameters) == ["name", "width", "height", "depth", "count"]
    assert command(name="a", width=1, height=2, depth=4, count=7) == (("a", (1, 2), 4), 7)


def test_an_option_that_nobody_knows_is_our_mistake():
    with pytest.raises(TypeError):
        read_box(name="a", width=1, height=2, depth=3, color=4)
