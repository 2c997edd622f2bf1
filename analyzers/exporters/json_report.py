"""The finding as JSON, for programs."""

from __future__ import annotations

import json
from pathlib import Path

from analyzers.deserialize import read_record
from analyzers.errors import InputError
from analyzers.exporters import Exporter, ExportRequest, Written
from analyzers.exporters._names import layers_of_nodes
from analyzers.exporters._report import Report, make_report
from analyzers.project import Pair
from analyzers.serialize import to_json


def write(request: ExportRequest) -> Written:
    """Write everything that is known about the answer."""
    text = json.dumps(to_json(make_report(request)), indent=2, ensure_ascii=False, allow_nan=False)
    request.output.write_text(text + "\n", encoding="utf-8")
    return Written()


def read(path: Path, pair: Pair) -> frozenset[str]:
    """Return the layers of the reported set."""
    report = read_record(Report, path)
    members = {member.layer for member in report.members}
    nodes = [node for member in report.members for node in member.nodes]
    if members != set(report.search.fallback) or members != layers_of_nodes(pair, nodes, where=str(path)):
        raise InputError(
            "malformed_result",
            "The members of the report are not the fallback set of its search",
            where=str(path),
            hint="Export it again",
        )
    return frozenset(members)


ENTRY = Exporter(
    name="json",
    title="Report for programs",
    version="Tearline",
    tier=1,
    suffix=".json",
    write=write,
    read=read,
    needs_search=True,
)
