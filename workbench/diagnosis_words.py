"""A diagnosis in words, for the terminal and the page alike: verdicts, causes, numbers, gains."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

from analyzers.records import Diagnosis, Fact, Finding, Gain, Verdict
from workbench.commands.words import decibels, number

CAUSES = {
    "activation_clipping": "Values beyond the calibrated range are cut off",
    "activation_function_lost": "An activation function is missing in the candidate",
    "activation_in_pieces": "An activation is quantized between its operators",
    "activation_outlier_channel": "A few channels leave the others of a tensor next to no levels",
    "bias_int32_overflow": "A bias does not fit into 32 bits",
    "bias_shift": "The values of a layer are shifted as a whole",
    "bn_fold_wrong": "A batch normalization was folded wrongly",
    "calibration_not_representative": "The calibration set does not look like the real data",
    "channel_dropped": "Channels are lost",
    "channel_garbage": "Channels hold garbage",
    "concat_shared_scale": "Branches of different range share one scale",
    "cumulative_error": "Small errors add up over many layers",
    "different_checkpoint": "The candidate was made from other weights",
    "dirty_padding_channel": "A channel that only fills up the alignment holds values",
    "error_amplification": "A layer amplifies the errors that it is given",
    "fp16_overflow_risk": "Values do not fit into half precision",
    "healthy": "A difference that does no harm",
    "int8_not_quantized": "The candidate is not quantized",
    "invalid_scale": "A scale is NaN, infinite, negative or denormal",
    "malformed_inputs": "The two sides are fed different samples",
    "mixed_precision_hole": "A tensor has fewer bits than those around it",
    "nan_inf_from_quantized_zero": "A value that is rounded to zero makes others infinite or undefined",
    "negative_lobe": "The small negative part of an activation is rounded away",
    "normalization_sensitive": "A normalization or softmax suffers from coarse inputs",
    "operator_attribute_changed": "An operator has other attributes in the candidate",
    "operator_changed": "An operator is another one in the candidate",
    "pad_value_not_zero_point": "Padding is filled with something else than zero",
    "per_channel_axis_wrong": "Scales per channel lie along the wrong axis",
    "per_tensor_weight_outlier_channel": "One weight scale serves channels of very different size",
    "postprocessing_quantized": "The decoding of boxes and scores is quantized",
    "preprocessing_channel_order": "The two sides are fed channels in another order",
    "preprocessing_layout": "The two sides are fed another memory layout",
    "preprocessing_normalization": "The two sides are fed differently normalized values",
    "range_too_wide": "The range is far wider than the values",
    "reference_wrong": "The reference itself scores nothing",
    "resolution_underflow": "Values are smaller than half a step and become zero",
    "scale_gain_error": "A scale is off by a factor",
    "score_shift": "Scores are shifted, their order is kept",
    "shared_bias_scale_mismatch": "Layers of different scale share one quantized bias",
    "simulator_artifact": "The error comes from how the candidate is executed here",
    "weight_corrupted": "Weights are not those of the reference",
    "weight_layout_wrong": "Weights lie in another order than the operator reads them",
    "weight_outlier_low_bits": "A few large weights leave the others too few levels",
    "zero_point_mismatch": "A zero point is not the one that the values were written with",
    "zero_range_scale": "A scale was made from a range of nothing",
}

_Item: TypeAlias = float | int | str | bool | None
_Shown: TypeAlias = Callable[[_Item], str]

_METRIC_NAMES = {"sqnr": "SQNR", "slice-sqnr": "worst part of the output"}
_SQNR_METRICS = ("sqnr", "slice-sqnr")
_SHOWN_ITEMS = 6
_WHOLE_LIMIT = 1e12
# Differences beyond it mean nothing: the two sides are the same.
_EXACT_DB = 100.0


def cause_words(cause: str) -> str:
    """Return what a label means; a label without words speaks for itself."""
    return CAUSES.get(cause, cause.replace("_", " ").capitalize())


def blamed_layers(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return the layers that findings blame, first named first; what is only worth knowing blames nobody."""
    return tuple(dict.fromkeys(n for f in findings if f.severity != "info" for n in f.layers))


def verdict_words(result: Diagnosis) -> tuple[str, str]:
    """Return the verdict as a headline, and what follows from it."""
    count = len(blamed_layers(result.findings))
    blamed = "One layer is" if count == 1 else f"{count} layers are"
    words: dict[Verdict, tuple[str, str]] = {
        "healthy": (
            "Nothing is wrong",
            "The candidate follows the reference; no layer is to blame.",
        ),
        "faulty_layers": (
            f"{blamed} at fault",
            f"Undoing {'it' if count == 1 else 'them'} in a simulation moves the output, which is what puts "
            "the blame there.",
        ),
        "no_single_layer": (
            "No single layer is to blame",
            "The error is spread over many layers: look at the causes below before you hunt for one.",
        ),
        "inputs_differ": (
            "The two sides were fed differently",
            "Make both preprocessings the same first; until then nothing else can be said.",
        ),
        "reference_wrong": (
            "The reference is already wrong",
            "Its own result is no good on these samples: check preprocessing, decoder and labels.",
        ),
        "candidate_not_comparable": (
            "The candidate cannot be compared with this reference",
            "They are not the same network with the same weights, or too little of them could be paired.",
        ),
    }
    return words[result.verdict]


def is_decibels(gain: Gain) -> bool:
    """Tell whether a gain is in decibels."""
    return gain.metric in _SQNR_METRICS


def gain_value(value: float, metric: str) -> str:
    """Return one end of a gain."""
    if metric not in _SQNR_METRICS:
        return number(value)
    if math.isnan(value):
        return "n/a"
    return "exact" if value >= _EXACT_DB else f"{decibels(value)} dB"


def gain_words(gain: Gain) -> str:
    """Return ``before -> after`` with what it is a gain of."""
    ends = f"{gain_value(gain.before, gain.metric)} -> {gain_value(gain.after, gain.metric)}"
    return f"{ends}, {metric_words(gain.metric)}"


def metric_words(metric: str) -> str:
    """Return what a metric is called beside a number that bears its unit."""
    return _METRIC_NAMES.get(metric, metric.upper() if metric == "ap" else metric)


def fact_rows(finding: Finding) -> list[tuple[str, str]]:
    """Return the numbers that show a finding, name and value, the unit at the value.

    The name of a layer that the finding names anyway is left out.
    """
    return [_fact_row(k, v) for k, v in finding.evidence.items() if v not in finding.layers]


def _fact_row(name: str, value: Fact) -> tuple[str, str]:
    for suffix, shown in (("_db", _decibels), ("_fraction", _percent)):
        if name.endswith(suffix):
            return _title(name.removesuffix(suffix)), _items(value, shown)
    return _title(name), _items(value, _plain)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _items(value: Fact, shown: _Shown) -> str:
    if not isinstance(value, tuple):
        return shown(value)
    rest = f" and {len(value) - _SHOWN_ITEMS} more" if len(value) > _SHOWN_ITEMS else ""
    return (", ".join(shown(v) for v in value[:_SHOWN_ITEMS]) or "none") + rest


def _plain(value: _Item) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "n/a"
    if isinstance(value, float) and not (value.is_integer() and abs(value) < _WHOLE_LIMIT):
        return f"{value:.4g}"
    # Counts and indices come back from JSON as floats.
    return str(int(value)) if isinstance(value, float) else str(value)


def _decibels(value: _Item) -> str:
    return gain_value(value, "sqnr") if isinstance(value, float) else _plain(value)


def _percent(value: _Item) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return _plain(value)
    return f"{100 * value:.3g} %"
