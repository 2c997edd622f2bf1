"""The generator of faults itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.faults import architectures, healthy
from tests.faults.disguise import Disguise, disguised
from tests.faults.folding import folded
from tests.faults.generate import causes, generate, generate_healthy, names_of, save
from tests.faults.quantization import Style, quantize
from tests.faults.registry import FAULTS
from tests.faults.scoring import BROKEN_DB, HEALTHY_DB, Scorer, sqnr_db
from tests.faults.surgery import UnsuitableError


@pytest.mark.parametrize("architecture", architectures.ALL, ids=lambda a: a.__name__)
def test_a_network_computes_finite_values_that_differ_from_sample_to_sample(
    architecture: architectures.Architecture,
) -> None:
    network = architecture(np.random.default_rng(5))
    scorer = Scorer(network.model, network.feeds)
    assert scorer(network.model, literal=True) == np.inf
    if architecture is not architectures.open_sizes:  # whose outputs differ in shape, too
        moved = (*network.feeds[1:], network.feeds[0])
        assert scorer(network.model, feeds=moved) < 30


def test_the_same_seed_gives_the_same_pair() -> None:
    first, second = generate("bit_flips", 3), generate("bit_flips", 3)
    assert first.reference.SerializeToString() == second.reference.SerializeToString()
    assert first.candidate.SerializeToString() == second.candidate.SerializeToString()
    assert first.truths == second.truths


def test_another_seed_gives_another_network() -> None:
    assert generate("bit_flips", 3).reference != generate("bit_flips", 4).reference


def test_a_fault_breaks_what_was_healthy() -> None:
    specimen = generate("range_too_small", 2)
    assert specimen.healthy_db >= HEALTHY_DB
    assert specimen.score_db < BROKEN_DB
    scorer = Scorer(specimen.reference, specimen.feeds)
    assert scorer(specimen.candidate) == pytest.approx(specimen.score_db, abs=0.5)


def test_the_guilty_are_operators_of_the_reference() -> None:
    for name in ("activation_removed", "bias_shared", "boxes_beside_scores"):
        specimen = generate(name, 1)
        known = {n.name or f"{n.op_type}:{n.output[0]}" for n in specimen.reference.graph.node}
        for truth in specimen.truths:
            assert truth.guilty
            assert all(names <= known for names in truth.guilty)


def test_a_healthy_network_is_healthy() -> None:
    for seed in range(4):
        assert generate_healthy(seed).score_db >= HEALTHY_DB


def test_every_cause_has_a_fault_and_every_way_to_be_healthy_its_turn() -> None:
    assert all(names_of(cause) for cause in causes())
    assert len(causes()) > 40
    assert len(FAULTS) == sum(len(names_of(cause)) for cause in causes())
    names = {generate_healthy(seed).name for seed in range(3)}
    assert names == set(sorted(healthy.HEALTHY)[:3])


@pytest.mark.parametrize(
    "disguise",
    [
        Disguise(rename=True),
        Disguise(strip_candidate=True, strip_reference=True),
        Disguise(duplicate=True),
        Disguise(reorder=True),
    ],
    ids=str,
)
def test_a_disguise_changes_no_value(disguise: Disguise) -> None:
    random = np.random.default_rng(7)
    network = architectures.residual(random)
    candidate = quantize(folded(network.model), network.calibration, Style(per_channel=False))
    reference, other, names = disguised(network.model, candidate, disguise, random)
    scorer = Scorer(reference, network.feeds)
    assert scorer(other) == pytest.approx(Scorer(network.model, network.feeds)(candidate), abs=0.01)
    assert len(names) == (len(reference.graph.node) if disguise.strip_reference else 0)


def test_what_is_saved_can_be_read_back_with_external_data(tmp_path: Path) -> None:
    specimen = next(s for s in map(generate_healthy, range(40)) if s.has_external_data)
    save(specimen, tmp_path)
    assert (tmp_path / "fp32.bin").is_file()
    assert onnx.load(tmp_path / "fp32.onnx").graph.node == specimen.reference.graph.node
    assert len(np.load(tmp_path / "inputs.npz").files) == sum(len(feed) for feed in specimen.feeds)


def test_folding_keeps_the_output_and_its_mistakes_do_not() -> None:
    random = np.random.default_rng(11)
    network = architectures.mobile(random)
    while not any(n.op_type == "BatchNormalization" for n in network.model.graph.node):
        network = architectures.mobile(random)
    scorer = Scorer(network.model, network.feeds)
    assert scorer(folded(network.model)) > 80
    first = next(n.name for n in network.model.graph.node if n.op_type == "Conv")
    assert scorer(folded(network.model, {first: "no_variance"})) < 60


def test_sqnr_is_minus_infinity_where_only_one_side_is_finite() -> None:
    a = np.array([1.0, 2.0])
    assert sqnr_db([(a, a)]) == np.inf
    assert sqnr_db([(a, np.array([1.0, np.nan]))]) == -np.inf
    assert sqnr_db([(a, a * 1.1)]) == pytest.approx(20.0)


def test_a_fault_that_cannot_be_drawn_says_so() -> None:
    with pytest.raises(UnsuitableError, match="0 draws in vain"):
        generate("bit_flips", 0, draws=0)
