"""Look at one input in a process of its own: is it what it should be, and what is in it, in words.

``python -m workbench.probe ROLE PATH`` prints the facts, or the error, as JSON. Files from a browser are
opened nowhere else before a job runs, so a file that makes a parser crash or swell harms nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from analyzers.deserialize import from_json
from analyzers.errors import InputError, TearlineError
from analyzers.serialize import to_json
from workbench.job_records import JobError
from workbench.uploads import Role

_SECONDS = 120.0
_MEMORY_BYTES = 6 << 30
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """What is in a file or folder.

    Attributes:
        summary: One line for people; empty if there is an error.
        error: Why it cannot be used.
    """

    summary: str
    error: JobError | None = None


def probe(role: Role, path: Path, *, seconds: float = _SECONDS) -> Facts:
    """Look at an input in a child process; never raises for what is in the file."""
    folder = path if path.is_dir() else path.parent
    try:
        # -P keeps the input's folder, which is the current one, out of the import path.
        done = subprocess.run(
            [sys.executable, "-P", "-m", "workbench.probe", role, str(path)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
        value = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return _refused("too_slow", f"Looking at the file took more than {seconds:.0f} s")
    except ValueError:
        return _refused("malformed_inputs", "The file made its reader crash")
    return from_json(Facts, value)


def look(role: Role, path: Path) -> Facts:
    """Look at an input in this process.

    Raises:
        InputError: It cannot be used.
    """
    looks = {
        "model": _model,
        "set": _samples,
        "annotations": _annotations,
        "task": _task,
        "name_map": _name_map,
        "profile": _profile,
    }
    return Facts(looks[role](path))


def _model(path: Path) -> str:
    from analyzers import graph

    model = graph.read_model(path)
    types = Counter(node.op_type for node in model.ir.graph)
    inputs = ", ".join(f"{s.name} {_shape(s.shape)} {s.dtype}" for s in model.inputs[:_SHOWN])
    form = "FP32"
    if any(t.startswith(("QLinear", "ConvInteger", "MatMulInteger")) for t in types):
        form = "INT8, QOperator form"
    elif types["QuantizeLinear"] or types["DequantizeLinear"]:
        form = "INT8, QDQ form"
    return f"{form} · {sum(types.values())} operators · {inputs}"


def _shape(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if d is None else str(d) for d in shape)


def _samples(path: Path) -> str:
    from analyzers.sample_archives import list_arrays
    from analyzers.sample_images import is_image

    if path.is_file():
        arrays = list_arrays(path)
        shown = ", ".join(f"{a.key} {_shape(a.shape)} {a.dtype}" for a in arrays[:_SHOWN])
        return f"{len(arrays)} arrays · {shown}" if len(arrays) > 1 else shown
    files = [p for p in path.rglob("*") if p.is_file()]
    images = sum(is_image(p) for p in files)
    archives = sum(p.suffix.lower() == ".npz" for p in files)
    if not images and not archives:
        raise InputError("zero_samples", "The folder holds no images and no .npz files", where=str(path))
    return f"{images} images" if images else f"{archives} .npz files"


def _annotations(path: Path) -> str:
    from analyzers.tasks.annotations import read_annotations
    from analyzers.tasks.labels import read_labels

    if path.suffix.lower() != ".json" or not _is_coco(path):
        return f"{len(read_labels(path))} labels"
    found = read_annotations(path)
    return f"{len(found.images)} images · {len(found.ids)} boxes · {len(found.categories)} classes"


def _is_coco(path: Path) -> bool:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return True  # its reader says what is wrong
    is_labels = isinstance(value, dict) and bool(value) and all(isinstance(v, int) for v in value.values())
    return not is_labels


def _task(path: Path) -> str:
    from analyzers.tasks.task import read_task

    task = read_task(path, allow_code=False)
    decoder = "no decoder" if task.decoder is None else type(task.decoder).__name__
    images = "tensors only" if task.preprocess is None else "images"
    return f"{task.name} · {images} · {decoder}"


def _name_map(path: Path) -> str:
    from analyzers.name_maps import read_name_map

    return f"{len(read_name_map(path))} tensors"


def _profile(path: Path) -> str:
    from analyzers.target_profiles import parse_profile

    profile = parse_profile(path)
    return f"{profile.name} · {profile.title}"


def _refused(code: str, message: str) -> Facts:
    return Facts("", JobError(code, message, hint="Export or download the file again"))


def main() -> None:
    """Print what is known about ``ROLE PATH``."""
    from workbench.worker import limit_memory

    limit_memory(_MEMORY_BYTES)
    role, path = sys.argv[1], Path(sys.argv[2])
    if role not in get_args(Role):
        raise ValueError(f"unknown role: {role}")
    try:
        facts = look(cast("Role", role), path)
    except TearlineError as error:
        facts = Facts("", JobError(error.code, error.message, error.where, error.hint))
    except MemoryError:
        facts = _refused("out_of_memory", "Looking at the file took too much memory")
    print(json.dumps(to_json(facts)))


if __name__ == "__main__":
    main()
