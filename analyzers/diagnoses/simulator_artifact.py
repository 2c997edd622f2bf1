"""A loss that lies in how the file is run here, and not in the file."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.evidence import Evidence
from analyzers.executions import gap_db
from analyzers.records import Fact
from analyzers.suspicions import Detector, Suspicion

# Orders of summation move single levels, and with them the output of a noisy network by a dB or two. Noise
# that doubles comes of another arithmetic.
GAP_DB = 3.0
# Past this the outputs agree with the reference either way.
FINE_DB = 40.0
# The loss is the simulator's where the same file is this much better in exact arithmetic.
LOSS_DB = 6.0
_WAYS = {
    "plain": (
        "saturation of 8-bit kernels",
        "a plain onnxruntime session on this processor, whose kernels add pairs of uint8 x int8 products in "
        "16 bits,",
        "Judge by exact kernels, as an NPU has them, or quantize the weights with reduced range (7 bits)",
    ),
    "as-executed": (
        "graph optimization",
        "onnxruntime's default optimization, which fuses integer kernels,",
        "Judge by the way the device computes; run with optimizations off (--literal) to compare with it",
    ),
}


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Say where the same file gives other outputs when it is run otherwise."""
    executions = evidence.executions
    for way, other in (("plain", "as-executed"), ("as-executed", "literal")):
        lost = gap_db(executions, other, way)
        if not lost > GAP_DB or min(executions[way], executions[other]) > FINE_DB:
            continue
        what, words, fix = _WAYS[way]
        facts: dict[str, Fact] = {f"{how}_sqnr_db": value for how, value in executions.items()}
        yield Suspicion(
            cause="simulator_artifact",
            layers=(),
            sources=(),
            message=(
                f"The same file gives {executions[way]:.1f} dB at the output in {words} and "
                f"{executions[other]:.1f} dB {'with exact kernels' if way == 'plain' else 'literally'}: "
                f"{what} makes the difference, not the network"
            ),
            evidence=facts,
            fix=fix,
            unproved="warning" if lost >= LOSS_DB and way == "as-executed" else "info",
        )


ENTRY = Detector(
    name="simulator_artifact",
    looks_at="the candidate's own file run with exact kernels, literally and with onnxruntime's defaults",
    causes=("simulator_artifact",),
    find=find,
)
