"""Run ONNX models with onnxruntime on the CPU.

Sessions are opened by path, so that external data can only come from the model's own folder. Simulated
plans are opened without ``WeightBiasQuantization``: that optimizer turns the float weights of a single
float Conv between INT8 neighbours back into per-tensor INT8, which is exactly a one-layer fallback.

Integer kernels are asked to be exact: on x86 processors without VNNI, onnxruntime's default kernels add pairs
of uint8 x int8 products in 16 bits and saturate. No NPU does that, and on such a machine it can cost several
points of AP that the device never loses. Likewise, a MatMul of float activations with quantized weights stays
what it says: by default onnxruntime would quantize the activations on the fly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import onnxruntime as ort

from analyzers.errors import BackendError, ModelLoadError
from analyzers.records import Array, Mode, TensorSpec

PLAN_CHANGING_OPTIMIZERS = ("WeightBiasQuantization",)
# What onnxruntime says of int8 weights without a zero point that it made uint8 (see analyzers.zero_points).
_MISSED_ZERO_POINT = "x_zero_point must be null or 1D"

_DTYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(int16)": "int16",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16",
    "tensor(uint32)": "uint32",
    "tensor(uint64)": "uint64",
    "tensor(bool)": "bool",
    "tensor(string)": "object",
}


class OnnxRuntimeRunner:
    """An open onnxruntime session; see ``analyzers.contracts.Runner``."""

    def __init__(
        self, session: ort.InferenceSession, reopen: Callable[[], OnnxRuntimeRunner] | None = None
    ) -> None:
        self._session, self._reopen = session, reopen
        self.inputs = tuple(_spec(i) for i in session.get_inputs())
        self.outputs = tuple(o.name for o in session.get_outputs())

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return every output by name.

        Raises:
            BackendError: onnxruntime failed; its message is kept.
        """
        try:
            values = self._session.run(None, dict(feeds))
        except Exception as cause:
            if self._reopen is not None and _MISSED_ZERO_POINT in str(cause):
                self._session, self._reopen = self._reopen()._session, None
                return self.run(feeds)
            raise BackendError(
                "run_failed", f"onnxruntime could not run the model: {first_line(cause)}"
            ) from cause
        return dict(zip(self.outputs, values, strict=True))


def open_session(
    path: Path,
    *,
    mode: Mode = "as-executed",
    is_simulated: bool = False,
    is_plain: bool = False,
    threads: int = 1,
) -> OnnxRuntimeRunner:
    """Open a model file.

    Args:
        path: The ``.onnx`` file; external data is looked for beside it.
        mode: "as-executed" uses onnxruntime's default optimizations (integer kernels); "literal" computes
            QuantizeLinear/DequantizeLinear pairs in float as they stand.
        is_simulated: The model holds a plan of ours; optimizers that would change the plan are off.
        is_plain: Use onnxruntime's own defaults throughout, as a user without Tearline would.
        threads: Intra-op threads. One thread makes results independent of the machine's load.

    Raises:
        ModelLoadError: onnxruntime refuses the model.
    """

    def plain() -> OnnxRuntimeRunner:
        return open_session(path, mode=mode, is_simulated=is_simulated, is_plain=True, threads=threads)

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    disabled: list[str] = list(PLAN_CHANGING_OPTIMIZERS) if is_simulated or mode == "literal" else []
    if not is_plain:
        options.add_session_config_entry("session.x64quantprecision", "1")
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if mode == "literal":
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    try:
        session = ort.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
        )
    except Exception as cause:
        if not is_plain:
            # x64quantprecision turns int8 weights into uint8, and QLinearConv with int8 activations (the
            # symmetric QOperator form) has no kernel for that mix.
            return plain()
        raise ModelLoadError(
            "model_not_runnable",
            f"onnxruntime cannot open the model: {first_line(cause)}",
            where=str(path),
            hint="Check that the file is complete and uses standard operators",
        ) from cause
    return OnnxRuntimeRunner(session, None if is_plain else plain)


def first_line(cause: BaseException) -> str:
    """Return the first line of an exception's text, shortened to 300 characters."""
    text = str(cause).strip() or type(cause).__name__
    return text.splitlines()[0][:300]


def _spec(value: ort.NodeArg) -> TensorSpec:
    shape = tuple(d if isinstance(d, int) else None for d in (value.shape or ()))
    return TensorSpec(name=value.name, dtype=_DTYPES.get(value.type, value.type), shape=shape)
