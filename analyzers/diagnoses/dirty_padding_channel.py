"""Single channels that hold something else: read from memory that nobody wrote, dropped, or overwritten.

Ranges, means and deviations of the whole tensor look as ever; only the values of these channels are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analyzers import moments
from analyzers.evidence import Detour, Evidence
from analyzers.layer_parts import name_of
from analyzers.metrics.sqnr_db import sqnr_db
from analyzers.moments import Moments
from analyzers.operator_faults import OperatorFault, operator_faults
from analyzers.records import Fact
from analyzers.suspicions import Detector, Suspicion

# A channel below it holds something else; one above it is right.
GARBAGE_DB = 20.0
RIGHT_DB = 40.0
# More channels than this are no slip at the end of a copy.
MOST_CHANNELS = 1 / 4
# A silent channel that gains next to no energy is right too.
_SILENT = 1e-4


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect operators that read, or make, other values in a few channels and the right ones in the rest."""
    faults = {fault.layer: fault for fault in operator_faults(evidence)}
    for detour in evidence.detours.values():
        operator = evidence.operators.get(detour.node)
        fault = None if operator is None else faults.get(operator.layer)
        channels = detour.found.channels
        wrong = _wrong(channels)
        if fault is not None and channels is not None and wrong.size:
            yield _read(fault, detour, channels, wrong)
    for fault in faults.values():
        wrong = _wrong(fault.channels)
        if fault.channels is not None and wrong.size:
            yield _made(fault, fault.channels, wrong)


def _wrong(channels: Moments | None) -> NDArray[np.intp]:
    """Return the few channels that are wrong where all others are right."""
    if channels is None or channels.table.shape[1] < 2:
        return np.zeros(0, np.intp)
    ratios = np.asarray(sqnr_db(channels))
    largest = float(np.max(channels.reference_energy))
    is_quiet = channels.noise <= _SILENT * largest
    is_broken = channels.one_sided > 0
    is_wrong = is_broken | (~is_quiet & (np.isneginf(ratios) | (ratios < GARBAGE_DB)))
    is_right = ~is_broken & (is_quiet | (ratios >= RIGHT_DB))
    wrong = np.flatnonzero(is_wrong)
    is_clear = bool((is_wrong | is_right).all()) and wrong.size <= max(1, int(MOST_CHANNELS * ratios.size))
    return wrong if is_clear else np.zeros(0, np.intp)


def _read(fault: OperatorFault, detour: Detour, channels: Moments, wrong: NDArray[np.intp]) -> Suspicion:
    total = channels.table.shape[1]
    is_dropped = _is_constant(channels, wrong)
    what = "one value throughout" if is_dropped else "something else"
    place = " (the last)" if int(wrong[-1]) == total - 1 and wrong.size == 1 else ""
    between = ", ".join(name_of(n) for n in fault.parts.added)
    return Suspicion(
        cause="channel_dropped" if is_dropped else "dirty_padding_channel",
        layers=(detour.node,),
        sources=fault.sources,
        message=(
            f"'{detour.node}' reads {_names(wrong)}{place} of '{detour.tensor}' ({total} channels) as "
            f"{what}: cosine {_cosine(channels, wrong):.3f} there and the right values in all others"
            + (f". The candidate puts {between} before it" if between else "")
            + ". Statistics of the whole tensor do not show it"
        ),
        evidence={
            **_facts(fault, channels, wrong),
            "read_tensor": detour.tensor,
            "added_operators": tuple(n.op_type for n in fault.parts.added),
        },
        fix=(
            "Look at how the input's channels are aligned: the copy must cover all of them and set the "
            "padding to the zero point"
        ),
        specificity=84,
        is_fault=True,
    )


def _made(fault: OperatorFault, channels: Moments, wrong: NDArray[np.intp]) -> Suspicion:
    is_dropped = _is_constant(channels, wrong)
    hold = "holds" if wrong.size == 1 else "hold"
    what = f"{hold} one value throughout" if is_dropped else f"{hold} something else"
    return Suspicion(
        cause="channel_dropped" if is_dropped else "channel_garbage",
        layers=(fault.layer,),
        sources=fault.sources,
        message=(
            f"{_names(wrong).capitalize()} of '{fault.tensor}' {what}: cosine {_cosine(channels, wrong):.3f} "
            f"there and the right values in all others; {fault.numbers}"
        ),
        evidence=_facts(fault, channels, wrong),
        fix="Look at how the layer's channels are split, joined or aligned in the candidate",
        specificity=66,
        is_fault=True,
    )


def _facts(fault: OperatorFault, channels: Moments, wrong: NDArray[np.intp]) -> dict[str, Fact]:
    return {
        "tensor": fault.tensor,
        "channels": tuple(int(c) for c in wrong),
        "channels_in_all": int(channels.table.shape[1]),
        "channel_cosine": _cosine(channels, wrong),
        "operator_sqnr_db": fault.operator_db,
        "isolated_sqnr_db": fault.isolated_db,
    }


def _is_constant(channels: Moments, wrong: NDArray[np.intp]) -> bool:
    low, high = (channels.table[row][wrong] for row in (moments.CANDIDATE_MIN, moments.CANDIDATE_MAX))
    return bool((low == high).all())


def _cosine(channels: Moments, wrong: NDArray[np.intp]) -> float:
    some = moments.pool(Moments(channels.table[:, wrong]))
    norms = float(some.reference_energy) * float(some.candidate_energy)
    return float(some.inner_product) / norms**0.5 if norms > 0 else 0.0


def _names(wrong: NDArray[np.intp]) -> str:
    if wrong.size == 1:
        return f"channel {int(wrong[0])}"
    shown = ", ".join(str(int(c)) for c in wrong[:8])
    return f"channels {shown}{' ...' if wrong.size > 8 else ''}"


ENTRY = Detector(
    name="dirty_padding_channel",
    looks_at="single channels that an operator reads or makes, against all others",
    causes=("dirty_padding_channel", "channel_garbage", "channel_dropped"),
    find=find,
)
