"""What a fallback set costs on a target, as extra latency relative to the network in INT8 throughout.

    time(INT8) = M / int8_macs_per_second + (W + 2 T) / bytes_per_second + island_seconds
    extra(S)   = M_S (1 / fallback_macs_per_second - 1 / int8_macs_per_second)
               + ((w - 1) (W_S + 2 T_S) + C_S) / bytes_per_second
               + islands(S) island_seconds
    cost(S)    = extra(S) / time(INT8)

M are multiply-accumulates, W weights, T elements of stored tensors (written once, read once), of all layers
or of those in S. One value in the fallback precision has w bytes; C_S are the bytes that conversions at
precision borders read and write. The network itself is handed over once, which is the island_seconds of INT8.
A sum without overlap: it puts plans in order, it forecasts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from analyzers.contracts import ScoreFunction
from analyzers.fallback.islands import Side, count_islands, sides_of
from analyzers.records import INPUT_LAYER, Layer, Notice, PlanCost, Precision, Rule, Trial
from analyzers.target_profiles import DEFAULT_PROFILE, Statement, TargetProfile, read_profile
from analyzers.workload import Workload

Price = Callable[[frozenset[str]], PlanCost]
"""What a fallback set costs."""

BYTES: dict[Precision, int] = {"fp16": 2, "fp32": 4}
_TRAFFIC = 2  # a stored tensor is written once and read once


@dataclass(frozen=True, slots=True)
class Rates:
    """What takes how long on a target, every number known or taken for it; see ``Speed`` for the fields."""

    int8_macs_per_second: float
    fallback_macs_per_second: float
    bytes_per_second: float
    island_seconds: float


def rates_of(profile: TargetProfile, precision: Precision) -> tuple[Rates, tuple[Notice, ...]]:
    """Return the numbers of a profile; where it does not say, the generic one's, with a notice."""
    names = {
        "int8_macs_per_second": "int8_macs_per_second",
        "fallback_macs_per_second": f"{precision}_macs_per_second",
        "bytes_per_second": "bytes_per_second",
        "island_seconds": "island_seconds",
    }
    generic = read_profile(DEFAULT_PROFILE)
    numbers: dict[str, float] = {}
    taken: list[str] = []
    for field, name in names.items():
        stated: Statement[float] | None = getattr(profile.speed, name)
        if stated is None:
            taken.append(name)
            stated = getattr(generic.speed, name)
            assert stated is not None, f"the generic profile does not say {name}"
        numbers[field] = stated.value
    if not taken:
        return Rates(**numbers), ()
    text = f"Profile {profile.name} does not say this; costs use the value of profile {DEFAULT_PROFILE}"
    return Rates(**numbers), tuple(Notice("cost_assumed", text, f"speed.{name}") for name in taken)


def make_price(
    layers: Sequence[Layer], work: Workload, rates: Rates, *, precision: Precision, rule: Rule
) -> Price:
    """Return the function that prices fallback sets of a network.

    Args:
        layers: All layers, topological.
        work: What they have to do for one sample.
        rates: How fast the target is.
        precision: What the sets' layers compute in.
        rule: Which tensors stay INT8.
    """
    width = BYTES[precision]
    traffic = _TRAFFIC * sum(work.elements.get(t, 0) for layer in layers for t in layer.outputs)
    all_macs = sum(work.macs.values())
    whole = all_macs / rates.int8_macs_per_second
    whole += (sum(work.weights.values()) + traffic) / rates.bytes_per_second + rates.island_seconds
    macs_seconds = 1 / rates.fallback_macs_per_second - 1 / rates.int8_macs_per_second

    def price(fallback: frozenset[str]) -> PlanCost:
        macs = sum(work.macs.get(name, 0) for name in fallback)
        weights = sum(work.weights.get(name, 0) for name in fallback)
        stored, converted = _borders(layers, work, fallback, rule)
        converted_bytes = converted * (1 + width)
        moved = (width - 1) * (weights + _TRAFFIC * stored) + converted_bytes
        islands = count_islands(layers, fallback)
        extra = macs * macs_seconds + moved / rates.bytes_per_second + islands * rates.island_seconds
        return PlanCost(
            layers=len(fallback),
            macs_fraction=macs / all_macs if all_macs else 0.0,
            weight_bytes=weights * width,
            converted_bytes=converted_bytes,
            islands=islands,
            cost=extra / whole if whole else float(islands),
        )

    return price


def count_price(layers: Sequence[Layer]) -> Price:
    """Return a price that only counts: every layer costs one, whatever it does."""

    def price(fallback: frozenset[str]) -> PlanCost:
        islands = count_islands(layers, fallback)
        return PlanCost(layers=len(fallback), islands=islands, cost=float(len(fallback)))

    return price


def priced(score: ScoreFunction, price: Price) -> ScoreFunction:
    """Return a score function whose trials say what their sets cost."""

    def scored(fallback: frozenset[str], *, stage: str = "") -> Trial:
        return with_cost(score(fallback, stage=stage), price(fallback))

    return scored


def with_cost(trial: Trial, cost: PlanCost) -> Trial:
    """Return a trial that says what its set costs."""
    return replace(
        trial,
        layers=cost.layers,
        macs_fraction=cost.macs_fraction,
        weight_bytes=cost.weight_bytes,
        converted_bytes=cost.converted_bytes,
        islands=cost.islands,
        cost=cost.cost,
    )


def uncounted_notice(work: Workload) -> tuple[Notice, ...]:
    """Return a notice if something of the network could not be counted."""
    if not work.uncounted:
        return ()
    text = f"Shapes of {len(work.uncounted)} layers are not static, so costs leave out what they do"
    return (Notice("cost_incomplete", text, ", ".join(work.uncounted[:4])),)


def _borders(
    layers: Sequence[Layer], work: Workload, fallback: frozenset[str], rule: Rule
) -> tuple[int, int]:
    """Return elements stored in the fallback precision, and elements converted at borders.

    A tensor is converted once per direction however many layers read it in the other form.
    """
    sides = sides_of(layers, fallback)
    made_by = {tensor: layer.name for layer in layers for tensor in layer.outputs}
    readers: dict[str, set[Side]] = {}
    for layer in layers:
        for tensor in layer.inputs:
            readers.setdefault(tensor, set()).add(sides[layer.name])
    stored = converted = 0
    for tensor in dict.fromkeys([*readers, *made_by]):
        maker = made_by.get(tensor, INPUT_LAYER)
        side = sides.get(maker, "input")
        read_by = readers.get(tensor, set())
        elements = work.elements.get(tensor, 0)
        if side == "fallback" and not (rule == "nodes-to-exclude" and "int8" in read_by):
            stored += elements
        converted += elements * _conversions(side, read_by, rule)
    return stored, converted


def _conversions(maker: Side, readers: set[Side], rule: Rule) -> int:
    """Return how often a tensor changes its precision between the layer that makes it and its readers."""
    leaves = "fallback" in readers
    stays = "int8" in readers
    if maker == "int8":
        return int(leaves)
    if maker == "fallback" and stays:
        return {"per-edge": 1, "hybrid": 0, "nodes-to-exclude": 1 + leaves}[rule]
    if maker == "input" and rule == "nodes-to-exclude":
        return int(leaves and stays)
    return 0
