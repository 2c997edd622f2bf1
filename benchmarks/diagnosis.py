"""Diagnose generated networks whose faults are known, and count how often the answer is right.

    python benchmarks/diagnosis.py --count 300 --healthy 100
    python benchmarks/diagnosis.py --kind bn_fold_wrong --count 20 --json out.json
    python benchmarks/diagnosis.py --repeat fold_mistake:17 --keep folder

Networks are drawn from seeds, so that a failure can be looked at again by its name and seed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.faults.generate import Specimen, causes, generate, generate_healthy, names_of
from tests.faults.judge import RESULTS, Outcome, ask
from tests.faults.surgery import UnsuitableError

HEALTHY = "healthy"


@dataclass(frozen=True)
class Line:
    """One diagnosed network."""

    cause: str
    name: str
    seed: int
    result: str
    reason: str
    answer: str
    seconds: float
    healthy_db: float
    score_db: float


def main() -> int:
    options = _options()
    if options.repeat:
        return _repeat(options.repeat, options.keep)
    tasks = list(_tasks(options.kind, options.count, options.healthy, options.seed))
    start = time.monotonic()
    lines: list[Line] = []
    for line in _diagnosed(tasks, options.jobs):
        lines.append(line)
        if line.result != "right":
            print(f"{line.name}:{line.seed}  {line.result}: {line.reason}  [{line.answer}]", flush=True)
        elif sys.stderr.isatty():
            print(f"\r{len(lines)}/{len(tasks)}", end="", file=sys.stderr, flush=True)
    print_table(lines)
    print(f"{len(lines)} networks in {time.monotonic() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps([asdict(line) for line in lines], indent=1))
    return 0 if all(line.result == "right" for line in lines) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="networks with faults, over all kinds")
    parser.add_argument("--healthy", type=int, help="networks without; 100, or none where --kind is given")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--kind", action="append", help="a cause or the name of a fault; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="write every line there")
    parser.add_argument("--repeat", metavar="NAME:SEED", help="diagnose one network and say what was found")
    parser.add_argument("--keep", type=Path, help="with --repeat: keep the files in this folder")
    options = parser.parse_args()
    if options.healthy is None:
        options.healthy = 0 if options.kind else 100
    return options


def _tasks(kinds: Sequence[str] | None, count: int, healthy: int, seed: int) -> Iterable[tuple[str, int]]:
    """Yield names and seeds: causes in turn, and within a cause its faults in turn."""
    chosen = [kind for kind in (kinds or causes()) if kind != HEALTHY]
    for kind in chosen:
        if not names_of(kind):
            raise SystemExit(f"there is no kind {kind}; there are {', '.join(causes())}")
    for i in range(count if chosen else 0):
        names = names_of(chosen[i % len(chosen)])
        turn = i // len(chosen)
        yield names[turn % len(names)], seed + turn // len(names)
    for i in range(healthy if kinds is None or HEALTHY in kinds or healthy else 0):
        yield HEALTHY, seed + i


def _diagnosed(tasks: Sequence[tuple[str, int]], jobs: int) -> Iterable[Line]:
    if jobs == 1:
        yield from map(_line, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_line, tasks)


def _line(task: tuple[str, int]) -> Line:
    name, seed = task
    cause = HEALTHY if name == HEALTHY else _cause_of(name)
    try:
        specimen = _specimen(name, seed)
    except UnsuitableError as reason:
        return Line(cause, name, seed, "not drawn", str(reason), "", 0.0, 0.0, 0.0)
    try:
        outcome = ask(specimen)
    except Exception as error:  # a crash of the diagnosis is what this is here to show
        outcome = Outcome("failed", f"{type(error).__name__}: {error} {_where(error)}", "", 0.0)
    return Line(
        cause,
        name,
        seed,
        outcome.result,
        outcome.reason,
        outcome.answer,
        outcome.seconds,
        specimen.healthy_db,
        specimen.score_db,
    )


def _where(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"at {Path(last.filename).name}:{last.lineno}"


def _cause_of(name: str) -> str:
    return next(cause for cause in causes() if name in names_of(cause))


def _specimen(name: str, seed: int) -> Specimen:
    return generate_healthy(seed) if name == HEALTHY else generate(name, seed)


def _repeat(what: str, keep: Path | None) -> int:
    name, _, seed = what.partition(":")
    specimen = _specimen(name, int(seed))
    for truth in specimen.truths:
        guilty = " or ".join(", ".join(sorted(names)) for names in truth.guilty) or "no layer"
        print(f"truth: {truth.cause} ({', '.join(truth.accepted)}) of {guilty}")
        if truth.tolerated:
            print(f"       may be named too: {', '.join(sorted(truth.tolerated))}")
    print(f"score: {specimen.healthy_db:.1f} dB without the fault, {specimen.score_db:.1f} dB with it")
    print("notes:", *specimen.notes, sep="\n  ")
    outcome = ask(specimen, keep)
    print(f"answer: {outcome.answer}\n{outcome.result} {outcome.reason} ({outcome.seconds:.1f} s)")
    return 0 if outcome.result == "right" else 1


def print_table(lines: Sequence[Line]) -> None:
    """Print how many answers were right, by cause."""
    columns = (*RESULTS, "not drawn")
    shown = [column for column in columns if any(line.result == column for line in lines)]
    print(f"\n{'cause':28s}{'n':>5s}" + "".join(f"{column:>13s}" for column in shown) + f"{'right %':>9s}")
    by_cause: dict[str, list[Line]] = {}
    for line in lines:
        by_cause.setdefault(line.cause, []).append(line)
    for cause, group in [*sorted(by_cause.items()), ("all", list(lines))]:
        counts = Counter(line.result for line in group)
        judged = len(group) - counts["not drawn"]
        share = f"{100 * counts['right'] / judged:9.0f}" if judged else f"{'n/a':>9s}"
        print(f"{cause:28s}{len(group):5d}" + "".join(f"{counts[c]:13d}" for c in shown) + share)
    failed: dict[str, list[str]] = {}
    for line in lines:
        if line.result != "right":
            failed.setdefault(line.result, []).append(f"{line.name}:{line.seed}")
    for result, names in sorted(failed.items()):
        print(f"{result}: {' '.join(names)}")


if __name__ == "__main__":
    sys.exit(main())
