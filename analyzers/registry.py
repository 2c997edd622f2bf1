"""Find the plug-ins of a folder: one file, one entry.

Each module of the package declares its entry as a module-level constant (by default ``ENTRY``). A file
that declares none, or a name that is taken, fails loudly at import, with the file's name.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Protocol, TypeVar


class Named(Protocol):
    """Anything that a registry can hold."""

    @property
    def name(self) -> str:
        """The unique name under which the entry is found."""
        ...


Entry = TypeVar("Entry", bound=Named)


def discover(package: ModuleType, kind: type[Entry], *, constant: str = "ENTRY") -> dict[str, Entry]:
    """Import every public module of ``package`` and collect its entry.

    Args:
        package: The package whose modules are the plug-ins; names with a leading underscore are skipped.
        kind: The class that every entry must be an instance of.
        constant: The module-level name that holds the entry.

    Returns:
        Entries by name, sorted by name.

    Raises:
        ValueError: A module declares no entry of that kind, or a name is taken.
    """
    found: dict[str, Entry] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        entry = getattr(module, constant, None)
        if not isinstance(entry, kind):
            raise ValueError(f"{module.__name__} declares no {constant} of type {kind.__name__}")
        if entry.name in found:
            raise ValueError(f"{module.__name__} reuses the name {entry.name!r}")
        found[entry.name] = entry
    return dict(sorted(found.items()))
