"""Ways to go wrong, by what they touch; importing a module registers its faults."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache


@cache
def load() -> None:
    """Import every module here."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
