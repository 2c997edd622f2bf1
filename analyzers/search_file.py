"""The JSON file of a search: the result, what it was asked, and which files it was run on.

Anyone may have edited it, so reading is strict: every field is checked, and so is that they fit together.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from analyzers.deserialize import from_json
from analyzers.errors import InputError
from analyzers.records import Inputs, SearchOptions, SearchResult
from analyzers.serialize import JsonValue, to_json

_HINT = "Give the JSON file that `tearline search --json` wrote, unchanged"


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a search was run on.

    Attributes:
        tearline: Version of Tearline.
        reference_digest: Content hash of the reference; see ``graph.Model``.
        candidate_digest: The same of the candidate.
    """

    tearline: str
    reference_digest: str
    candidate_digest: str


@dataclass(frozen=True, slots=True)
class SearchFile:
    """A search's JSON file.

    Attributes:
        result: Its answer.
        inputs: Where models and samples were; None in files of programs that did not say.
        options: What was asked for; None likewise.
        provenance: What it was run on; None likewise.
    """

    result: SearchResult
    inputs: Inputs | None = None
    options: SearchOptions | None = None
    provenance: Provenance | None = None


def search_json(file: SearchFile) -> dict[str, JsonValue]:
    """Return the JSON form: the result's keys, and the rest in blocks beside them."""
    table = to_json(file.result)
    assert isinstance(table, dict)
    blocks = {"inputs": file.inputs, "options": file.options, "provenance": file.provenance}
    return table | {key: to_json(block) for key, block in blocks.items() if block is not None}


def read_search_file(path: Path) -> SearchFile:
    """Read a search's JSON file.

    Raises:
        InputError: The file is absent, no JSON, or not the answer of a search.
    """
    where = str(path)
    table = _load(path)
    if not isinstance(table, dict):
        raise _malformed("It holds no object", where)
    if "fallback" not in table or "target" not in table:
        raise _malformed("It is not the answer of a search: it has no 'fallback' and 'target'", where)
    blocks = {key: table.pop(key, None) for key in ("inputs", "options", "provenance")}
    result = from_json(SearchResult, table, where=where)
    _check(result, where)
    inputs, options, provenance = blocks.values()
    return SearchFile(
        result=result,
        inputs=None if inputs is None else from_json(Inputs, inputs, where=where),
        options=None if options is None else from_json(SearchOptions, options, where=where),
        provenance=None if provenance is None else from_json(Provenance, provenance, where=where),
    )


def _load(path: Path) -> object:
    try:
        value: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as cause:
        raise InputError(
            "file_absent", f"Cannot read the file: {cause.strerror}", where=str(path), hint="Check the path"
        ) from cause
    except (ValueError, RecursionError) as cause:
        raise _malformed("It is not JSON", str(path)) from cause
    return value


def _check(result: SearchResult, where: str) -> None:
    """Check what types cannot say."""
    repeated = [name for name, count in Counter(result.fallback).items() if count > 1]
    if repeated:
        raise _malformed(f"'fallback' names the layer '{repeated[0]}' twice", where)
    if bool(result.fallback) != bool(result.fallback_nodes):
        raise _malformed("'fallback' and 'fallback_nodes' contradict each other", where)
    if result.samples < 1:
        raise _malformed(f"'samples' is {result.samples}", where)


def _malformed(reason: str, where: str) -> InputError:
    return InputError(
        "malformed_result", f"The search file cannot be used. {reason}", where=where, hint=_HINT
    )
