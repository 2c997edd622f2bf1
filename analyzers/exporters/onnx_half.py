"""The plan as an ONNX file with real float16 nodes, for compilers that take their precision from the file."""

from __future__ import annotations

from analyzers import graph
from analyzers.exporters import Exporter, ExportRequest, Written
from analyzers.exporters._executable import check_overflow, constant_notices, executable_plan
from analyzers.exporters._half import to_half
from analyzers.exporters._read_model import read_layers
from analyzers.exporters._sessions import session_notices
from analyzers.records import Notice


def write(request: ExportRequest) -> Written:
    """Write float16 nodes with Casts where they border on the rest."""
    check_overflow(request.search, request.plan)
    simulated = executable_plan(request.pair, request.plan)
    kept = to_half(simulated.model, simulated.half_values)
    path = graph.save_model(simulated.model, request.output.parent, name=request.output.name)
    notices = [*constant_notices(request.pair, request.plan)]
    if simulated.half_values:
        text = (
            "Trials round at fixed places, float16 nodes where the runtime does, and INT8 layers amplify the "
            "difference: score this file before you rely on the score of the search"
        )
        notices.append(Notice("rounds_elsewhere", text))
    if kept:
        text = "ONNX has no float16 form of these operators, so they compute in float32 and store float16: "
        notices.append(Notice("no_half_form", text + ", ".join(kept), kept[0]))
    return Written(notices=(*notices, *session_notices(path, request, rounds_elsewhere=True)))


ENTRY = Exporter(
    name="onnx",
    title="ONNX with float16 nodes",
    version="onnxruntime 1.32.0",
    tier=1,
    suffix=".onnx",
    write=write,
    read=read_layers,
)
