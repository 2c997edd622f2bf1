"""Turn the paths that a user gave into a pair of models, a task and sets of samples."""

from __future__ import annotations

import dataclasses
import hashlib
from importlib.metadata import version
from pathlib import Path

from analyzers import graph, quantizing, samples
from analyzers.contracts import SampleSet
from analyzers.deserialize import read_record
from analyzers.errors import InputError
from analyzers.name_maps import read_name_map
from analyzers.project import Pair, open_models
from analyzers.records import Inputs, Notice, QuantizeResult, TensorSpec
from analyzers.serialize import write_json
from analyzers.steps import Step, Steps
from analyzers.tasks.task import Task, read_task


def open_pair(inputs: Inputs) -> Steps[Pair]:
    """Read reference and candidate and pair them; make the candidate first where none was given.

    Raises:
        InputError: A file is missing or wrong, or there is neither candidate nor calibration set.
    """
    yield Step("read", 0, 1, "Reading and pairing the models")
    notices: tuple[Notice, ...] = ()
    candidate = inputs.candidate
    if candidate is None:
        candidate, notices = yield from _made_candidate(inputs)
    name_map = None if inputs.name_map is None else read_name_map(inputs.name_map)
    pair = open_models(inputs.reference, candidate, name_map=name_map)
    yield Step("read", 1, 1, f"{pair.pairing.coverage:.0%} of the layers pair")
    return dataclasses.replace(pair, warnings=pair.warnings + notices)


def _made_candidate(inputs: Inputs) -> Steps[tuple[Path, tuple[Notice, ...]]]:
    """Quantize the reference, or find the candidate that the same calibration made before."""
    if inputs.calibration is None:
        raise InputError(
            "candidate_missing",
            "There is no candidate",
            hint="Give a quantized model, or a calibration set to make one from",
        )
    model = graph.read_model(inputs.reference)
    task = open_task(inputs)
    calibration = samples.open_samples(inputs.calibration, model.inputs, task=task, role="calibration")
    key = hashlib.sha256(
        f"{model.digest}:{calibration.digest}:{inputs.quantize!r}:{_versions()}".encode()
    ).hexdigest()
    folder = inputs.workspace / "candidates"
    folder.mkdir(parents=True, exist_ok=True)
    path, record = folder / f"{key[:32]}.onnx", folder / f"{key[:32]}.json"
    if path.exists() and record.exists():
        return path, read_record(QuantizeResult, record).warnings
    result = yield from quantizing.quantize(inputs.reference, calibration, inputs.quantize, path)
    # Last, and with the warnings: whoever finds the candidate again must hear them too.
    write_json(result, record)
    return path, result.warnings


def _versions() -> str:
    """Return what a candidate depends on besides its inputs."""
    return f"tearline {version('tearline')}, onnxruntime {version('onnxruntime')}"


def make_candidate(reference: Path, data: Path, output: Path, *, inputs: Inputs) -> Steps[QuantizeResult]:
    """Quantize a reference as a command of its own; ``inputs`` says task, samples and options."""
    model = graph.read_model(reference)
    chosen = samples.open_samples(
        data, model.inputs, task=open_task(inputs), selection=inputs.samples, role="calibration"
    )
    return (yield from quantizing.quantize(reference, chosen, inputs.quantize, output))


def open_task(inputs: Inputs) -> Task | None:
    """Read the task file, if there is one."""
    return None if inputs.task is None else read_task(inputs.task, allow_code=inputs.allow_code)


def open_data(inputs: Inputs, specs: tuple[TensorSpec, ...], task: Task | None) -> SampleSet:
    """Open the evaluation set, checked against what the reference reads."""
    if inputs.data is None:
        raise InputError(
            "zero_samples",
            "There is no data",
            hint="Give a folder of images, an .npz file or a folder of .npz files",
        )
    return samples.open_samples(inputs.data, specs, task=task, selection=inputs.samples)


def open_candidate_data(inputs: Inputs, pair: Pair, task: Task | None) -> SampleSet | None:
    """Open what the candidate was fed where that differs; None where it is the same."""
    if inputs.candidate_data is None:
        return None
    return samples.open_samples(
        inputs.candidate_data, pair.candidate.inputs, task=task, selection=inputs.samples
    )
