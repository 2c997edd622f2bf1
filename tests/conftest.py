"""Golden files: ``--update-golden`` renews what ``tests/golden`` holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"

CheckGolden = Callable[[str, str], None]
"""Compares a text with a file of ``tests/golden``, or renews the file: name, text."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="renew the files in tests/golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> CheckGolden:
    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        assert path.is_file(), f"{path} is missing: run pytest --update-golden and look at what it writes"
        assert text == path.read_bytes().decode()

    return check
