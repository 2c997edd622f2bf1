"""The records that the engine passes around: frozen, small, without behaviour.

Field names are the keys of the JSON that the command line writes. Names ending in ``_db`` are decibels,
``_bytes`` bytes, ``_fraction`` shares of one; ``nan`` stands for "undefined" and becomes ``null``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Precision = Literal["fp16", "fp32"]
Rule = Literal["per-edge", "hybrid", "nodes-to-exclude"]
Mode = Literal["as-executed", "literal"]

RULES: tuple[Rule, ...] = ("per-edge", "hybrid", "nodes-to-exclude")
INPUT_LAYER = "<input>"


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know that did not stop the work: one entry of ``warnings[]``."""

    code: str
    message: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A graph input or output: name, numpy dtype name, dims (None where dynamic)."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Quantization:
    """How one tensor is stored as integers: ``real = (integer - zero_point) * scale``.

    Attributes:
        scale: float32, shape ``()`` per tensor, ``(C,)`` along ``axis``, or blocked.
        zero_point: integers of the same shape as ``scale``.
        dtype: ONNX name of the integer type, lower case ("uint8", "int8", "int16", "int4", "int32").
        axis: The channel axis; None per tensor.
        block_size: Values that share one scale along ``axis``; 0 where not blocked.
    """

    scale: NDArray[np.float32]
    zero_point: NDArray[np.int64]
    dtype: str
    axis: int | None = None
    block_size: int = 0


@dataclass(frozen=True, slots=True)
class Operator:
    """A reference operator with at least one float output.

    Attributes:
        name: The node's unique name (``<OpType>:<first output>`` where the file has none).
        op_type: ONNX operator type.
        layer: Name of the layer that it belongs to.
        outputs: Its float output tensors.
    """

    name: str
    op_type: str
    layer: str
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """The unit of fallback (DESIGN section 1), in topological order wherever layers are listed.

    Attributes:
        name: Name of its first reference node in topological order.
        op_type: Type of that node.
        nodes: All its reference nodes, topological.
        inputs: Reference tensors it reads from other layers or graph inputs (no constants).
        outputs: Reference tensors that others read or that leave the graph.
        is_pass_through: Reshape, Transpose, MaxPool ...: takes its producer's precision, never in a set.
        is_quantized: The candidate computes or stores it in integers; others cannot gain from fallback.
        weight_bytes: float32 bytes of its constants.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    is_pass_through: bool
    is_quantized: bool
    weight_bytes: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class TensorPair:
    """The same value on both sides.

    Attributes:
        reference: Reference tensor name.
        candidate: Candidate float tensor with the same meaning: dequantized where it is stored quantized.
        tap: Candidate tensor to fetch at run time: the integer tensor where there is one, else ``candidate``.
        quantization: How to dequantize ``tap``; None where it is float already.
        node: Reference operator that produces it; ``<input>`` for graph inputs.
        layer: Layer of that operator; ``<input>`` for graph inputs.
        evidence: What made the pair: "name", "affix", "weights", "structure", "map".
        permutation: Transpose the candidate by this to get the reference layout; None for identity.
    """

    reference: str
    candidate: str
    tap: str
    quantization: Quantization | None
    node: str
    layer: str
    evidence: str
    permutation: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Unpaired:
    """A reference tensor without a candidate tensor, with the reason in words."""

    tensor: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Pairing:
    """What belongs to what.

    Attributes:
        pairs: Tensor pairs in topological order of the reference, graph inputs first.
        unpaired: Reference tensors without a twin (inner tensors of fused layers excluded).
        coverage: Paired share of the reference layers, 0..1.
        layers: All layers, topological.
        operators: All float operators, topological.
        outputs: Reference output name -> candidate output name.
        warnings: Notices about the pairing.
    """

    pairs: tuple[TensorPair, ...]
    unpaired: tuple[Unpaired, ...]
    coverage: float
    layers: tuple[Layer, ...]
    operators: tuple[Operator, ...]
    outputs: dict[str, str]
    warnings: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Which layers leave INT8, in which precision, by which storage rule."""

    fallback: frozenset[str]
    precision: Precision = "fp16"
    rule: Rule = "per-edge"


@dataclass(frozen=True, slots=True)
class Letterbox:
    """Where an image went inside the network's input.

    Attributes:
        height: Image height in pixels as stored on disk (after EXIF orientation).
        width: Image width in pixels.
        scale_x: Network pixels per image pixel, horizontally.
        scale_y: The same vertically.
        pad_x: Network pixels left of the image.
        pad_y: Network pixels above the image.
        input_height: Height of the network's input, which grids of cells are laid over.
        input_width: Its width.
    """

    height: int
    width: int
    scale_x: float
    scale_y: float
    pad_x: float
    pad_y: float
    input_height: int = 0
    input_width: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One item of a set, ready to be fed.

    Attributes:
        name: File name or npz key; unique in the set.
        feeds: Input name -> array exactly as the network reads it.
        image: Where the image went, for decoders; None for tensors from npz.
    """

    name: str
    feeds: dict[str, Array]
    image: Letterbox | None = None


@dataclass(frozen=True, slots=True)
class Score:
    """A task metric over a set; higher is always better.

    Attributes:
        value: The number that targets refer to: AP in 0..1, accuracy in 0..1, or dB for SQNR metrics.
        metric: "ap", "top1", "sqnr", "slice-sqnr" or the user's name.
        unit: "" for fractions, "dB" for SQNR metrics.
        details: Further numbers by name (AP50, AP75, APs, per class, per output).
    """

    value: float
    metric: str
    unit: str = ""
    details: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stats:
    """Plain statistics of one side of a pair, pooled over samples, finite values only."""

    min: float
    max: float
    mean: float
    std: float


@dataclass(frozen=True, slots=True)
class Similarity:
    """How close the candidate is to the reference; ``nan`` where undefined.

    Attributes:
        cosine: Cosine similarity, 1 is best.
        sqnr_db: Signal to quantization noise ratio, higher is better.
    """

    cosine: float
    sqnr_db: float


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a tensor that has a meaning of its own.

    Attributes:
        axis: Axis that is cut, counted from the front.
        start: First index.
        stop: One after the last index.
        name: The tensor that fills this part or is made from it.
    """

    axis: int
    start: int
    stop: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class SliceError:
    """The part of a tensor (a channel, or a branch of a Concat) with the lowest SQNR."""

    axis: int
    start: int
    stop: int
    cosine: float
    sqnr_db: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class WorstSample:
    """The sample on which a layer is worst."""

    sample: str
    cosine: float
    sqnr_db: float


@dataclass(frozen=True, slots=True)
class LayerRecord:
    """One row of a comparison: one reference operator with a float output.

    Attributes:
        layer: Name of the layer that ``node`` belongs to.
        node: Reference operator.
        op_type: Its type.
        reference_tensor: Its (first) float output.
        candidate_tensor: Paired candidate tensor; None for inner tensors of fused layers and unpaired ones.
        evidence: What made the pair; "" without one.
        cosine: Accumulated, pooled over samples.
        sqnr_db: Accumulated, pooled over samples.
        norm_ratio: Candidate norm over reference norm; 1 is best.
        rmse_scale: RMS error over the candidate's scale; 0.289 is ideal rounding; nan without a scale.
        max_error: Largest absolute difference.
        reference: Statistics of the reference tensor.
        candidate: Statistics of the candidate tensor.
        isolated: The layer fed with the reference's values; None where not measured.
        worst_sample: None where there is no pair.
        p95_sqnr_db: SQNR that 95 % of the samples reach or exceed.
        worst_channel: Along axis 1 (the last for rank 2); None where not measured.
        worst_slice: The worst part that a Concat joined, else the worst channel.
        clipped_fraction: Share of reference values that lie over half a step outside the candidate's range.
        flags: "fallback_candidate" (cosine under the threshold), "low_sqnr" (SQNR under the same threshold in
            dB, also where cosine is blind), "slice_lost" (only a joined part is under it), "nan" and "inf"
            (on one side only), "unpaired", "inner", "constant", "clipping".
    """

    layer: str
    node: str
    op_type: str
    reference_tensor: str
    candidate_tensor: str | None
    evidence: str
    cosine: float
    sqnr_db: float
    norm_ratio: float
    rmse_scale: float
    max_error: float
    reference: Stats | None
    candidate: Stats | None
    isolated: Similarity | None
    worst_sample: WorstSample | None
    p95_sqnr_db: float
    worst_channel: SliceError | None
    worst_slice: SliceError | None
    clipped_fraction: float
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer of ``compare``."""

    coverage: float
    unpaired: tuple[Unpaired, ...]
    layers: tuple[LayerRecord, ...]
    outputs: tuple[LayerRecord, ...]
    samples: int
    mode: Mode
    threshold: float
    first_divergence: str | None
    reference_score: Score | None
    candidate_score: Score | None
    warnings: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How two models are compared.

    Attributes:
        threshold: Layers with a cosine below it are fallback candidates.
        isolated: Also run each layer fed with the reference's values.
    """

    threshold: float = 0.99
    isolated: bool = True


@dataclass(frozen=True, slots=True)
class BisectStep:
    """One hybrid that was run.

    Attributes:
        cut: Number of layers of the chain before the cut.
        layer: The layer just before the cut ("" at cut 0).
        direction: "candidate-prefix" or "reference-prefix", or "repair".
        repaired: Layers kept as the reference computes them throughout.
        sqnr_db: Output score of the hybrid.
        is_bad: Below the threshold.
    """

    cut: int
    layer: str
    direction: str
    repaired: tuple[str, ...]
    sqnr_db: float
    is_bad: bool


@dataclass(frozen=True, slots=True)
class Culprit:
    """A layer found by bisection, with its proof.

    Attributes:
        layer: The culprit.
        good: The cut just before it and the output score there.
        bad: The cut just after it and the output score there.
        jump_fraction: Its share of the output noise of the candidate prefix.
        reverse_jump_fraction: The same in the other direction.
        repaired_sqnr_db: Output score when it (and the culprits before it) are repaired.
        is_confirmed: Own jump of at least half of the loss in both directions, or repair recovers.
    """

    layer: str
    good: BisectStep
    bad: BisectStep
    jump_fraction: float
    reverse_jump_fraction: float
    repaired_sqnr_db: float
    is_confirmed: bool


@dataclass(frozen=True, slots=True)
class BisectResult:
    """The answer of ``bisect``.

    Attributes:
        first_divergence: Earliest layer below the threshold whose inputs are all above it; None if none.
        culprits: In the order in which they were found.
        monotone: False where a longer candidate prefix scored better than a shorter one by over 1 dB.
        steps: Every hybrid that was run.
        chain: The layers in the order that cuts follow.
        candidate_sqnr_db: Output score of the candidate as it is.
        threshold_db: Below it a hybrid is bad.
        verdict: "healthy", "culprits", "accumulation", "interacting" (each makes most of a loss, none is
            confirmed alone, or only their common repair recovers) or "outside_layers".
        samples: Samples per hybrid.
        metric: "sqnr" or "slice-sqnr".
        warnings: Notices.
    """

    first_divergence: str | None
    culprits: tuple[Culprit, ...]
    monotone: bool
    steps: tuple[BisectStep, ...]
    chain: tuple[str, ...]
    candidate_sqnr_db: float
    threshold_db: float
    verdict: str
    samples: int
    metric: str
    warnings: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """The scoring of one plan.

    Attributes:
        fallback: Its layers in topological order.
        score: The task metric on these samples.
        samples: How many samples were used.
        seconds: Wall time; 0 for a trial that was read back from the store.
        stage: Why it was run: "reference", "candidate", "all-fallback", "gallop", "search", "prune" ...
        overflow: Layers whose half-precision values exceed 65504.
        layers: How many layers; this and what follows is what the plan costs, see ``PlanCost``.
        macs_fraction: See ``PlanCost``, as all that follows.
    """

    fallback: tuple[str, ...]
    score: float
    samples: int
    seconds: float
    stage: str = ""
    overflow: tuple[str, ...] = ()
    layers: int = 0
    macs_fraction: float = nan
    weight_bytes: int = 0
    converted_bytes: int = 0
    islands: int = 0
    cost: float = nan


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What a fallback set costs on the target, beyond the network in INT8 throughout.

    Attributes:
        layers: How many layers leave INT8.
        macs_fraction: Their share of the multiply-accumulates; nan where not counted.
        weight_bytes: Bytes of their weights in the fallback precision.
        converted_bytes: Bytes that are read and written to convert tensors at precision borders.
        islands: Connected parts of the graph that they form; each is a synchronisation.
        cost: Extra latency relative to all of the network in INT8; 0 for the empty set. Unitless.
    """

    layers: int = 0
    macs_fraction: float = nan
    weight_bytes: int = 0
    converted_bytes: int = 0
    islands: int = 0
    cost: float = nan


@dataclass(frozen=True, slots=True)
class FrontPoint:
    """A point of the score against cost curve; the cost is that of ``PlanCost``.

    Attributes:
        samples: How many were scored; on fewer than the full set the score is what the trial suggested when
            it ended early.
    """

    fallback: tuple[str, ...]
    score: float
    layers: int
    islands: int
    macs_fraction: float = nan
    weight_bytes: int = 0
    converted_bytes: int = 0
    cost: float = nan
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Ranking:
    """How promising each layer is as a member of a fallback set, measured on few samples.

    Attributes:
        layers: Layers that can join a set, most promising first; ties in topological order.
        gains: For each of them its share of the candidate's output noise, as far as errors add up.
        evaluations: What measuring it cost, in full-set equivalents.
    """

    layers: tuple[str, ...]
    gains: tuple[float, ...]
    evaluations: float


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What the user wants of a search; give exactly one of ``target`` and ``max_drop``.

    Attributes:
        target: Lowest acceptable score.
        max_drop: The same as a distance below the reference's score.
        budget: Full-set equivalents that may be spent, ranking included; None for 100, or 4096 images if that
            is more.
        keep_int8: Glob patterns of layers or nodes that must stay as the candidate computes them.
        force_fallback: Glob patterns of layers or nodes that must leave INT8.
        max_layers: Largest acceptable set.
        holdout: Share of the samples that only scores the answer, 0 for none.
        rank_samples: Samples that decide the order in which layers are tried.
    """

    target: float | None = None
    max_drop: float | None = None
    budget: float | None = None
    keep_int8: tuple[str, ...] = ()
    force_fallback: tuple[str, ...] = ()
    max_layers: int | None = None
    holdout: float = 0.0
    rank_samples: int = 2


@dataclass(frozen=True, slots=True)
class BisectOptions:
    """How layers are bisected.

    Attributes:
        threshold_db: A hybrid below it is bad; 16.9 dB is a cosine of 0.99.
        metric: "sqnr" or "slice-sqnr".
        samples: Samples per hybrid, half of them those on which the candidate is worst.
        max_runs: Hybrids that may be run.
        max_culprits: Layers that are repaired one after the other before errors count as accumulated.
    """

    threshold_db: float = 16.9
    metric: str = "slice-sqnr"
    samples: int = 4
    max_runs: int = 200
    max_culprits: int = 8


@dataclass(frozen=True, slots=True)
class Fidelity:
    """How far the simulation is from what was uploaded.

    Attributes:
        given_score: Score of the candidate file as it is.
        simulated_score: Score of the empty plan as simulated.
        gap: Absolute difference, in score units.
        exported_score: Score of the exported file under plain default session options; None if not run.
    """

    given_score: float
    simulated_score: float
    gap: float
    exported_score: float | None = None


@dataclass(frozen=True, slots=True)
class MemberProof:
    """How sure it is that a set needs one of its members.

    Attributes:
        layer: The member.
        score: Score of the set without it.
        missing_fraction: Share of paired resamples of the images on which that misses the target; nan where
            there are too few images to say.
        is_proven: At least 95 %.
    """

    layer: str
    score: float
    missing_fraction: float
    is_proven: bool


@dataclass(frozen=True, slots=True)
class ProvenSet:
    """A set all of whose members are proven, which is the first to try.

    Attributes:
        fallback: Its layers, topological.
        score: Its score on the full set.
        confidence: Share of paired resamples on which it reaches the target.
        members: The proof of each.
    """

    fallback: tuple[str, ...]
    score: float
    confidence: float
    members: tuple[MemberProof, ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """What other images might have said; from paired resamples of those that were scored.

    Attributes:
        confidence: Share of resamples on which ``fallback`` reaches the target.
        drop: How far ``fallback`` falls below the reference on the full set, in score units.
        drop_low: Lower end of the 95 % interval of that.
        drop_high: Upper end.
        members: The proof of each member of ``fallback``.
        proven_set: The cheap set of the proven members alone, where that is another one; else None.
        sets_tried: How many sets were scored on these images.
        resamples: How many resamples were drawn.
        images: How many images.
    """

    confidence: float
    drop: float
    drop_low: float
    drop_high: float
    members: tuple[MemberProof, ...]
    proven_set: ProvenSet | None
    sets_tried: int
    resamples: int
    images: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer of ``search``; ``reached`` is decided by the score on the full set.

    Attributes:
        reached: The score of ``fallback`` is at least ``target``.
        target: Lowest acceptable score.
        score: Score of ``fallback`` on the full set.
        reference_score: Score of the reference.
        candidate_score: Score of the candidate.
        all_fallback_score: Score with every layer in the fallback precision.
        fallback: Layer names, topological; empty if the candidate already passes.
        fallback_nodes: All their reference nodes.
        minimal: Taking any one member back to INT8 was tried and missed the target.
        proof: For each member, the trial without it.
        rule: Storage rule of every plan here.
        precision: Fallback precision.
        mode: Session mode that scored the trials.
        metric: Name of the score.
        unit: Its unit.
        front: Non-dominated trials, cheapest first.
        trials: Every plan that was scored, in order.
        evaluations: Full-set equivalents used, ranking included.
        fidelity: Simulated against given.
        ranking: Layers, most promising first.
        reason: In words, why it ended this way.
        samples: Samples of the full set.
        warnings: Notices.
        holdout_score: Score on images that the search did not use; None without ``--holdout``.
        proven: Members whose removal misses in at least 95 % of paired resamples.
        undecided: The other members: ``minimal`` speaks of the point score alone.
        statistics: The numbers behind these; None where nothing was resampled.
        islands: The connected parts of the graph that ``fallback`` forms, each with its layers.
        plan_cost: What ``fallback`` costs; None before anything was priced.
        knee: The point of the front after which score gets dear; None for a front without one.
        cheapest: The set with the lowest cost that reaches the target, not pruned; None where none does.
        closed_gaps: Layers that join islands of ``fallback``: cheaper with them, and a trial passed.
        target_profile: Name of the target that costs are of.
    """

    reached: bool
    target: float
    score: float
    reference_score: float
    candidate_score: float
    all_fallback_score: float
    fallback: tuple[str, ...]
    fallback_nodes: tuple[str, ...]
    minimal: bool
    proof: tuple[Trial, ...]
    rule: Rule
    precision: Precision
    mode: Mode
    metric: str
    unit: str
    front: tuple[FrontPoint, ...]
    trials: tuple[Trial, ...]
    evaluations: float
    fidelity: Fidelity
    ranking: tuple[str, ...]
    reason: str
    samples: int
    warnings: tuple[Notice, ...]
    holdout_score: float | None = None
    proven: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()
    statistics: Statistics | None = None
    islands: tuple[tuple[str, ...], ...] = ()
    plan_cost: PlanCost | None = None
    knee: FrontPoint | None = None
    cheapest: FrontPoint | None = None
    closed_gaps: tuple[str, ...] = ()
    target_profile: str = ""


CalibrationMethod = Literal["minmax", "entropy", "percentile"]
QuantFormat = Literal["qdq", "qoperator"]


@dataclass(frozen=True, slots=True)
class QuantizeOptions:
    """How a candidate is made from a calibration set.

    Attributes:
        method: How ranges are chosen.
        per_channel: Weights get a scale per output channel.
        symmetric: Activations are int8 around zero; else uint8 with a zero point.
        format: QDQ or QOperator.
        percentile: Share of the values, in percent, that the range of ``percentile`` holds.
        bins: Histogram bins of ``entropy`` and ``percentile``; 0 for onnxruntime's 128 and 2048.
        nodes_to_exclude: Nodes of the reference that stay in float.
    """

    method: CalibrationMethod = "minmax"
    per_channel: bool = True
    symmetric: bool = False
    format: QuantFormat = "qdq"
    percentile: float = 99.999
    bins: int = 0
    nodes_to_exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuantizeResult:
    """The answer of ``quantize``.

    Attributes:
        candidate: The file that was written; weights over 1 GiB lie beside it.
        options: How it was made.
        samples: Names of the samples that calibrated it.
        float_operators: Operators whose result the candidate keeps in float.
        warnings: Notices.
    """

    candidate: Path
    options: QuantizeOptions
    samples: tuple[str, ...]
    float_operators: tuple[str, ...]
    warnings: tuple[Notice, ...]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What every command is given; paths as the user wrote them, meanings the same everywhere.

    Attributes:
        reference: FP32 ONNX file.
        candidate: Quantized ONNX file; None to quantize ``reference`` from ``calibration``.
        data: Folder of images, ``.npz`` or folder of ``.npz``.
        candidate_data: What the candidate was fed, where that differs.
        calibration: Calibration set, same forms as ``data``.
        name_map: JSON file, reference tensor -> candidate tensor, for pairs that cannot be found otherwise.
        task: Task file.
        annotations: COCO json.
        metric: "sqnr" or "slice-sqnr" where there is no task.
        samples: "N", "START::STEP" or a file with one sample name per line; None for all.
        quantize: Used where the candidate is made here.
        workspace: Folder that keeps results.
        workers: Worker processes that run models.
        mode: Session mode of the candidate.
        precision: Fallback precision.
        rule: Storage rule.
        allow_code: The task file may name the user's own Python; never set for files from a browser.
        target_profile: Name or YAML file of the device that costs are of.
    """

    reference: Path
    candidate: Path | None = None
    data: Path | None = None
    candidate_data: Path | None = None
    calibration: Path | None = None
    name_map: Path | None = None
    task: Path | None = None
    annotations: Path | None = None
    metric: str | None = None
    samples: str | None = None
    quantize: QuantizeOptions = QuantizeOptions()
    workspace: Path = Path(".tearline")
    workers: int = 1
    mode: Mode = "as-executed"
    precision: Precision = "fp16"
    rule: Rule = "per-edge"
    allow_code: bool = False
    target_profile: str = "generic"


Verdict = Literal[
    "healthy",
    "faulty_layers",
    "no_single_layer",
    "inputs_differ",
    "reference_wrong",
    "candidate_not_comparable",
]
Severity = Literal["error", "warning", "info"]
Fact = float | int | str | bool | None | tuple[float, ...] | tuple[int, ...] | tuple[str, ...]
"""A number or word that shows something."""


@dataclass(frozen=True, slots=True)
class Gain:
    """What a fix gives back, measured by simulating it.

    Attributes:
        before: Score of the candidate as it is.
        after: Score with the fix.
        how: What was simulated, in words.
        metric: "sqnr", "slice-sqnr" (dB) or the task's.
        samples: Samples that were scored.
    """

    before: float
    after: float
    how: str
    metric: str
    samples: int


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause that was found and proved.

    Attributes:
        cause: Label of the cause.
        layers: Reference layers (or operators inside one) to blame; empty where no layer is.
        severity: Layers are blamed from "warning" on.
        message: What is wrong, in words.
        evidence: The numbers that show it.
        fix: What to do.
        gain: What the fix gives back; None where it cannot be simulated.
        also: Other causes that would explain the same, less specific.
    """

    cause: str
    layers: tuple[str, ...]
    severity: Severity
    message: str
    evidence: dict[str, Fact]
    fix: str
    gain: Gain | None = None
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """What one detector looked at.

    Attributes:
        name: The detector.
        looked_at: What it compared, in words.
        result: "fine", "suspected, not proved" or "found".
        suspected: Layers that looked suspicious, whose repair does not move the output.
    """

    name: str
    looked_at: str
    result: str
    suspected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiagnoseOptions:
    """How a network is diagnosed.

    Attributes:
        threshold_db: An output below it is bad; 16.9 dB is a cosine of 0.99.
        samples: Samples that causes are proved on, half of them those on which the candidate is worst.
        max_runs: What-if models that may be built.
    """

    threshold_db: float = 16.9
    samples: int = 8
    max_runs: int = 120


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer of ``diagnose``.

    Attributes:
        verdict: What is wrong with the whole.
        findings: Those that give most back first.
        checked: What was looked at.
        output_sqnr_db: Lowest SQNR of the outputs and their parts, over ``samples``.
        repaired_sqnr_db: The same with all findings repaired; nan without any.
        threshold_db: Below it an output is bad.
        samples: Names of the samples that causes were proved on.
        runs: What-if models that were run.
        reference_score: Score of the task; None without one.
        candidate_score: The same of the candidate.
        mode: Session mode of the candidate.
        warnings: Notices.
    """

    verdict: Verdict
    findings: tuple[Finding, ...]
    checked: tuple[Checked, ...]
    output_sqnr_db: float
    repaired_sqnr_db: float
    threshold_db: float
    samples: tuple[str, ...]
    runs: int
    reference_score: Score | None
    candidate_score: Score | None
    mode: Mode
    warnings: tuple[Notice, ...]
