"""The diagnosis of generated networks: a small fixed part of what ``benchmarks/diagnosis.py`` counts."""

from __future__ import annotations

import pytest

from tests.faults.generate import causes, generate, generate_healthy, names_of
from tests.faults.judge import ask

SEED = 1


def _one_per_cause() -> list[str]:
    """Return a fault of every cause: where there are several, another one from cause to cause."""
    return [names_of(cause)[i % len(names_of(cause))] for i, cause in enumerate(causes())]


@pytest.mark.parametrize("name", _one_per_cause())
def test_a_planted_fault_is_named_with_its_cause_and_nobody_else(name: str) -> None:
    specimen = generate(name, SEED)
    outcome = ask(specimen)
    assert outcome.result == "right", f"{outcome.reason} [{outcome.answer}] {specimen.notes}"


@pytest.mark.parametrize("seed", range(0, 16, 2))
def test_nobody_is_blamed_in_a_healthy_network(seed: int) -> None:
    specimen = generate_healthy(seed)
    outcome = ask(specimen)
    assert outcome.result == "right", f"{outcome.reason} [{outcome.answer}] {specimen.name} {specimen.notes}"
