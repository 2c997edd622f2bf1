"""Rockchip's hybrid quantization: the first block of ``<model>.quantization.cfg``.

The toolkit names tensors of its own rewritten graph. It keeps the reference's names, but tensors that it
folds away (a Mul into the Conv before it) are gone, and naming one is an error there. The file that its step
1 wrote lists those that are left; merged into it, an export names only these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import yaml

from analyzers.errors import InputError
from analyzers.exporters import Exporter, ExportRequest, Written
from analyzers.exporters._names import layers_of_tensors, tensors_of
from analyzers.project import Pair
from analyzers.records import Notice

BLOCK = "custom_quantize_layers"
_PARAMETERS = "quantize_parameters"
_BLOCK_START = re.compile(rf"^{BLOCK}[ \t]*:.*(?:\n|\Z)", re.MULTILINE)
# Where the next key begins; whatever is indented, empty or a comment before it belongs to the block.
_NEXT_KEY = re.compile(r"^[^\s#]", re.MULTILINE)
_PLAIN_NAME = re.compile(r"[A-Za-z_/](?:[\w/.:\-]*[\w/.\-])?", re.ASCII)
_YAML_WORDS = frozenset("true false yes no on off null none y n".split())
_ADVICE = """\
# Layers that leave INT8, for Rockchip's hybrid quantization (rknn-toolkit2).
# Put this block in the place of '{block}' in the file
# <model>.quantization.cfg that hybrid_quantization_step1 wrote, then run hybrid_quantization_step2.
# A tensor that the toolkit has folded away is an error there: leave it out, or export into that file,
# which names only tensors that are left.
"""


def write(request: ExportRequest) -> Written:
    """Write the block alone, or merged into a file of the user's; the rest of that stays as it is."""
    if request.plan.precision != "fp16":
        raise InputError(
            "precision_not_supported",
            "rknn-toolkit2 keeps layers in float16, not in float32",
            where=str(request.output),
            hint="Search again with --precision fp16",
        )
    base = None if request.base is None else _read_text(request.base)
    known = None if base is None else _known_tensors(base, str(request.base))
    named, unmapped, folded = _namable(tensors_of(request.pair, request.plan.fallback), known)
    notices = []
    if folded:
        text = f"The toolkit has folded these tensors into others, so they are not named: {', '.join(folded)}"
        notices.append(Notice("folded_tensors", text, folded[0]))
    if unmapped:
        text = f"The toolkit's graph has no tensor of these layers; they stay INT8: {', '.join(unmapped)}"
        notices.append(Notice("unmapped_layers", text, unmapped[0]))
    if base is None:
        text = _ADVICE.format(block=BLOCK) + _block(named, "\n")
    else:
        before = _entries(base, str(request.base))
        if before and set(before) != set(named):
            replaced = f"Entries that were there before are replaced: {', '.join(before)}"
            notices.append(Notice("entries_replaced", replaced, str(request.base)))
        text = _merged(base, named, str(request.base))
    request.output.write_bytes(text.encode())
    return Written(unmapped=unmapped, notices=tuple(notices))


def read(path: Path, pair: Pair) -> frozenset[str]:
    """Return the layers whose tensors the file keeps in float16."""
    text = _read_text(path)
    entries = _entries(text, str(path))
    for tensor, precision in entries.items():
        if precision != "float16":
            raise InputError(
                "precision_not_supported",
                f"Tensor '{tensor}' is kept in {precision}, not in float16",
                where=str(path),
                hint="Export the file again",
            )
    return layers_of_tensors(pair, entries.keys(), known=_known_tensors(text, str(path)), where=str(path))


def _namable(
    table: dict[str, tuple[str, ...]], known: Collection[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the tensors to name, the layers without any, and the tensors that other layers lost."""
    named: list[str] = []
    unmapped: list[str] = []
    folded: list[str] = []
    for layer, tensors in table.items():
        kept = [tensor for tensor in tensors if known is None or tensor in known]
        named += kept
        if not kept:
            unmapped.append(layer)
        else:
            folded += [tensor for tensor in tensors if tensor not in kept]
    return tuple(named), tuple(unmapped), tuple(folded)


def _block(tensors: Sequence[str], newline: str) -> str:
    if not tensors:
        return f"{BLOCK}: {{}}{newline}"
    return newline.join([f"{BLOCK}:", *(f"    {_quoted(tensor)}: float16" for tensor in tensors), ""])


def _quoted(name: str) -> str:
    """Return a tensor's name as YAML reads it back: as a string, whatever it looks like."""
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _YAML_WORDS:
        return name
    return json.dumps(name, ensure_ascii=False)


def _merged(base: str, tensors: Sequence[str], where: str) -> str:
    """Return the user's file with the block replaced, every other byte kept."""
    start, stop = _block_span(base, where)
    newline = "\r\n" if "\r\n" in base else "\n"
    return base[:start] + _block(tensors, newline) + base[stop:]


def _block_span(text: str, where: str) -> tuple[int, int]:
    found = _BLOCK_START.search(text)
    if found is None:
        raise _malformed(f"it has no '{BLOCK}'", where)
    following = _NEXT_KEY.search(text, found.end())
    stop = len(text) if following is None else following.start()
    # Comments and empty lines above the next key are that key's.
    body = text[found.end() : stop]
    kept = re.search(r"(?:^(?:[ \t]*|#[^\n]*)\r?\n)+\Z", body, re.MULTILINE)
    return found.start(), found.end() + (len(body) if kept is None else kept.start())


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as cause:
        raise InputError(
            "file_absent", f"Cannot read the file: {cause.strerror}", where=str(path), hint="Check the path"
        ) from cause
    except UnicodeDecodeError as cause:
        raise _malformed("it is not text", str(path)) from cause


def _parse(text: str, where: str) -> dict[object, object]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        table = yaml.load(text, Loader=loader)  # noqa: S506 - one of the safe loaders
    except (yaml.YAMLError, RecursionError, ValueError) as cause:
        raise _malformed("it is not YAML", where) from cause
    if not isinstance(table, dict):
        raise _malformed("it holds no keys", where)
    return table


def _entries(text: str, where: str) -> dict[str, str]:
    """Return tensor -> precision of the block."""
    table = _parse(text, where)
    if BLOCK not in table:
        raise _malformed(f"it has no '{BLOCK}'", where)
    block = table[BLOCK]
    if block is None:
        return {}
    if not isinstance(block, dict):
        raise _malformed(f"'{BLOCK}' is no table", where)
    return {str(tensor): str(precision) for tensor, precision in block.items()}


def _known_tensors(text: str, where: str) -> frozenset[str] | None:
    """Return the tensors of the toolkit's graph; None where the file does not list them."""
    parameters = _parse(text, where).get(_PARAMETERS)
    return frozenset(str(name) for name in parameters) if isinstance(parameters, dict) else None


def _malformed(reason: str, where: str) -> InputError:
    return InputError(
        "malformed_result",
        f"This is no quantization file of rknn-toolkit2: {reason}",
        where=where,
        hint="Give the <model>.quantization.cfg that hybrid_quantization_step1 wrote",
    )


ENTRY = Exporter(
    name="rknn",
    title="Rockchip hybrid quantization",
    version="rknn-toolkit2 2.5.0",
    tier=1,
    suffix=".quantization.cfg",
    write=write,
    read=read,
    takes_base=True,
)
