"""Does an array fit the network's input, and does it hold values that no metric can use?"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from analyzers.errors import SampleError
from analyzers.records import Notice, Sample, TensorSpec

HALF_AND_SINGLE = frozenset(("float16", "float32"))  # converted into each other
_LAYOUTS = {(0, 3, 1, 2): "NHWC where the model wants NCHW", (0, 2, 3, 1): "NCHW where the model wants NHWC"}


def check_names(names: Iterable[str], specs: Sequence[TensorSpec], *, sample: str, where: str) -> None:
    """Check that a sample has exactly the inputs that the network reads.

    Args:
        names: The sample's input names.
        specs: What the network reads.
        sample: Name of the sample, "" where the whole file is meant.
        where: The file.

    Raises:
        SampleError: ``missing_input`` or ``wrong_input_name``.
    """
    given, wanted = set(names), [s.name for s in specs]
    missing = [n for n in wanted if n not in given]
    extra = sorted(given - set(wanted))
    subject = f"Sample '{sample}'" if sample else "The file"
    if missing and extra:
        near = difflib.get_close_matches(extra[0], missing, n=1, cutoff=0.0)[0]
        raise SampleError(
            "wrong_input_name",
            f"{subject} holds {_quoted(extra)}; the model has no input named '{extra[0]}' and expected "
            f"{_quoted(missing)}",
            where=where,
            hint=f"Did you mean '{near}'? Rename the array",
        )
    if missing:
        raise SampleError(
            "missing_input",
            f"{subject} has no data for the model input {_quoted(missing)}, which is required "
            f"(it holds {_quoted(sorted(given))})",
            where=where,
            hint=f"Add an array named '{missing[0]}' for every sample",
        )
    if extra:
        raise SampleError(
            "wrong_input_name",
            f"{subject} holds {_quoted(extra)}; the model has no input named '{extra[0]}' (expected: "
            f"{_quoted(wanted)})",
            where=where,
            hint="Remove the array or rename it",
        )


def check_array(
    shape: tuple[int, ...], dtype: np.dtype[np.generic], spec: TensorSpec, *, sample: str, where: str
) -> None:
    """Check one array of a sample against the network's input.

    Raises:
        SampleError: ``wrong_dtype`` or ``wrong_shape``.
    """
    if not _fits_dtype(dtype, spec.dtype):
        raise SampleError(
            "wrong_dtype",
            f"'{spec.name}' of sample '{sample}' is {dtype.name}, the model wants {spec.dtype}",
            where=where,
            hint=f"Store it with .astype('{spec.dtype}'); arrays are fed exactly as stored",
        )
    if not fits(shape, spec.shape):
        raise SampleError(
            "wrong_shape",
            f"'{spec.name}' of sample '{sample}' has shape {_dims(shape)}, "
            f"the model expected {_dims(spec.shape)}",
            where=where,
            hint=_shape_hint(shape, spec.shape),
        )


def fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    """Tell whether a shape is one that the network accepts.

    An empty ``wanted`` accepts everything: a scalar input and one of unknown rank look the same.
    """
    if not wanted:
        return True
    return len(shape) == len(wanted) and all(w is None or w == s for s, w in zip(shape, wanted, strict=True))


def non_finite_inputs(sample: Sample) -> tuple[str, ...]:
    """Return the inputs of a sample that hold NaN or infinite values."""
    return tuple(
        name
        for name, array in sample.feeds.items()
        if array.dtype.kind in "fc" and not bool(np.isfinite(array).all())
    )


def non_finite_notice(found: Mapping[str, Sequence[str]], *, code: str, where: str) -> Notice:
    """Return the warning about samples with NaN or infinite values.

    Args:
        found: Sample name -> inputs, as ``non_finite_inputs`` gave them; not empty.
        code: ``nan_in_inputs`` or ``nan_in_calibration``.
        where: The file or folder.
    """
    inputs = sorted({name for names in found.values() for name in names})
    some = ", ".join(list(found)[:5]) + (", ..." if len(found) > 5 else "")
    count = "1 sample holds" if len(found) == 1 else f"{len(found)} samples hold"
    return Notice(code, f"{count} NaN or infinite values in {_quoted(inputs)}: {some}", where)


def _fits_dtype(dtype: np.dtype[np.generic], wanted: str) -> bool:
    if wanted == "object":
        return dtype.kind == "U"
    name = dtype.newbyteorder("=").name
    return name == wanted or {name, wanted} == HALF_AND_SINGLE


def _shape_hint(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> str:
    for order, meaning in _LAYOUTS.items():
        if len(shape) == 4 and fits([shape[i] for i in order], wanted):
            return f"This looks like {meaning}: transpose it with .transpose{order}"
    if fits((1, *shape), wanted):
        return "The batch axis is missing: store it with [None] in front"
    return "Store arrays of that shape; None stands for any size"


def _dims(shape: Sequence[int | None]) -> str:
    return f"({', '.join(str(s) for s in shape)}{',' if len(shape) == 1 else ''})"


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{n}'" for n in names) if names else "nothing"
