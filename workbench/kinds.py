"""What a job can be: a name, the request that it is given, the engine's function that does it.

This table is all that a job's file can choose from.
"""

from __future__ import annotations

from collections.abc import Callable

from analyzers import api
from analyzers.deserialize import from_json
from analyzers.steps import Steps
from workbench.requests import (
    BisectRequest,
    CompareRequest,
    QuantizeRequest,
    SearchRequest,
)


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


def _search(params: object) -> Steps[object]:
    request = from_json(SearchRequest, params)
    return api.search_steps(request.inputs, request.options)


KINDS: dict[str, Callable[[object], Steps[object]]] = {
    "quantize": _quantize,
    "compare": _compare,
    "bisect": _bisect,
    "search": _search,
}
