"""Read task files: what a network's input is made of, how its outputs are read, and how they are scored."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from analyzers import registry
from analyzers.errors import TaskError
from analyzers.hashing import file_digest
from analyzers.tasks import decoders, metrics
from analyzers.tasks.decoder import Decoder, DecoderKind
from analyzers.tasks.kinds import MetricKind, MetricOptions
from analyzers.tasks.preprocess import Preprocess
from analyzers.tasks.schema import Section, as_section, check_keys, malformed, read_choice, read_record
from analyzers.tasks.user_code import UserFunction, is_user_code, read_user_function

_MAX_BYTES = 1 << 20
_KEYS = ("name", "preprocess", "decoder", "metric", "categories")


@dataclass(frozen=True, slots=True)
class Task:
    """A task file, checked.

    Attributes:
        name: For people.
        digest: Content hash of the file and of the files that it names.
        preprocess: How an image becomes the network's input; None for tensors only.
        decoder: How outputs become detections; None where the metric reads outputs.
        metric: What is scored; None for the label-free default.
        categories: Pairs of class index and COCO category id; None for the annotation's ids in order.
    """

    name: str
    digest: str
    preprocess: Preprocess | None = None
    decoder: Decoder | UserFunction | None = None
    metric: MetricOptions | UserFunction | None = None
    categories: tuple[tuple[int, int], ...] | None = None


@cache
def decoder_kinds() -> Mapping[str, DecoderKind]:
    """Return all decoders by name."""
    return registry.discover(decoders, DecoderKind)


@cache
def metric_kinds() -> Mapping[str, MetricKind]:
    """Return all task metrics by name."""
    return registry.discover(metrics, MetricKind)


def read_task(path: Path, *, allow_code: bool = False) -> Task:
    """Read a task file.

    Args:
        path: The YAML file; files that it names lie beside it.
        allow_code: Permit ``decoder: file.py:function`` and ``metric: file.py:score``.

    Raises:
        TaskError: ``file_absent``, ``malformed_task`` (naming the key), ``code_not_allowed`` or
            ``user_code_failed``.
    """
    section = as_section(_read_yaml(path), "", path)
    check_keys(section, _KEYS)
    name = section.values.get("name", path.stem)
    if not isinstance(name, str):
        raise malformed(section, "'name' has to be text", hint="Put it in quotes")
    preprocess = None
    if "preprocess" in section.values:
        preprocess = read_record(Preprocess, as_section(section.values["preprocess"], "preprocess", path))
    decoder = _read_decoder(section, allow_code=allow_code)
    metric = _read_metric(section, allow_code=allow_code)
    return Task(
        name=name,
        digest=_digest(path, decoder, metric),
        preprocess=preprocess,
        decoder=decoder,
        metric=metric,
        categories=_read_categories(section),
    )


def _read_yaml(path: Path) -> object:
    hint = "See the examples in sample_models/tasks"
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError("it is larger than a task file can be")
        value: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError as cause:
        raise TaskError("file_absent", "There is no such task file", where=str(path), hint=hint) from cause
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as cause:
        text = " ".join(str(cause).split())[:300]
        raise TaskError(
            "malformed_task", f"The task file cannot be read: {text}", where=str(path), hint=hint
        ) from cause
    return value


def _named_part(section: Section, key: str) -> Section:
    """Return a part that is written as its name alone or as a mapping with a ``name``."""
    value = section.values[key]
    return as_section({"name": value} if isinstance(value, str) else value, key, section.path)


def _read_decoder(section: Section, *, allow_code: bool) -> Decoder | UserFunction | None:
    if "decoder" not in section.values:
        return None
    part = _named_part(section, "decoder")
    name = part.values.get("name")
    if isinstance(name, str) and is_user_code(name):
        check_keys(part, ("name",))
        return read_user_function(name, section.path.parent, allow_code=allow_code)
    kinds = decoder_kinds()
    kind = kinds[read_choice(part, "name", kinds.keys(), "")]
    return read_record(kind.options, part, skip=("name",))


def _read_metric(section: Section, *, allow_code: bool) -> MetricOptions | UserFunction | None:
    if "metric" not in section.values:
        return None
    part = _named_part(section, "metric")
    name = part.values.get("name")
    if isinstance(name, str) and is_user_code(name):
        check_keys(part, ("name",))
        return read_user_function(name, section.path.parent, allow_code=allow_code)
    kinds = metric_kinds()
    kind = kinds[read_choice(part, "name", kinds.keys(), "")]
    return read_record(kind.options, part, skip=("name",))


def _read_categories(section: Section) -> tuple[tuple[int, int], ...] | None:
    """Return pairs of class index and category id, from a list of ids or a mapping."""
    value = section.values.get("categories")
    if value is None:
        return None
    pairs = list(enumerate(value)) if isinstance(value, list) else None
    if isinstance(value, dict):
        pairs = list(value.items())
    if not pairs or not all(type(part) is int and part >= 0 for pair in pairs for part in pair):
        raise malformed(
            section,
            "'categories' has to give a COCO category id (a whole number) for each class",
            hint="Write a list of ids in the order of the classes, or 'class index: id' lines",
        )
    if len({category for _, category in pairs}) != len(pairs):
        raise malformed(
            section, "'categories' gives one id to two classes", hint="Give each class its own id"
        )
    return tuple(sorted((int(index), int(category)) for index, category in pairs))


def _digest(path: Path, decoder: object, metric: object) -> str:
    """Hash the task file together with the files that it names."""
    digest = hashlib.sha256(path.read_bytes())
    for part in (decoder, metric):
        for name in getattr(type(part), "__slots__", ()):
            value = getattr(part, name)
            if isinstance(value, Path):
                digest.update(f"\n{file_digest(value)}".encode())
    return digest.hexdigest()
