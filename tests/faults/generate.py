"""Draw a network, quantize it, spoil it, and make sure that the fault is real; draw again until it is."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from tests.faults import healthy, surgery
from tests.faults.disguise import Disguise, any_disguise, disguised
from tests.faults.folding import folded
from tests.faults.kinds import load
from tests.faults.network import Feeds, Network
from tests.faults.quantization import Style, quantize
from tests.faults.registry import FAULTS, Bench, Fault, Truth, snapshot
from tests.faults.scoring import BROKEN_DB, HEALTHY_DB, Scorer
from tests.faults.surgery import UnsuitableError

DRAWS = 60
SECOND_FAULT = 0.15
"""Share of networks with a local fault that get a second one."""


@dataclass(frozen=True, eq=False)
class Specimen:
    """A pair of networks with data, and what is wrong with it.

    Attributes:
        name: The fault's name, or that of the healthy style.
        seed: Drawn with this seed.
        truths: One per fault; empty where nothing is wrong.
        reference: The float network.
        candidate: The quantized one.
        feeds: What the reference is evaluated on.
        candidate_feeds: What the candidate is fed where that differs.
        calibration: Calibration set where the fault lies in it.
        healthy_db: Score without the fault.
        score_db: Score as it is.
        notes: What was done, for people.
        has_external_data: Weights are to be written to files of their own.
        is_left_to_the_tool: The candidate is not to be given; the tool makes one from ``calibration``.
    """

    name: str
    seed: int
    truths: tuple[Truth, ...]
    reference: onnx.ModelProto
    candidate: onnx.ModelProto
    feeds: tuple[Feeds, ...]
    candidate_feeds: tuple[Feeds, ...] | None
    calibration: tuple[Feeds, ...] | None
    healthy_db: float
    score_db: float
    notes: tuple[str, ...]
    has_external_data: bool = False
    is_left_to_the_tool: bool = False


def names_of(cause: str | None = None) -> list[str]:
    """Return the names of all faults, or of those of a cause."""
    load()
    return sorted(name for name, fault in FAULTS.items() if cause in (None, fault.cause, name))


def causes() -> list[str]:
    """Return the causes that there are faults of."""
    load()
    return sorted({fault.cause for fault in FAULTS.values()})


def generate(name: str, seed: int, *, draws: int = DRAWS) -> Specimen:
    """Return a network with the named fault.

    Raises:
        UnsuitableError: None of the draws had it.
    """
    load()
    fault = FAULTS[name]
    why = "no network"
    for draw in range(draws):
        random = np.random.default_rng([zlib.crc32(name.encode()), seed, draw])
        try:
            return _specimen(fault, seed, random)
        except UnsuitableError as reason:
            why = str(reason)
    raise UnsuitableError(f"{name} with seed {seed}: {draws} draws in vain, the last for: {why}")


def _specimen(fault: Fault, seed: int, random: np.random.Generator) -> Specimen:
    network = fault.network(random)
    if fault.is_native and not fault.misses_samples:
        network = replace(network, calibration=(*network.calibration, *network.feeds))
    bench, honest = _bench(network, fault.style(random, network), random)
    if not fault.is_native and honest < HEALTHY_DB:
        raise UnsuitableError(f"the honest candidate has {honest:.1f} dB")
    why = "nothing planted"
    for _ in range(1 if fault.is_native else fault.places):
        trial = snapshot(bench)
        try:
            truths: tuple[Truth, ...] = (fault.plant(trial),)
            _check_that_it_is_real(fault, trial, honest)
            if fault.is_local and random.uniform() < SECOND_FAULT:
                truths = (*truths, _second(trial, bench, truths[0]))
            return _finished(fault.name, seed, trial, truths, honest, random)
        except UnsuitableError as reason:
            why = str(reason)
    raise UnsuitableError(why)


def _bench(network: Network, style: Style, random: np.random.Generator) -> tuple[Bench, float]:
    source = folded(network.model)
    try:
        candidate = quantize(source, network.calibration, style)
        score = Scorer(network.model, network.feeds)
        return Bench(random, network, style, source, candidate, score), score(candidate)
    except UnsuitableError:
        raise
    except Exception as cause:
        # The stock quantizer or runtime cannot do this network in this style (an opset without per-channel
        # scales, a type without a kernel); that is none of our business here.
        raise UnsuitableError(f"cannot be quantized as {style}: {str(cause)[:120]}") from cause


def _score(bench: Bench, candidate: onnx.ModelProto | None = None) -> float:
    try:
        return bench.score(candidate or bench.candidate, feeds=bench.candidate_feeds, plain=bench.runs_plain)
    except Exception as cause:
        raise UnsuitableError(f"cannot be run: {str(cause)[:200]}") from cause


def _check_that_it_is_real(fault: Fault, bench: Bench, honest: float) -> None:
    """Raise unless the fault breaks the output, and nothing else does."""
    spoiled = _score(bench)
    repaired = honest
    if fault.is_native and bench.cure:
        repaired = _score(bench, surgery.without_stores(bench.candidate, list(bench.cure)))
        if repaired < HEALTHY_DB - 2:
            raise UnsuitableError(f"{repaired:.1f} dB where it should be cured")
    if fault.least_gain_db:
        if repaired - spoiled < fault.least_gain_db:
            raise UnsuitableError(f"repairing gives {repaired - spoiled:.1f} dB only")
    elif spoiled >= BROKEN_DB:
        raise UnsuitableError(f"{spoiled:.1f} dB in spite of the fault")


def _second(bench: Bench, clean: Bench, first: Truth) -> Truth:
    """Plant another local fault; each of the two must break the output alone."""
    local = [fault for fault in FAULTS.values() if fault.is_local]
    fault = local[int(bench.random.integers(len(local)))]
    taken = frozenset().union(*first.guilty, first.tolerated)
    state = bench.random.bit_generator.state
    alone = replace(snapshot(clean), taken=taken)
    fault.plant(alone)
    _check_that_it_is_real(fault, alone, HEALTHY_DB)
    bench.random.bit_generator.state = state
    bench.taken = taken
    truth = fault.plant(bench)
    if _score(bench) >= BROKEN_DB:
        raise UnsuitableError("the two cancel each other")
    return truth


def _finished(
    name: str,
    seed: int,
    bench: Bench,
    truths: tuple[Truth, ...],
    honest: float,
    random: np.random.Generator,
) -> Specimen:
    """Disguise both sides, and check that the disguise changed no value."""
    before = _score(bench)
    disguise = any_disguise(random)
    return _dressed(name, seed, bench, truths, honest, before, disguise, random)


def _dressed(
    name: str,
    seed: int,
    bench: Bench,
    truths: tuple[Truth, ...],
    honest: float,
    before: float,
    disguise: Disguise,
    random: np.random.Generator,
) -> Specimen:
    reference, candidate, new_names = disguised(bench.network.model, bench.candidate, disguise, random)
    after = _score(bench, candidate)
    if abs(after - before) > 0.5 and np.isfinite(after):
        raise UnsuitableError(f"the disguise changed the score from {before:.1f} to {after:.1f} dB")
    renamed = tuple(
        replace(
            truth,
            guilty=tuple(frozenset(_renamed(n, new_names) for n in names) for names in truth.guilty),
            tolerated=frozenset(_renamed(n, new_names) for n in truth.tolerated),
        )
        for truth in truths
    )
    return Specimen(
        name,
        seed,
        renamed,
        reference,
        candidate,
        bench.network.feeds,
        bench.candidate_feeds,
        bench.calibration,
        honest,
        after,
        (str(bench.style), str(disguise), *bench.notes),
        disguise.external,
        bench.is_left_to_the_tool,
    )


def _renamed(name: str, new_names: Mapping[str, str]) -> str:
    """Return what a node is called now, also one in a body of a renamed node."""
    if name in new_names:
        return new_names[name]
    outer = next((old for old in new_names if old and name.startswith(f"{old}/")), "")
    return new_names[outer] + name.removeprefix(outer) if outer else name


def generate_healthy(seed: int) -> Specimen:
    """Return a network with nothing wrong, in one of the styles that look wrong.

    Raises:
        UnsuitableError: None of the draws was healthy.
    """
    load()
    why = "no network"
    for draw in range(DRAWS):
        random = np.random.default_rng([zlib.crc32(b"healthy"), seed, draw])
        try:
            name, bench, honest = healthy.draw(random, seed)
            return _finished(name, seed, bench, (), honest, random)
        except UnsuitableError as reason:
            why = str(reason)
    raise UnsuitableError(f"healthy with seed {seed}: {DRAWS} draws in vain, the last for: {why}")


def save(specimen: Specimen, folder: Path) -> None:
    """Write a specimen as a case: models, data, and the answer for people to read."""
    folder.mkdir(parents=True, exist_ok=True)
    for model, name in ((specimen.reference, "fp32"), (specimen.candidate, "int8")):
        if specimen.has_external_data:
            copy = surgery.copy_of(model)  # saving moves the data out of the model
            onnx.save(
                copy,
                folder / f"{name}.onnx",
                save_as_external_data=True,
                location=f"{name}.bin",
                size_threshold=256,  # constants that shapes hang on stay inside
            )
        else:
            onnx.save(model, folder / f"{name}.onnx")
    write_feeds(folder / "inputs.npz", specimen.feeds)
    if specimen.candidate_feeds is not None:
        write_feeds(folder / "inputs_int8.npz", specimen.candidate_feeds)
    if specimen.calibration is not None:
        write_feeds(folder / "calib.npz", specimen.calibration)
    answer = {
        "name": specimen.name,
        "seed": specimen.seed,
        "healthy_db": round(specimen.healthy_db, 2),
        "score_db": round(specimen.score_db, 2),
        "notes": specimen.notes,
        "truths": [
            {
                "cause": truth.cause,
                "accepted": truth.accepted,
                "guilty": [sorted(names) for names in truth.guilty],
                "tolerated": sorted(truth.tolerated),
                "verdicts": truth.verdicts,
            }
            for truth in specimen.truths
        ],
    }
    (folder / "truth.json").write_text(json.dumps(answer, indent=1))


def write_feeds(path: Path, feeds: Sequence[Feeds]) -> None:
    """Write samples as an .npz file."""
    arrays = {f"s{i:03d}::{name}": array for i, feed in enumerate(feeds) for name, array in feed.items()}
    np.savez(path, **arrays)  # type: ignore[arg-type]
