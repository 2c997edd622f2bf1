"""Hand a fallback set to a toolchain: one file per format.

Tools tend to ignore names that they do not know, so a plan is checked before it is written, and every file
is read back: what cannot be read back to the same plan is not kept.
"""

from __future__ import annotations

import difflib
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

from analyzers import registry
from analyzers.contracts import SampleSet
from analyzers.errors import BackendError, InputError
from analyzers.project import Pair
from analyzers.records import Notice, Plan
from analyzers.search_file import SearchFile


@dataclass(frozen=True, slots=True, eq=False)
class ExportRequest:
    """What is written, and where.

    Attributes:
        pair: The models that the plan is for.
        plan: The fallback set, its precision and its storage rule.
        output: The file to write; some formats write others beside it.
        search: The search that the plan comes from; reports cannot do without.
        base: A file of the user's that the plan is merged into; only for formats that take one.
        samples: Where given, models are run on the first of them to see that they do what trials did.
    """

    pair: Pair
    plan: Plan
    output: Path
    search: SearchFile | None = None
    base: Path | None = None
    samples: SampleSet | None = None


@dataclass(frozen=True, slots=True)
class ExportResult:
    """What was written.

    Attributes:
        format: Name of the exporter.
        files: The file that was asked for, then those beside it.
        fallback: The layers that the files keep out of INT8, as read back, topological.
        unmapped: Layers that the format has no name for; they stay INT8.
        warnings: Notices.
    """

    format: str
    files: tuple[Path, ...]
    fallback: tuple[str, ...]
    unmapped: tuple[str, ...] = ()
    warnings: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """What an exporter says of its work: layers that it could not name, and notices."""

    unmapped: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Exporter:
    """A format.

    Attributes:
        name: What users call it.
        title: What it is, in a few words.
        version: Version of the toolchain that it was written for.
        tier: 1 if files of this kind were run in the toolchain, 2 if it follows the documentation.
        suffix: What names of its files end with.
        write: Writes ``request.output``, and what belongs to it beside it; the folder is empty before.
        read: Returns the layers that a file keeps out of INT8; InputError for a file of another kind.
        needs_search: It reports a search and not only a plan.
        takes_base: It can merge the plan into a file of the user's.
    """

    name: str
    title: str
    version: str
    tier: Literal[1, 2]
    suffix: str
    write: Callable[[ExportRequest], Written]
    read: Callable[[Path, Pair], frozenset[str]]
    needs_search: bool = field(default=False, kw_only=True)
    takes_base: bool = field(default=False, kw_only=True)


@cache
def all_exporters() -> dict[str, Exporter]:
    """Return every exporter of this folder by name."""
    return registry.discover(sys.modules[__name__], Exporter)


def find_exporter(name: str) -> Exporter:
    """Return an exporter by name.

    Raises:
        InputError: ``unknown_format``.
    """
    known = all_exporters()
    if name not in known:
        raise InputError(
            "unknown_format", f"There is no export format '{name}'", hint=f"Choose one of: {', '.join(known)}"
        )
    return known[name]


def write_export(exporter: Exporter, request: ExportRequest) -> ExportResult:
    """Write a plan in one format, read it back and keep it only if that gives the same plan.

    Raises:
        InputError: The plan does not fit the models or the format, or the output cannot be written.
        BackendError: ``export_not_faithful``; nothing is kept.
    """
    _check_request(exporter, request)
    check_plan(request.pair, request.plan)
    try:
        request.output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=request.output.parent, prefix=".tearline-") as folder:
            # Under its own name: some files name each other.
            partial = replace(request, output=Path(folder) / request.output.name)
            written = exporter.write(partial)
            check_read_back(exporter, partial.output, request, unmapped=written.unmapped)
            names = [request.output.name]
            names += sorted(path.name for path in Path(folder).iterdir() if path != partial.output)
            for name in reversed(names):
                (Path(folder) / name).replace(request.output.with_name(name))
    except OSError as cause:
        raise InputError(
            "output_not_writable",
            f"Cannot write the file: {cause.strerror or cause}",
            where=str(request.output),
            hint="Choose a folder that exists, that you may write to and that has room",
        ) from cause
    return ExportResult(
        format=exporter.name,
        files=tuple(request.output.with_name(name) for name in names),
        fallback=ordered(request.pair, request.plan.fallback - set(written.unmapped)),
        unmapped=ordered(request.pair, written.unmapped),
        warnings=(*_notices(request), *written.notices),
    )


def check_plan(pair: Pair, plan: Plan) -> None:
    """Check that the plan names layers that may leave INT8.

    Raises:
        InputError: ``unknown_layer`` or ``layer_without_precision``.
    """
    layers = {layer.name: layer for layer in pair.pairing.layers}
    for name in sorted(plan.fallback):
        if name not in layers:
            near = difflib.get_close_matches(name, layers, n=1)
            raise InputError(
                "unknown_layer",
                f"The reference has no layer '{name}'",
                where=str(pair.reference.path),
                hint=f"Did you mean '{near[0]}'?" if near else "Give the models that the search was run on",
            )
        if layers[name].is_pass_through:
            raise InputError(
                "layer_without_precision",
                f"Layer '{name}' ({layers[name].op_type}) only moves values: its producer sets the precision",
                where=name,
                hint="Leave it out of the fallback set",
            )


def check_read_back(
    exporter: Exporter, path: Path, request: ExportRequest, *, unmapped: tuple[str, ...] = ()
) -> None:
    """Check that a file holds the plan, no more and no less.

    Raises:
        BackendError: ``export_not_faithful``.
    """
    expected = request.plan.fallback - set(unmapped)
    found = exporter.read(path, request.pair)
    if found == expected:
        return
    parts = []
    if missing := ordered(request.pair, expected - found):
        parts.append(f"it lacks {', '.join(missing)}")
    if extra := ordered(request.pair, found - expected):
        parts.append(f"it also has {', '.join(extra)}")
    raise BackendError(
        "export_not_faithful",
        f"The {exporter.name} file does not hold the plan when it is read back: {'; '.join(parts)}",
        where=str(request.output),
        hint="Nothing was kept; please report this with the models",
    )


def ordered(pair: Pair, layers: frozenset[str] | set[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return layer names in topological order; names of no layer last, sorted."""
    place = {layer.name: index for index, layer in enumerate(pair.pairing.layers)}
    return tuple(sorted(layers, key=lambda name: (place.get(name, len(place)), name)))


def _check_request(exporter: Exporter, request: ExportRequest) -> None:
    if exporter.needs_search and request.search is None:
        raise InputError(
            "search_missing",
            f"The format '{exporter.name}' reports a search",
            hint="Give the JSON file that a search wrote",
        )
    if request.base is not None and not exporter.takes_base:
        raise InputError(
            "bad_option",
            f"The format '{exporter.name}' cannot be merged into another file",
            where=str(request.base),
            hint="Leave the file out",
        )


def _notices(request: ExportRequest) -> list[Notice]:
    notices = []
    if not request.plan.fallback:
        notices.append(Notice("empty_plan", "The plan keeps no layer out of INT8: it is the candidate"))
    search = request.search
    if search is not None and not search.result.reached:
        result = search.result
        notices.append(
            Notice(
                "target_not_reached",
                f"The search did not reach its target ({result.score:.4g} of {result.target:.4g}); this is "
                "the best set that it found",
            )
        )
    return notices
