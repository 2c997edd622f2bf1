"""The plan as an ONNX file that computes what trials computed."""

from __future__ import annotations

from analyzers import graph
from analyzers.exporters import Exporter, ExportRequest, Written
from analyzers.exporters._executable import check_overflow, constant_notices, executable_plan
from analyzers.exporters._read_model import read_layers
from analyzers.exporters._sessions import session_notices


def write(request: ExportRequest) -> Written:
    """Write float32 nodes with explicit Cast pairs, float32 -> float16 -> float32."""
    check_overflow(request.search, request.plan)
    simulated = executable_plan(request.pair, request.plan)
    path = graph.save_model(simulated.model, request.output.parent, name=request.output.name)
    notices = (*constant_notices(request.pair, request.plan), *session_notices(path, request))
    return Written(notices=notices)


ENTRY = Exporter(
    name="onnx-sim",
    title="ONNX in float32 with Cast pairs: what trials ran",
    version="onnxruntime 1.32.0",
    tier=1,
    suffix=".onnx",
    write=write,
    read=read_layers,
)
