"""Tearline's engine: the same questions that the command line and the workbench ask.

The names below are loaded when they are first used, so that ``import analyzers.errors`` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzers.api import bisect, compare, diagnose, export, quantize, read, search
    from analyzers.errors import BackendError, InputError, TearlineError
    from analyzers.records import (
        BisectOptions,
        CompareOptions,
        DiagnoseOptions,
        Inputs,
        QuantizeOptions,
        SearchOptions,
    )

__all__ = [
    "BackendError",
    "BisectOptions",
    "CompareOptions",
    "DiagnoseOptions",
    "InputError",
    "Inputs",
    "QuantizeOptions",
    "SearchOptions",
    "TearlineError",
    "bisect",
    "compare",
    "diagnose",
    "export",
    "quantize",
    "read",
    "search",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'analyzers' has no attribute '{name}'")
    is_function = name.islower()
    home = "api" if is_function else "errors" if name.endswith("Error") else "records"
    return getattr(import_module(f"analyzers.{home}"), name)
