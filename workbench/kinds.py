"""What a job can be: a name, the request that it is given, the engine's function that does it.

This table is all that a job's file can choose from.
"""

from __future__ import annotations

from collections.abc import Callable

from analyzers import api
from analyzers.deserialize import from_json
from analyzers.exporting import export_search, requantize_search
from analyzers.search_file import search_json
from analyzers.steps import Steps
from sample_models.demo import demo_paths
from workbench.requests import (
    BisectRequest,
    CompareRequest,
    DemoRequest,
    DiagnoseRequest,
    ExportRequest,
    QuantizeRequest,
    RequantizeRequest,
    SearchRequest,
)
from workbench.tour import tour_steps


def _quantize(params: object) -> Steps[object]:
    request = from_json(QuantizeRequest, params)
    return api.quantize_steps(
        request.reference,
        request.data,
        request.output,
        task=request.task,
        samples=request.samples,
        options=request.options,
        allow_code=request.allow_code,
    )


def _compare(params: object) -> Steps[object]:
    request = from_json(CompareRequest, params)
    return api.compare_steps(request.inputs, request.options)


def _bisect(params: object) -> Steps[object]:
    request = from_json(BisectRequest, params)
    return api.bisect_steps(request.inputs, request.options)


def _diagnose(params: object) -> Steps[object]:
    request = from_json(DiagnoseRequest, params)
    return api.diagnose_steps(request.inputs, request.options)


def _search(params: object) -> Steps[object]:
    request = from_json(SearchRequest, params)
    return search_json((yield from api.search_steps(request.inputs, request.options)))


def _demo(params: object) -> Steps[object]:
    return tour_steps(from_json(DemoRequest, params), demo_paths())


def _export(params: object) -> Steps[object]:
    request = from_json(ExportRequest, params)
    return export_search(
        request.search, request.format, request.output, base=request.base, allow_code=request.allow_code
    )


def _requantize(params: object) -> Steps[object]:
    request = from_json(RequantizeRequest, params)
    return requantize_search(
        request.search, request.calibration, request.output, allow_code=request.allow_code
    )


KINDS: dict[str, Callable[[object], Steps[object]]] = {
    "quantize": _quantize,
    "compare": _compare,
    "bisect": _bisect,
    "diagnose": _diagnose,
    "search": _search,
    "export": _export,
    "requantize": _requantize,
    "demo": _demo,
}
