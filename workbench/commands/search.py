"""``tearline search``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from analyzers.deserialize import read_record
from workbench.commands.compose import takes
from workbench.commands.options import Asked, one_of, read_asked
from workbench.commands.words import bad_option

if TYPE_CHECKING:
    from analyzers.records import Precision, Rule

_GLOBS = "Glob pattern of layers or nodes that {}; may be given again."

EXAMPLES = r"""
tearline search model.onnx model_int8.onnx --data photos/ --task task.yaml \
    --annotations coco.json --max-drop 0.01 --json search.json
tearline search model.onnx model_int8.onnx --data inputs.npz --metric slice-sqnr --target 20
"""


@takes(asked=read_asked)
def search(
    *,
    asked: Asked,
    target: Annotated[
        float | None, typer.Option(help="Lowest score that is acceptable.", show_default=False)
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(min=0.0, help="The same as a distance below the reference's score.", show_default=False),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="FULL_SETS",
            help="How many times the whole set may be run.  [default: 100, or 4096 images if that is more]",
            show_default=False,
        ),
    ] = None,
    keep_int8: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help=_GLOBS.format("must stay INT8"), show_default=False),
    ] = None,
    force_fallback: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help=_GLOBS.format("must leave INT8"), show_default=False),
    ] = None,
    max_layers: Annotated[
        int | None, typer.Option(min=0, help="Largest set that is acceptable.", show_default=False)
    ] = None,
    target_profile: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="Device that costs are of: a profile that comes with Tearline, or a YAML file.",
        ),
    ] = "generic",
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="per-edge|hybrid|nodes-to-exclude",
            help="Which tensors of a plan stay INT8.  [default: the profile's]",
            show_default=False,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="fp16|fp32",
            help="Precision of the layers that leave INT8.  [default: the profile's]",
            show_default=False,
        ),
    ] = None,
    holdout: Annotated[
        float, typer.Option(metavar="F", help="Share of the samples kept back to score the answer.")
    ] = 0.0,
) -> None:
    """Find the smallest set of layers to keep in FP16 so that the score reaches a target.

    Exits with 1 if the target is not reached. Trials are kept in the workspace: a search that was stopped
    goes on where it was.
    """
    from analyzers.records import RULES, SearchOptions, SearchResult
    from analyzers.target_profiles import for_target, is_profile_file
    from workbench.commands.report import search_lines, show, warn
    from workbench.commands.running import run_job
    from workbench.requests import BESIDE_A_SEARCH, SearchRequest

    _check(asked, target=target, max_drop=max_drop, budget=budget, holdout=holdout)
    inputs = for_target(
        asked.inputs,
        str(Path(target_profile).absolute()) if is_profile_file(target_profile) else target_profile,
        rule=None if rule is None else cast("Rule", one_of(rule, RULES, "--rule")),
        precision=None
        if precision is None
        else cast("Precision", one_of(precision, ("fp16", "fp32"), "--precision")),
    )
    options = SearchOptions(
        target=target,
        max_drop=max_drop,
        budget=budget,
        keep_int8=tuple(keep_int8 or ()),
        force_fallback=tuple(force_fallback or ()),
        max_layers=max_layers,
        holdout=holdout,
    )
    read = partial(read_record, SearchResult, beside=BESIDE_A_SEARCH)
    result = run_job("search", SearchRequest(inputs, options), read, asked.run)
    warn(result.warnings)
    show(search_lines(result))
    if not result.reached:
        raise typer.Exit(1)


def _check(
    asked: Asked, *, target: float | None, max_drop: float | None, budget: float | None, holdout: float
) -> None:
    if asked.inputs.task is None and asked.inputs.metric is None:
        raise bad_option(
            "A search needs a score",
            "Give --task with --annotations, or --metric sqnr or slice-sqnr",
        )
    if target is None and max_drop is None:
        raise bad_option("A search needs a goal", "Give --target or --max-drop")
    if target is not None and max_drop is not None:
        raise bad_option("--target and --max-drop exclude each other", "Give one of them")
    if max_drop is not None and asked.inputs.metric is not None:
        raise bad_option(
            f"--max-drop means nothing with --metric {asked.inputs.metric}: the reference has no finite SQNR",
            "Give --target in dB",
        )
    if budget is not None and not budget > 0:
        raise bad_option(f"--budget is {budget:g}", "Give a number above 0")
    if not 0 <= holdout < 1:
        raise bad_option(f"--holdout is {holdout:g}", "Give a share from 0 up to, not including, 1")
