"""What the installed onnxruntime can run: operators by domain, with the opsets that changed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import onnx
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as native

VERSION: str = ort.__version__
OLDEST_OPSET = 7
STANDARD_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")
ONNX_DOMAIN = "ai.onnx"  # another spelling of ""
_PROBE_IR_VERSION = 8  # as old as the oldest onnxruntime we support


@dataclass(frozen=True, slots=True)
class Since:
    """One version of an operator: the opset that brought it, and whether it removed the operator."""

    opset: int
    is_removed: bool


@cache
def operators() -> Mapping[tuple[str, str], tuple[Since, ...]]:
    """Return (domain, op_type) -> versions, oldest first, of every operator that has a schema."""
    schemas = native.get_all_operator_schema() if hasattr(native, "get_all_operator_schema") else ()
    found: dict[tuple[str, str], set[tuple[int, bool]]] = {}
    # Builds without schema export still run all operators that the onnx package knows.
    for schema in schemas or onnx.defs.get_all_schemas_with_history():
        key = ("" if schema.domain == ONNX_DOMAIN else schema.domain, schema.name)
        found.setdefault(key, set()).add((schema.since_version, bool(schema.deprecated)))
    return {key: tuple(Since(*version) for version in sorted(versions)) for key, versions in found.items()}


@cache
def newest_opset(domain: str = "") -> int:
    """Return the newest opset of a domain that this onnxruntime opens, found by asking it."""
    known = [v.opset for (d, _), versions in operators().items() if d == domain for v in versions]
    newest = max(known, default=1)
    # A schema may be there before its opset is released; onnxruntime then refuses the opset.
    while newest > 1 and not _opens({domain: newest}):
        newest -= 1
    return newest


@cache
def newest_ir_version() -> int:
    """Return the newest version of the file format that this onnxruntime opens, found by asking it."""
    version = _PROBE_IR_VERSION
    while _opens({}, ir_version=version + 1):
        version += 1
    return version


def _opens(opsets: Mapping[str, int], ir_version: int = _PROBE_IR_VERSION) -> bool:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "probe", [value], [result])
    imports = [onnx.helper.make_opsetid(name, n) for name, n in ({"": 13} | dict(opsets)).items()]
    model = onnx.helper.make_model(graph, ir_version=ir_version, opset_imports=imports)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # whatever the reason, the answer is no
        return False
    return True
