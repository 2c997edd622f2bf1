"""Let commands share options: a group of options is a function from them to a record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, TypeVar, get_type_hints

Answer = TypeVar("Answer")


def takes(**groups: Callable[..., object]) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Replace parameters of a function by the options that they are read from.

    ``@takes(inputs=read_inputs)`` turns ``command(inputs, threshold)`` into a command with all parameters of
    ``read_inputs`` in the place of ``inputs``; typer reads the signature that results. Groups may be
    composed of groups.
    """

    def decorate(function: Callable[..., Answer]) -> Callable[..., Answer]:
        merged: list[inspect.Parameter] = []
        for parameter in _parameters(function, without=groups):
            reader = groups.get(parameter.name)
            merged.extend([parameter] if reader is None else _parameters(reader))

        def call(**options: Any) -> Answer:
            read = {
                name: reader(**{p.name: options.pop(p.name) for p in _parameters(reader)})
                for name, reader in groups.items()
            }
            return function(**read, **options)

        call.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in merged}
        call.__name__ = getattr(function, "__name__", "call")
        call.__doc__ = function.__doc__
        return call

    return decorate


def _parameters(function: Callable[..., object], *, without: Iterable[str] = ()) -> list[inspect.Parameter]:
    # Records that options are read into are imported when a command runs; their names stay unresolved.
    written = {k: v for k, v in inspect.get_annotations(function).items() if k not in {*without, "return"}}
    known = getattr(function, "__globals__", {})
    hints = get_type_hints(SimpleNamespace(__annotations__=written), globalns=known, include_extras=True)
    return [
        p.replace(annotation=hints.get(p.name, p.annotation), kind=inspect.Parameter.KEYWORD_ONLY)
        for p in inspect.signature(function).parameters.values()
    ]
