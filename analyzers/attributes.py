"""What an operator is told besides its data, in one form: defaults filled in, old and new forms alike.

ONNX lets the same thing be said in several ways: by an attribute or by a constant input, by leaving a default
out, by ``auto_pad`` or by explicit pads. Two operators are told the same exactly if their settings are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir

from analyzers.graph import constant_array
from analyzers.records import Array

Setting = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
ConstantOf = Callable[[ir.Value | None], Array | None]

# Inputs that steer an operator rather than feed it: operator -> input index -> name of the setting.
STEERING = {
    "Clip": {1: "min", 2: "max"},
    "Pad": {1: "pads", 2: "value", 3: "axes"},
    "Slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"},
    "Squeeze": {1: "axes"},
    "Unsqueeze": {1: "axes"},
    "ReduceMean": {1: "axes"},
    "ReduceSum": {1: "axes"},
    "ReduceMax": {1: "axes"},
    "ReduceMin": {1: "axes"},
    "ReduceL2": {1: "axes"},
    "ReduceProd": {1: "axes"},
    "Resize": {1: "roi", 2: "scales", 3: "sizes"},
    "Upsample": {1: "scales"},
    "Split": {1: "split"},
    "Tile": {1: "repeats"},
    "TopK": {1: "k"},
}
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_WINDOWS = frozenset({"AveragePool", "MaxPool", "LpPool"}) | _CONVOLUTIONS
_BOUNDS = {"min": -np.inf, "max": np.inf}
# Attributes that say nothing about the result.
_SILENT = frozenset(
    {"training_mode", "momentum", "spatial", "consumed_inputs", "storage_order", "stash_type"}
)


def settings(node: ir.Node, constant_of: ConstantOf, opset: int) -> dict[str, Setting]:
    """Return what the operator is told, by name; what cannot be known is left out.

    Args:
        node: The operator.
        constant_of: Returns the array of a constant input.
        opset: Version of the default domain, which decides the defaults.
    """
    found: dict[str, Setting] = dict(_defaults(node.op_type, opset) if node.domain == "" else {})
    for name, attribute in node.attributes.items():
        value = _plain(attribute)
        if value is not None:
            found[name] = value
    for index, name in STEERING.get(node.op_type, {}).items():
        array = constant_of(node.inputs[index]) if index < len(node.inputs) else None
        if array is not None and array.size:
            found[name] = _from_array(array.reshape(()) if name in _BOUNDS else array)
    for name in _SILENT:
        found.pop(name, None)
    if node.op_type in _WINDOWS:
        _complete_window(node, constant_of, found)
    if node.op_type == "Clip":
        found = {name: found.get(name, bound) for name, bound in _BOUNDS.items()}
    if node.op_type == "Relu":
        found = {"min": 0.0, "max": np.inf}
    _count_axes(node, found)
    if node.op_type in {"Resize", "Upsample"}:
        _complete_resize(node, found)
    return found


def bounds_of(node: ir.Node) -> tuple[float, float]:
    """Return the values between which a Relu or Clip lets pass."""
    if node.op_type == "Relu":
        return 0.0, np.inf
    found = settings(node, constant_array, 13)
    low, high = (found.get(name) for name in _BOUNDS)
    return (
        float(low) if isinstance(low, float | int) else -np.inf,
        float(high) if isinstance(high, float | int) else np.inf,
    )


@cache
def _defaults(op_type: str, opset: int) -> dict[str, Setting]:
    try:
        schema = onnx.defs.get_schema(op_type, opset, "")
    except onnx.defs.SchemaError:
        return {}
    found: dict[str, Setting] = {}
    for name, attribute in schema.attributes.items():
        proto = attribute.default_value
        if proto is None or not proto.name:
            continue
        value = _plain(ir.serde.deserialize_attribute(proto))
        if value is not None:
            found[name] = value
    return found


def _plain(attribute: ir.Attr) -> Setting | None:
    kind = attribute.type
    if kind == ir.AttributeType.INT:
        return attribute.as_int()
    if kind == ir.AttributeType.FLOAT:
        return _rounded(attribute.as_float())
    if kind == ir.AttributeType.STRING:
        return attribute.as_string()
    if kind == ir.AttributeType.INTS:
        return tuple(attribute.as_ints())
    if kind == ir.AttributeType.FLOATS:
        return tuple(_rounded(v) for v in attribute.as_floats())
    return None


def _from_array(array: Array) -> Setting:
    if array.dtype.kind == "f":
        values = [_rounded(float(v)) for v in array.reshape(-1)]
        return values[0] if array.ndim == 0 else tuple(values)
    integers = [int(v) for v in array.reshape(-1)]
    return integers[0] if array.ndim == 0 else tuple(integers)


def _rounded(value: float) -> float:
    """Return the value as float32 holds it, so that 0.01 written by two tools is the same."""
    return float(np.float32(value))


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _count_axes(node: ir.Node, found: dict[str, Setting]) -> None:
    """Count axes from the front, and give a tuple of axes an order."""
    rank = _rank(node.inputs[0] if node.inputs else None)
    if rank is None:
        return
    out = rank + _length(found.get("axes")) if node.op_type == "Unsqueeze" else rank
    for name in ("axis", "axes"):
        value = found.get(name)
        if isinstance(value, int) and rank:
            found[name] = value % rank
        elif isinstance(value, tuple) and out and all(isinstance(v, int) for v in value):
            axes = tuple(int(v) % out for v in value)
            found[name] = axes if node.op_type in {"Slice", "Pad", "Resize"} else tuple(sorted(axes))


def _length(value: Setting | None) -> int:
    return len(value) if isinstance(value, tuple) else 0


def _complete_window(node: ir.Node, constant_of: ConstantOf, found: dict[str, Setting]) -> None:
    """Fill in what defaults to ones and zeros per axis, and turn ``auto_pad`` into explicit pads."""
    kernel = found.get("kernel_shape")
    if not isinstance(kernel, tuple) and node.op_type in _CONVOLUTIONS and len(node.inputs) > 1:
        weight = constant_of(node.inputs[1])
        if weight is not None:
            kernel = found["kernel_shape"] = tuple(weight.shape[2:])
    axes = len(kernel) if isinstance(kernel, tuple) else (_rank(node.inputs[0]) or 2) - 2
    found.setdefault("strides", (1,) * axes)
    found.setdefault("dilations", (1,) * axes)
    if node.op_type == "ConvTranspose":
        found.setdefault("output_padding", (0,) * axes)
    how = found.pop("auto_pad", "NOTSET")
    if how in {"SAME_UPPER", "SAME_LOWER"} and node.op_type != "ConvTranspose":
        pads = _same_pads(node, found, is_upper=how == "SAME_UPPER")
        if pads is None:
            found["auto_pad"] = how
            found.pop("pads", None)
        else:
            found["pads"] = pads
    elif how in {"SAME_UPPER", "SAME_LOWER"}:
        found["auto_pad"] = how
    else:
        found.setdefault("pads", (0,) * (2 * axes))
        if how == "VALID":
            found["pads"] = (0,) * (2 * axes)
    given = found.get("pads")
    if node.op_type == "AveragePool" and isinstance(given, tuple) and not any(given):
        found["count_include_pad"] = 0  # nothing to count
    if node.op_type in {"AveragePool", "MaxPool"} and _divides(node, found):
        found["ceil_mode"] = 0  # nothing to round


def _same_pads(node: ir.Node, found: dict[str, Setting], *, is_upper: bool) -> tuple[int, ...] | None:
    sizes = _spatial(node.inputs[0])
    kernel, strides, dilations = (_ints(found.get(name)) for name in ("kernel_shape", "strides", "dilations"))
    if sizes is None or not kernel:
        return None
    begins, ends = [], []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        begins.append(small if is_upper else large)
        ends.append(large if is_upper else small)
    return (*begins, *ends)


def _divides(node: ir.Node, found: dict[str, Setting]) -> bool:
    """Tell whether windows fit exactly, so that rounding the output size up or down is the same."""
    sizes, pads = _spatial(node.inputs[0]), _ints(found.get("pads"))
    kernel, strides, dilations = (_ints(found.get(name)) for name in ("kernel_shape", "strides", "dilations"))
    if sizes is None or not kernel or len(pads) != 2 * len(kernel):
        return False
    axes = len(kernel)
    return all(
        (sizes[i] + pads[i] + pads[i + axes] - (kernel[i] - 1) * dilations[i] - 1) % strides[i] == 0
        for i in range(axes)
    )


def _spatial(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None or value.shape is None:
        return None
    sizes = list(value.shape)[2:]
    known = [d for d in sizes if isinstance(d, int)]
    return tuple(known) if len(known) == len(sizes) else None


def _ints(value: Setting | None) -> tuple[int, ...]:
    return tuple(int(v) for v in value) if isinstance(value, tuple) else ()


def _complete_resize(node: ir.Node, found: dict[str, Setting]) -> None:
    """Say sizes as scales, and drop what the chosen mode does not look at."""
    source, result = (_shape(v) for v in (node.inputs[0], node.outputs[0]))
    if "sizes" in found and source is not None and result is not None and len(source) == len(result):
        found["scales"] = tuple(_rounded(r / s) for r, s in zip(result, source, strict=True))
    for name in ("sizes", "roi"):
        found.pop(name, None)
    mode = found.get("mode", "nearest")
    if mode != "nearest":
        found.pop("nearest_mode", None)
    if mode != "cubic":
        found.pop("cubic_coeff_a", None)
        found.pop("exclude_outside", None)
    if found.get("coordinate_transformation_mode") != "tf_crop_and_resize":
        found.pop("extrapolation_value", None)


def _shape(value: ir.Value | None) -> tuple[int, ...] | None:
    if value is None or value.shape is None:
        return None
    known = [d for d in value.shape if isinstance(d, int)]
    return tuple(known) if len(known) == len(value.shape) else None


def differing(ours: dict[str, Setting], theirs: dict[str, Setting]) -> tuple[str, ...]:
    """Return the names of settings that both sides state and that differ."""
    shared = [name for name in ours if name in theirs]
    return tuple(name for name in shared if not _alike(ours[name], theirs[name]))


def _alike(a: Setting, b: Setting) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    x, y = _numbers(a), _numbers(b)
    return x.shape == y.shape and bool(np.allclose(x, y, rtol=1e-5, atol=0.0))


def _numbers(value: Setting) -> Array:
    items: Sequence[object] = value if isinstance(value, tuple) else (value,)
    return np.array(items, dtype=np.float64)
