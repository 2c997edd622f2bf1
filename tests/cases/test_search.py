"""Search and bisect on the case corpus beside the repository, where it is present."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from analyzers.pool import Inline
from analyzers.project import open_models
from analyzers.records import BisectOptions, Inputs, SearchOptions
from analyzers.run_bisect import bisect_pair
from analyzers.run_search import search_pair
from analyzers.steps import finish
from tests.cases.corpus import ABSENT, CASES, IS_PRESENT, read_case

pytestmark = pytest.mark.skipif(not IS_PRESENT, reason=ABSENT)


def case(slug: str, workspace: Path) -> tuple[Inputs, dict[str, Any]]:
    found = read_case(CASES / slug)
    return dataclasses.replace(found.inputs(workspace), calibration=None, metric="sqnr"), found.answer


@pytest.mark.parametrize("rule", ["hybrid", "per-edge"])
@pytest.mark.parametrize(
    "slug",
    [
        "two_clipped_factors",  # lifting one alone does nothing
        "residual_add_massive_activation",
        "calib_missed_rare_pattern",
        "hardswish_became_hardsigmoid",
        "zero_range_scale0",
    ],
)
def test_the_set_is_as_small_as_exhaustive_search_found(slug: str, rule: str, tmp_path: Path) -> None:
    inputs, answer = case(slug, tmp_path)
    inputs = dataclasses.replace(inputs, rule=rule)  # type: ignore[arg-type]
    pair = open_models(inputs.reference, inputs.candidate or Path())
    options = SearchOptions(target=float(answer["fallback"]["threshold"]))
    result = finish(search_pair(pair, inputs, options, executor=Inline()))
    known = answer["fallback"]["semantics"]["F1" if rule == "hybrid" else "F2"]["min_size"]
    assert result.reached
    assert result.minimal
    assert known is None or len(result.fallback) <= known


def test_a_layer_that_overflows_is_named_where_half_precision_cannot_help(tmp_path: Path) -> None:
    inputs, answer = case("fp16_fallback_overflow_square", tmp_path)
    pair = open_models(inputs.reference, inputs.candidate or Path())
    options = SearchOptions(target=float(answer["fallback"]["threshold"]))
    half = finish(search_pair(pair, inputs, options, executor=Inline()))
    assert not half.reached
    assert "/square/Mul" in half.reason
    single = dataclasses.replace(inputs, precision="fp32", rule="hybrid")
    result = finish(search_pair(pair, single, options, executor=Inline()))
    assert result.reached
    assert len(result.fallback) <= answer["fallback"]["semantics"]["F1"]["min_size"]


@pytest.mark.parametrize(
    "slug",
    [
        "two_clipped_factors",
        "shared_int32_bias_three_consumers",
        "relu6_lost_one_layer",
        "nan_div_by_quantized_zero",
        "calib_missed_rare_pattern",
        "bias_int32_overflow_conv",
        "cumulative_drift_14_layers",
        "calib_with_dim_noise",
        "errors_cancel_gain",
    ],
)
def test_bisect_names_the_guilty_and_only_them(slug: str, tmp_path: Path) -> None:
    inputs, answer = case(slug, tmp_path)
    pair = open_models(inputs.reference, inputs.candidate or Path())
    result = finish(bisect_pair(pair, inputs, BisectOptions(metric="sqnr"), executor=Inline()))
    layer_of = {node: layer.name for layer in pair.pairing.layers for node in layer.nodes}
    sets = [answer.get("guilty") or [], *(answer.get("accept_guilty") or [])]
    accepted = [{layer_of.get(node, node) for node in nodes} for nodes in sets]
    culprits = {c.layer for c in result.culprits}
    assert culprits in (accepted if answer["expect"] == "diagnosis" else [set()])
