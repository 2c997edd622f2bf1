"""BatchNormalization that was folded into weights and biases wrongly, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx_ir as ir

from analyzers.array_relations import UNEXPLAINED, Values, unexplained
from analyzers.constant_errors import Misfit, misfits
from analyzers.constant_values import known_constant
from analyzers.diagnoses.weight_gain import gains_of
from analyzers.evidence import ConstantPair, Evidence
from analyzers.folding import normalization
from analyzers.graph import node_name
from analyzers.suspicions import Detector, Suspicion
from analyzers.wrong_constants import quantized_anew, sources_of, wrong

# Factors that differ from each other by less than this, relatively, are one factor.
_SAME_FACTOR = 0.03


def find(evidence: Evidence) -> Iterator[Suspicion]:
    """Suspect weights that are the unfolded ones times other factors, and biases that lack a part."""
    norms = _norms(evidence)
    for node in dict.fromkeys(m.constant.node for m in wrong(evidence)):
        mine = {m.constant.role: m for m in misfits(evidence) if m.constant.node == node}
        folded = [m for m in mine.values() if m.constant.unfolded is not None or node in norms]
        if not folded:
            continue
        norm = norms.get(node)
        weight, bias = mine.get("weight"), mine.get("bias")
        in_weight = _weight_mistake(weight, norm) if weight is not None and weight.is_beyond else ""
        in_bias = _bias_mistake(bias, norm) if bias is not None and bias.is_beyond else ""
        is_weight_explained = weight is None or not weight.is_beyond or bool(in_weight)
        if is_weight_explained and (in_weight or in_bias):
            yield _suspicion(evidence, mine, in_weight, in_bias)


def _norms(evidence: Evidence) -> dict[str, ir.Node]:
    """Return operator with weights -> the BatchNormalization behind it that was folded."""
    paired = evidence.pair.paired
    found: dict[str, ir.Node] = {}
    for node in paired.ours.nodes:
        source = paired.ours.core(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        maker = None if source is None else source.producer()
        if node.op_type == "BatchNormalization" and node not in paired.matches.nodes and maker is not None:
            found[node_name(maker)] = node
    return found


def _weight_mistake(misfit: Misfit, norm: ir.Node | None) -> str:
    """Say which factors the weight was multiplied with instead; "" if factors do not explain it."""
    constant = misfit.constant
    if constant.unfolded is None or constant.channel_axis is None:
        return ""
    right = gains_of(misfit, constant.channel_axis)
    if right is None:
        return ""
    allowed = max(UNEXPLAINED, 4 * misfit.rounding)
    shape = [-1 if d == constant.channel_axis else 1 for d in range(constant.unfolded.ndim)]
    for words, factors in _factors(norm, right.size).items():
        if unexplained(constant.unfolded * factors.reshape(shape), constant.candidate) <= allowed:
            return words
    # One common factor is a wrong scale, not a wrong fold.
    is_common = bool(np.all(np.abs(right / np.median(right) - 1) <= _SAME_FACTOR))
    return "" if is_common else f"the factors are off by {right.min():.3g} to {right.max():.3g}"


def _factors(norm: ir.Node | None, channels: int) -> Mapping[str, Values]:
    """Return the factors of usual mistakes, in words."""
    none = {"the factors are missing: it is the weight before folding": np.ones(channels)}
    known = _parameters(norm)
    if known is None or known[0].size != channels:
        return none
    scale, _, _, variance, epsilon = known
    deviation = np.sqrt(variance + epsilon)
    return none | {
        "the scale is missing from the factors": 1 / deviation,
        "the deviation is missing from the factors": scale,
        "they were divided by the variance, not by its root": scale / deviation**2,
        "they were multiplied with the variance's root, not divided by it": scale * deviation,
        "the factors were applied twice": (scale / deviation) ** 2,
    }


def _bias_mistake(misfit: Misfit, norm: ir.Node | None) -> str:
    """Say which part of the fold the bias lacks; "" if that does not explain it."""
    constant = misfit.constant
    candidate = constant.candidate.reshape(-1)
    if not constant.value:
        return "there is no bias at all"
    own = constant.unfolded.reshape(-1) if constant.unfolded is not None else None
    if own is not None and np.any(own) and unexplained(own, candidate) <= UNEXPLAINED:
        return "it is the bias before folding"
    if not np.any(candidate):
        return "the bias is zero"
    known, affine = _parameters(norm), None if norm is None else normalization(norm)
    if known is None or affine is None or own is None or affine[0].size != candidate.size:
        return ""
    factor, offset = affine
    _, beta, mean, _, _ = known
    expected = {
        "the mean was not subtracted": own * factor + beta,
        "the offset was not added": (own - mean) * factor,
        "the mean was added, not subtracted": own * factor + beta + mean * factor,
        "the own bias was not multiplied with the factors": own + offset,
        "the own bias is missing": offset,
        "the mean was not multiplied with the factors": own * factor + beta - mean,
    }
    left = {words: unexplained(values, candidate) for words, values in expected.items()}
    best = min(left, key=lambda words: left[words])
    return best if left[best] <= UNEXPLAINED else ""


def _parameters(norm: ir.Node | None) -> tuple[Values, Values, Values, Values, float] | None:
    known = [] if norm is None else [known_constant(v) for v in norm.inputs[1:5]]
    arrays = [k.array.reshape(-1) for k in known if k is not None]
    if norm is None or len(arrays) != 4:
        return None
    epsilon = norm.attributes.get("epsilon")
    return arrays[0], arrays[1], arrays[2], arrays[3], 1e-5 if epsilon is None else epsilon.as_float()


def _suspicion(evidence: Evidence, mine: Mapping[str, Misfit], in_weight: str, in_bias: str) -> Suspicion:
    misfit = mine["weight"] if in_weight else mine["bias"]
    constant: ConstantPair = misfit.constant
    parts = [f"{role}: {words}" for role, words in (("weight", in_weight), ("bias", in_bias)) if words]
    return Suspicion(
        cause="bn_fold_wrong",
        layers=(constant.layer,),
        sources=sources_of(evidence, constant.node),
        message=(
            f"BatchNormalization is folded wrongly into '{constant.node}': {'; '.join(parts)} "
            f"({misfit.sqnr_db:.1f} dB against an exact fold)"
        ),
        evidence={
            "node": constant.node,
            "weight_mistake": in_weight,
            "bias_mistake": in_bias,
            "weight_sqnr_db": mine["weight"].sqnr_db if "weight" in mine else None,
            "bias_sqnr_db": mine["bias"].sqnr_db if "bias" in mine else None,
        },
        fix="Fold it again: weight * scale / sqrt(var + epsilon), bias likewise, then quantize",
        specificity=76,
        is_fault=True,
        repairs=quantized_anew(evidence, constant),
    )


ENTRY = Detector(
    name="bn_fold_wrong",
    looks_at="weights and biases against exact folds of BatchNormalization, and against usual mistakes",
    causes=("bn_fold_wrong",),
    find=find,
)
